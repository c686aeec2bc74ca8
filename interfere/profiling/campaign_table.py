"""Writes what a campaign measured as a table.

The files are `jobs.parquet pairs.parquet raw.parquet card.md`, and where groups of three or more were measured
`groups.parquet raw_groups.parquet`.

Law: the table is a pure function of the profiles and blocks in the measurement log, and of what other sources had said
of the same jobs in the table.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from interfere.data.dataset_card import write_card
from interfere.data.facts import combine_profiles, split_static
from interfere.data.parquet import write_rows
from interfere.data.quality import block_slowdowns
from interfere.data.schema import raw_groups_schema, raw_schema
from interfere.data.tables import JOBS_FILE, Table, read_table, write_table
from interfere.profiling.intervals import geometric_mean, log_half_width
from interfere.profiling.schedule import is_unstable
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
from interfere.records.measurements import IMPORTANT
from interfere.sharing_modes import SharingMode

RAW_FILE, RAW_GROUPS_FILE = "raw.parquet", "raw_groups.parquet"
STARVED = f"made too few steps beside the important job to tell a slowdown up to {MAX_SLOWDOWN:g}"
Row = TypeVar("Row", PairMeasurement, GroupMeasurement)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignLabels:
    """The columns that are equal in all rows of a campaign."""

    device_type: str
    device_name: str
    campaign: str
    source: str
    mode: SharingMode = SharingMode.TIMESLICE


def write_campaign_table(
    folder: Path,
    profiles: Sequence[JobProfile],
    blocks_of_groups: Sequence[Sequence[MeasuredBlock]],
    labels: CampaignLabels,
    *,
    passes: int,
    note: str,
    command: str = "",
) -> Table:
    """Write the table, its raw rows and its card into `folder`, and return the table as it reads back.

    `blocks_of_groups` holds the blocks of one pair or larger group an entry; `passes` is how many of them each must
    have; `note` says in the card how the measuring went, `command` which command line measures the same again.
    """
    of_pairs = [blocks for blocks in blocks_of_groups if len(blocks[0].sides) == 2]
    of_groups = [blocks for blocks in blocks_of_groups if len(blocks[0].sides) > 2]
    combined = combine_profiles((*_facts_of_other_sources(folder, profiles), *profiles))
    table = Table(
        name=folder.name,
        jobs=combined.jobs,
        pairs=tuple(row for blocks in of_pairs for row in pair_rows(blocks, labels, passes=passes)),
        groups=tuple(row for blocks in of_groups for row in group_rows(blocks, labels, passes=passes)),
        sources=combined.sources,
    )
    write_table(folder, table)
    write_rows(folder / RAW_FILE, raw_rows(of_pairs), raw_schema())
    if of_groups:
        write_rows(folder / RAW_GROUPS_FILE, raw_rows(of_groups), raw_groups_schema())
    table = read_table(folder)
    write_card(folder, table, command=command, note=note)
    return table


def _facts_of_other_sources(folder: Path, profiles: Sequence[JobProfile]) -> list[JobProfile]:
    """What the table in `folder` knows of the profiled jobs from other sources, such as a static trace."""
    if not (folder / JOBS_FILE).exists():
        return []
    own = {(profile.workload, profile.device_type) for profile in profiles}
    sources = {profile.source for profile in profiles}
    parts = [part for row in read_table(folder).profiles for part in split_static(row)]
    return [part for part in parts if (part.workload, part.device_type) in own and part.source not in sources]


def pair_rows(blocks: Sequence[MeasuredBlock], labels: CampaignLabels, *, passes: int) -> tuple[PairMeasurement, ...]:
    """The rows of one pair from its blocks: one for each direction, a single one for a self pair.

    In mode `priority` the two jobs of a self pair differ, and each has a row.
    """
    if labels.mode.properties.orders_jobs:
        places: tuple[tuple[int, ...], ...] = ((0,), (1,))
    else:
        places = _places_by_workload(blocks[0])
    rows = []
    for k in places:
        victim, neighbour = blocks[0].sides[k[0]].workload, blocks[0].sides[1 - k[0]].workload
        row = PairMeasurement(
            victim=victim,
            neighbour=neighbour,
            important=IMPORTANT[k[0]] if labels.mode.properties.orders_jobs else "",
            **_columns(blocks, labels, passes, victim, k if labels.mode.properties.orders_jobs else None),
        )
        rows.append(_with_interval(row))
    return tuple(rows)


def group_rows(blocks: Sequence[MeasuredBlock], labels: CampaignLabels, *, passes: int) -> tuple[GroupMeasurement, ...]:
    """The rows of one group from its blocks: one for each distinct workload, in the company of the other jobs."""
    members = blocks[0].key
    rows = []
    for victim in dict.fromkeys(members):
        company = list(members)
        company.remove(victim)
        row = GroupMeasurement(victim=victim, company=tuple(company), **_columns(blocks, labels, passes, victim))
        rows.append(_with_interval(row))
    return tuple(rows)


def _places_by_workload(block: MeasuredBlock) -> tuple[tuple[int, ...], ...]:
    """For each distinct workload of a block, the places in which it runs."""
    names = [side.workload for side in block.sides]
    return tuple(tuple(k for k, name in enumerate(names) if name == each) for each in dict.fromkeys(names))


def _columns(
    blocks: Sequence[MeasuredBlock],
    labels: CampaignLabels,
    passes: int,
    victim: str,
    places: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """What the blocks say of one victim: of all its sides, or of those at `places` alone."""
    accepted = [block for block in blocks if block.accepted]
    sides = [
        side
        for block in accepted
        for k, side in enumerate(block.sides)
        if side.workload == victim and (places is None or k in places)
    ]
    slowdowns = tuple(side.slowdown for side in sides)
    starved = not all(MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN for slowdown in slowdowns)  # beside an important job
    unstable = is_unstable(blocks, passes) or not accepted or starved
    reason = STARVED if starved else next((block.reason for block in reversed(blocks) if block.reason), "")
    return {
        "device_type": labels.device_type,
        "mode": labels.mode,
        "passes": () if starved else slowdowns,
        "status": PairStatus.UNSTABLE if unstable else PairStatus.OK,
        "slowdown": NAN if unstable else geometric_mean(slowdowns),
        "reason": reason if unstable else "",
        "overlap_frac": min(1.0, sum(side.overlap_frac for side in sides) / len(sides)) if sides else NAN,
        "steal_frac": sum(block.steal_frac for block in accepted) / len(accepted) if accepted else NAN,
        "source": labels.source,
        "campaign": labels.campaign,
        "device_name": labels.device_name,
        "measured_at_s": max(block.started_at_s for block in blocks),
    }


def _with_interval(row: Row) -> Row:
    """The row with the 95 % interval of its blocks; without one where it has no slowdown or too few blocks."""
    half_width = log_half_width(block_slowdowns(row))
    if row.status is not PairStatus.OK or not math.isfinite(half_width):
        return row
    return replace(row, lower=row.slowdown * math.exp(-half_width), upper=row.slowdown * math.exp(half_width))


def raw_rows(blocks_of_groups: Iterable[Sequence[MeasuredBlock]]) -> list[dict[str, object]]:
    """One row a block and side, without its chunks: those stay in `raw/blocks.jsonl`."""
    rows = []
    for block in (block for blocks in blocks_of_groups for block in blocks):
        block_facts = {name: value for name, value in asdict(block).items() if name not in ("sides", "chunks", "mode")}
        for k, side in enumerate(block.sides):
            others = sorted(other.workload for place, other in enumerate(block.sides) if place != k)
            side_facts = asdict(side)
            row: dict[str, object] = {"victim": side_facts.pop("workload")}
            if len(others) > 1:
                row["company"] = others
            else:
                row |= {"neighbour": others[0], "important": IMPORTANT[k] if block.mode.properties.orders_jobs else ""}
            row |= block_facts | side_facts
            rows.append({name: None if _is_nan(value) else value for name, value in row.items()})
    return rows


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
