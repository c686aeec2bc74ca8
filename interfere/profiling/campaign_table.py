"""Writes what a campaign measured as a table: `jobs.parquet pairs.parquet raw.parquet card.md`.

Law: the table is a pure function of the profiles and blocks in the measurement log, and of what other sources had said
of the same jobs in the table.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from interfere.data.dataset_card import write_card
from interfere.data.facts import combine_profiles, split_static
from interfere.data.parquet import write_rows
from interfere.data.quality import block_slowdowns
from interfere.data.schema import raw_schema
from interfere.data.tables import JOBS_FILE, Table, read_table, write_table
from interfere.profiling.intervals import geometric_mean, log_half_width
from interfere.profiling.schedule import is_unstable
from interfere.records import NAN, JobProfile, PairBlock, PairMeasurement, PairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignLabels:
    """The columns that are equal in all rows of a campaign."""

    device_type: str
    device_name: str
    campaign: str
    source: str
    mode: str = "timeslice"


def write_campaign_table(
    folder: Path,
    profiles: Sequence[JobProfile],
    blocks_of_pairs: Sequence[Sequence[PairBlock]],
    labels: CampaignLabels,
    *,
    passes: int,
    note: str,
    command: str = "",
) -> Table:
    """Write the table, its raw rows and its card into `folder`, and return the table as it reads back.

    `blocks_of_pairs` holds the blocks of one unordered pair an entry; `passes` is how many of them every pair must
    have; `note` says in the card how the measuring went, `command` which command line measures the same again.
    """
    pairs = tuple(row for blocks in blocks_of_pairs for row in pair_rows(blocks, labels, passes=passes))
    combined = combine_profiles((*_facts_of_other_sources(folder, profiles), *profiles))
    write_table(folder, Table(name=folder.name, jobs=combined.jobs, pairs=pairs, sources=combined.sources))
    write_rows(folder / "raw.parquet", raw_rows(blocks_of_pairs), raw_schema())
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


def pair_rows(blocks: Sequence[PairBlock], labels: CampaignLabels, *, passes: int) -> tuple[PairMeasurement, ...]:
    """The rows of one unordered pair from its blocks: one for each direction, a single one for a self pair."""
    accepted = [block for block in blocks if block.accepted]
    unstable = is_unstable(blocks, passes) or not accepted
    reason = next((block.reason for block in reversed(blocks) if block.reason), "") if unstable else ""
    first, second = (side.workload for side in blocks[0].sides)
    rows = []
    for victim, neighbour in dict.fromkeys(((first, second), (second, first))):
        sides = [side for block in accepted for side in block.sides if side.workload == victim]
        slowdowns = tuple(side.slowdown for side in sides)
        row = PairMeasurement(
            victim=victim,
            neighbour=neighbour,
            device_type=labels.device_type,
            mode=labels.mode,
            passes=slowdowns,
            status=PairStatus.UNSTABLE if unstable else PairStatus.OK,
            slowdown=NAN if unstable else geometric_mean(slowdowns),
            reason=reason,
            overlap_frac=min(1.0, sum(side.overlap_frac for side in sides) / len(sides)) if sides else NAN,
            steal_frac=sum(block.steal_frac for block in accepted) / len(accepted) if accepted else NAN,
            source=labels.source,
            campaign=labels.campaign,
            device_name=labels.device_name,
            measured_at_s=max(block.started_at_s for block in blocks),
        )
        rows.append(row if unstable else _with_interval(row))
    return tuple(rows)


def _with_interval(row: PairMeasurement) -> PairMeasurement:
    half_width = log_half_width(block_slowdowns(row))
    if not math.isfinite(half_width):
        return row
    return replace(row, lower=row.slowdown * math.exp(-half_width), upper=row.slowdown * math.exp(half_width))


def raw_rows(blocks_of_pairs: Iterable[Sequence[PairBlock]]) -> list[dict[str, object]]:
    """One row a block and side, without its chunks: those stay in `raw/blocks.jsonl`."""
    rows = []
    for block in (block for blocks in blocks_of_pairs for block in blocks):
        block_facts = {name: value for name, value in asdict(block).items() if name not in ("sides", "chunks")}
        for side, other_side in (block.sides, block.sides[::-1]):
            side_facts = asdict(side)
            row = {
                "victim": side_facts.pop("workload"),
                "neighbour": other_side.workload,
                **block_facts,
                **side_facts,
            }
            rows.append({name: None if _is_nan(value) else value for name, value in row.items()})
    return rows


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
