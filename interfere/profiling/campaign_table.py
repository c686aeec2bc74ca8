"""Writes what a campaign measured as a table.

The files are `jobs.parquet pairs.parquet raw.parquet card.md`, and where groups of three or more were measured
`groups.parquet raw_groups.parquet`.

Law: the table is a pure function of the profiles and blocks in the measurement log, and of what other sources had said
of the same jobs in the table.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data.cards.dataset_card import write_card
from interfere.data.facts import combine_profiles, split_static
from interfere.data.parquet import raw_schema, write_rows
from interfere.data.tables import JOBS_FILE, Table, read_table, write_table
from interfere.devices import CPU_CORE
from interfere.profiling.schedule import (
    BlockEstimate,
    block_estimates,
    estimates_per_side,
    log_half_width,
    mean_slowdown,
    scale_factor,
    sides_of_job,
)
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    GroupMeasurement,
    JobProfile,
    MeasuredBlock,
    PairMeasurement,
    PairStatus,
)
from interfere.records.checks import check
from interfere.records.measurements import IMPORTANT
from interfere.sharing_modes import SharingMode, set_sharing_mode

RAW_FILE, RAW_GROUPS_FILE = "raw.parquet", "raw_groups.parquet"
STARVED = f"made too few steps beside the important job to tell a slowdown up to {MAX_SLOWDOWN:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignLabels:
    """The columns that have the same value in all rows of one measured table."""

    device_type: str
    device_name: str
    campaign: str
    source: str
    mode: SharingMode = SharingMode.TIMESLICE

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))

    @property
    def on_cpu_core(self) -> bool:
        """Whether the device is a CPU core, to which jobs are pinned."""
        return self.device_type == CPU_CORE.name


def write_campaign_table(
    folder: Path,
    profiles: Sequence[JobProfile],
    blocks_of_groups: Sequence[Sequence[MeasuredBlock]],
    labels: CampaignLabels,
    *,
    note: str,
    command: str = "",
) -> Table:
    """Write the table, its raw rows and its card into `folder`, and return the table as read back.

    Each entry of `blocks_of_groups` holds the blocks of one pair or larger group. The card contains `note`, a remark on
    the measurement, and `command`, the command line that repeats it.
    """
    of_pairs = [blocks for blocks in blocks_of_groups if len(blocks[0].sides) == 2]
    of_groups = [blocks for blocks in blocks_of_groups if len(blocks[0].sides) > 2]
    scale = scale_factor(blocks for group in blocks_of_groups for blocks in _meaningful(estimates_per_side(group)))
    combined = combine_profiles((*_facts_of_other_sources(folder, profiles), *profiles))
    table = Table(
        name=folder.name,
        jobs=combined.jobs,
        pairs=tuple(row for blocks in of_pairs for row in pair_rows(blocks, labels, scale=scale)),
        groups=tuple(row for blocks in of_groups for row in group_rows(blocks, labels, scale=scale)),
        sources=combined.sources,
    )
    write_table(folder, table)
    write_rows(folder / RAW_FILE, raw_rows(of_pairs), raw_schema())
    if of_groups:
        write_rows(folder / RAW_GROUPS_FILE, raw_rows(of_groups), raw_schema(groups=True))
    table = read_table(folder)
    write_card(folder, table, command=command, note=note)
    return table


def _facts_of_other_sources(folder: Path, profiles: Sequence[JobProfile]) -> list[JobProfile]:
    """Return the facts of the profiled jobs that the table in `folder` holds from other sources, such as a static
    trace."""
    if not (folder / JOBS_FILE).exists():
        return []
    own = {(profile.workload, profile.device_type) for profile in profiles}
    sources = {profile.source for profile in profiles}
    parts = [part for row in read_table(folder).profiles for part in split_static(row)]
    return [part for part in parts if (part.workload, part.device_type) in own and part.source not in sources]


def _meaningful(sides: Iterable[Sequence[BlockEstimate]]) -> list[Sequence[BlockEstimate]]:
    """Return the sides with a slowdown in every block. A job starved by an important job has none."""
    return [blocks for blocks in sides if all(_in_range(block.slowdown) for block in blocks)]


def _in_range(slowdown: float) -> bool:
    return MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN


def pair_rows(
    blocks: Sequence[MeasuredBlock], labels: CampaignLabels, *, scale: float = 1.0
) -> tuple[PairMeasurement, ...]:
    """Return the rows of one pair from its blocks: one row for each direction, a single row for a self pair.

    In mode `priority` the two jobs of a self pair differ, and each has a row. `scale` is the factor by which the blocks
    of the table differ more than their errors predict.
    """
    names = [side.workload for side in blocks[0].sides]
    if labels.mode.properties.orders_jobs:
        return tuple(
            PairMeasurement(
                victim=names[k],
                neighbour=names[1 - k],
                important=IMPORTANT[k],
                **_columns(blocks, labels, (k,), scale),
            )
            for k in range(2)
        )
    return tuple(
        PairMeasurement(victim=victim, neighbour=neighbour, **_columns(blocks, labels, victim, scale))
        for victim, neighbour in dict.fromkeys((tuple(names), tuple(reversed(names))))
    )


def group_rows(
    blocks: Sequence[MeasuredBlock], labels: CampaignLabels, *, scale: float = 1.0
) -> tuple[GroupMeasurement, ...]:
    """Return the rows of a group from its blocks: one row for each distinct workload beside the other jobs."""
    members = blocks[0].key
    rows = []
    for victim in dict.fromkeys(members):
        company = list(members)
        company.remove(victim)
        columns = _columns(blocks, labels, victim, scale)
        rows.append(GroupMeasurement(victim=victim, company=tuple(company), **columns))
    return tuple(rows)


def _columns(
    blocks: Sequence[MeasuredBlock], labels: CampaignLabels, job: str | tuple[int, ...], scale: float
) -> dict[str, Any]:
    """Return the columns of a victim from its blocks; `job` is the victim's name or its places in the group."""
    accepted = [block for block in blocks if block.accepted]
    sides = [side for block in accepted for side in sides_of_job(block, job)]
    starved = not all(_in_range(side.slowdown) for side in sides)  # beside an important job
    unstable = not accepted or starved
    estimates = () if unstable else block_estimates(accepted, job)
    slowdown = mean_slowdown(estimates) if estimates else NAN
    half_width = log_half_width(estimates, scale)
    reason = STARVED if starved else next((block.reason for block in reversed(blocks) if block.reason), "")
    return {
        "device_type": labels.device_type,
        "mode": labels.mode,
        "passes": () if starved else tuple(side.slowdown for side in sides),
        "status": PairStatus.UNSTABLE if unstable else PairStatus.OK,
        "slowdown": slowdown,
        "lower": slowdown * math.exp(-half_width) if estimates else NAN,
        "upper": slowdown * math.exp(half_width) if estimates else NAN,
        "reason": reason if unstable else "",
        "overlap_frac": min(1.0, sum(side.overlap_frac for side in sides) / len(sides)) if sides else NAN,
        "steal_frac": sum(block.steal_frac for block in accepted) / len(accepted) if accepted else NAN,
        "source": labels.source,
        "campaign": labels.campaign,
        "device_name": labels.device_name,
        "measured_at_s": max(block.started_at_s for block in blocks),
    }


def raw_rows(blocks_of_groups: Iterable[Sequence[MeasuredBlock]]) -> list[dict[str, object]]:
    """Return one row per block and job, without its slices. The slices stay in `raw/blocks.jsonl`."""
    rows = []
    for block in (block for blocks in blocks_of_groups for block in blocks):
        block_facts = {name: value for name, value in asdict(block).items() if name not in ("sides", "mode")}
        for k, side in enumerate(block.sides):
            others = sorted(other.workload for place, other in enumerate(block.sides) if place != k)
            side_facts = asdict(side) | {"slices": len(side.slices)}
            row: dict[str, object] = {"victim": side_facts.pop("workload")}
            if len(others) > 1:
                row["company"] = others
            else:
                row |= {"neighbour": others[0], "important": IMPORTANT[k] if block.mode.properties.orders_jobs else ""}
            row |= block_facts | side_facts
            rows.append({name: None if _is_unknown(value) else value for name, value in row.items()})
    return rows


def _is_unknown(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
