"""Writes what a campaign measured as a table.

The files are `jobs.parquet pairs.parquet raw.parquet card.md`, and where groups of three or more were measured
`groups.parquet raw_groups.parquet`.

Law: the table is a pure function of the profiles and blocks in the measurement log, and of what other sources had said
of the same jobs in the table.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.cards.hub import write_card
from interfere.data.facts import combine_profiles, split_static
from interfere.data.parquet import raw_schema, write_rows
from interfere.data.tables import JOBS_FILE, Table, read_table, write_table
from interfere.profiling.schedule import (
    NORMAL_975,
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
    BlockSide,
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


CampaignBlocks = tuple[CampaignLabels, Sequence[Sequence[MeasuredBlock]]]  # the blocks of each pair or larger group


def write_campaign_table(
    folder: Path,
    profiles: Sequence[JobProfile],
    blocks_of_groups: Sequence[Sequence[MeasuredBlock]],
    labels: CampaignLabels,
    *,
    note: str,
    passes_of_campaign: int = 0,
    command: str = "",
) -> Table:
    """Write the table, its raw rows and its card into `folder`, and return the table as read back.

    Each entry of `blocks_of_groups` holds the blocks of one pair or larger group. Every `passes_of_campaign` passes are
    a campaign with rows of its own; 0: all blocks are of one campaign. The card contains `note`, a remark on the
    measurement, and `command`, the command line that repeats it.
    """
    of_pairs, of_groups = _of_size(blocks_of_groups, pairs=True), _of_size(blocks_of_groups, pairs=False)
    campaigns = _campaigns(blocks_of_groups, labels, passes_of_campaign)
    pairs: list[PairMeasurement] = []
    groups: list[GroupMeasurement] = []
    for named, of_campaign in campaigns:
        scale = _scale(of_campaign)
        for blocks in of_campaign:
            if len(blocks[0].sides) == 2:
                pairs += pair_rows(blocks, named, scale=scale)
            else:
                groups += group_rows(blocks, named, scale=scale)
    latencies = latency_rows([(named, _of_size(of_campaign, pairs=True)) for named, of_campaign in campaigns])
    measured = _with_latencies(profiles, of_pairs)
    combined = combine_profiles((*_facts_of_other_sources(folder, profiles), *measured))
    table = Table(
        name=folder.name,
        jobs=combined.jobs,
        pairs=(*pairs, *latencies),
        groups=tuple(groups),
        sources=combined.sources,
    )
    write_table(folder, table)
    write_rows(folder / RAW_FILE, raw_rows(of_pairs), raw_schema())
    if of_groups:
        write_rows(folder / RAW_GROUPS_FILE, raw_rows(of_groups), raw_schema(groups=True))
    table = read_table(folder)
    write_card(folder, table, command=command, note=note)
    return table


def _of_size(blocks_of_groups: Iterable[Sequence[MeasuredBlock]], *, pairs: bool) -> list[Sequence[MeasuredBlock]]:
    """Return the blocks of each pair, or those of each larger group."""
    return [blocks for blocks in blocks_of_groups if (len(blocks[0].sides) == 2) is pairs]


def _campaigns(
    blocks_of_groups: Sequence[Sequence[MeasuredBlock]], labels: CampaignLabels, passes: int
) -> list[CampaignBlocks]:
    """Return the blocks of each campaign in order. Of several, each is named by the label and its number from 1."""
    if not passes:
        return [(labels, blocks_of_groups)]
    last = max((block.pass_index for blocks in blocks_of_groups for block in blocks), default=0) // passes
    found: list[CampaignBlocks] = []
    for number in range(last + 1):
        groups = (tuple(b for b in blocks if b.pass_index // passes == number) for blocks in blocks_of_groups)
        named = replace(labels, campaign=f"{labels.campaign}-{number + 1}")
        found.append((named, [blocks for blocks in groups if blocks]))
    return found


def _scale(blocks_of_groups: Iterable[Sequence[MeasuredBlock]]) -> float:
    """Return the factor by which blocks of a campaign differ more than their errors predict.

    A job that an important job starved has no slowdown, and does not count.
    """
    sides = (side for blocks in blocks_of_groups for side in estimates_per_side(blocks))
    return scale_factor(side for side in sides if all(_in_range(block.slowdown) for block in side))


def _facts_of_other_sources(folder: Path, profiles: Sequence[JobProfile]) -> list[JobProfile]:
    """Return the facts of the profiled jobs that the table in `folder` holds from other sources, such as a static
    trace."""
    if not (folder / JOBS_FILE).exists():
        return []
    own = {(profile.workload, profile.device_type) for profile in profiles}
    sources = {profile.source for profile in profiles}
    parts = [part for row in read_table(folder).profiles for part in split_static(row)]
    return [part for part in parts if (part.workload, part.device_type) in own and part.source not in sources]


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


# --- latencies of services --------------------------------------------------------------------------------------------

# Of each metric the times that it is a quantile of, a field of SideSlice, and which quantile.
LATENCY_METRICS = {
    f"{name}_{quantile}": (field, q)
    for name, field in (("latency", "latencies_s"), ("ttft", "ttft_s"), ("tpot", "tpot_s"))
    for quantile, q in (("p50", 0.5), ("p99", 0.99))
}
MIN_BEYOND = 2.0  # requests beyond the quantile: with fewer a quantile is the maximum
# Share of a slice that third processes took. One time slice of theirs, 3 ms, is the p99 of a service alone: where they
# took more, p99 of the same service differed by half between two campaigns.
MAX_TAKEN = 0.05


def _with_latencies(
    profiles: Sequence[JobProfile], blocks_of_pairs: Iterable[Sequence[MeasuredBlock]]
) -> list[JobProfile]:
    """Return the profiles, those of services with the quantiles of their latency alone over all blocks."""
    alone = _latencies_alone(blocks_of_pairs, "latencies_s")

    def quantile_s(workload: str, q: float) -> float:
        latencies_s = alone.get(workload, [])
        return float(np.quantile(latencies_s, q)) if len(latencies_s) * (1 - q) >= MIN_BEYOND else NAN

    return [
        replace(each, latency_p50_s=quantile_s(each.workload, 0.5), latency_p99_s=quantile_s(each.workload, 0.99))
        for each in profiles
    ]


def _latencies_alone(blocks_of_pairs: Iterable[Sequence[MeasuredBlock]], times: str) -> dict[str, list[float]]:
    """Return the latencies of each service alone, in seconds; none where every slice was disturbed.

    `times` is the field of SideSlice that holds them. A service without such times is left out.
    """
    alone: dict[str, list[float]] = {}
    for side in (side for blocks in blocks_of_pairs for block in blocks for side in block.sides):
        if any(getattr(each, times) for each in side.slices):
            pooled = alone.setdefault(side.workload, [])
            pooled += [each for part in _slices(side, times, alone=True) for each in part]
    return alone


def latency_rows(campaigns: Sequence[CampaignBlocks]) -> tuple[PairMeasurement, ...]:
    """Return a row of each service beside each neighbour, of each latency metric and of each campaign.

    Metrics are quantiles of the latency of a request and, of services that generate tokens, of the time to first token
    and of the time per output token. `slowdown` is the quantile beside the neighbour divided by the quantile alone.
    Requests are pooled: alone over all blocks of all campaigns, since they do not depend on the neighbour, else over
    the blocks of the row. `passes` holds the ratio of each block. Intervals are widened by the factor by which
    campaigns differ more than their errors predict.
    """
    alone = {
        times: _latencies_alone((blocks for _, pairs in campaigns for blocks in pairs), times)
        for times, _ in LATENCY_METRICS.values()
    }
    rows: list[tuple[PairMeasurement, BlockEstimate | None]] = []
    for labels, pairs in campaigns:
        if labels.mode.properties.orders_jobs:  # a service has two rows there, one of each role
            continue
        for blocks in pairs:
            first, second = (side.workload for side in blocks[0].sides)
            for victim, neighbour in dict.fromkeys(((first, second), (second, first))):
                for metric, (times, _) in LATENCY_METRICS.items():
                    if victim in alone[times]:
                        columns, estimate = _latency(labels, blocks, victim, metric, alone[times][victim])
                        row = PairMeasurement(victim=victim, neighbour=neighbour, metric=metric, **columns)
                        rows.append((row, estimate))
    repeats: dict[str, dict[tuple[str, str], list[BlockEstimate]]] = defaultdict(lambda: defaultdict(list))
    for row, estimate in rows:
        if estimate is not None:
            repeats[row.metric][row.victim, row.neighbour].append(estimate)
    scales = {metric: scale_factor(of_metric.values()) for metric, of_metric in repeats.items()}
    return tuple(row if each is None else _with_interval(row, each, scales[row.metric]) for row, each in rows)


def _with_interval(row: PairMeasurement, estimate: BlockEstimate, scale: float) -> PairMeasurement:
    width = math.exp(NORMAL_975 * scale / math.sqrt(estimate.weight))
    return replace(row, lower=row.slowdown / width, upper=row.slowdown * width)


def _slices(side: BlockSide, times: str, *, alone: bool) -> list[tuple[float, ...]]:
    """Return the latencies of a service in each slice of a kind that counts and was hardly disturbed."""
    latencies = [
        getattr(each, times)
        for each in side.slices
        if each.counted and each.alone is alone and each.taken_s <= MAX_TAKEN * each.wall_s
    ]
    return [each for each in latencies if each]


def _latency(
    labels: CampaignLabels, blocks: Sequence[MeasuredBlock], victim: str, metric: str, alone: Sequence[float]
) -> tuple[dict[str, Any], BlockEstimate | None]:
    """Compare a quantile of the latency of a service beside a neighbour with the quantile alone.

    Return the columns of the row, without an interval, and the estimate; None for too few requests.
    """
    times, q = LATENCY_METRICS[metric]
    of_blocks = [
        [part for side in sides_of_job(block, victim) for part in _slices(side, times, alone=False)]
        for block in blocks
        if block.accepted
    ]
    slices = [part for of_block in of_blocks for part in of_block]
    pooled = [latency_s for part in slices for latency_s in part]
    columns = _columns(blocks, labels, victim, 1.0) | {"slowdown": NAN, "lower": NAN, "upper": NAN, "passes": ()}
    if min(len(pooled), len(alone)) * (1 - q) < MIN_BEYOND:
        reason = f"{len(pooled)} undisturbed requests tell no {q:.0%} quantile"
        return columns | {"status": PairStatus.UNSTABLE, "reason": reason}, None
    alone_s = float(np.quantile(alone, q))
    slowdown = float(np.quantile(pooled, q)) / alone_s
    if not _in_range(slowdown):
        reason = f"its latency is {slowdown:.3g} times that alone"
        return columns | {"status": PairStatus.UNSTABLE, "reason": reason}, None
    error = math.hypot(_order_error(alone, q), max(_order_error(pooled, q), _jackknife_error(slices, q)))
    passes = tuple(float(np.quantile(np.concatenate(parts), q)) / alone_s for parts in of_blocks if parts)
    columns |= {"status": PairStatus.OK, "reason": "", "slowdown": slowdown, "passes": passes}
    return columns, BlockEstimate(slowdown, error)


def _order_error(latencies_s: Sequence[float], q: float) -> float:
    """Return the standard error of the logarithm of a quantile of independent requests, from order statistics.

    The ranks n q ± 1.96 √(n q (1 - q)) bound the quantile with 95 % (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(latencies_s)
    spread = NORMAL_975 * math.sqrt(q * (1 - q) / n)
    low, high = np.quantile(latencies_s, (max(0.0, q - spread), min(1.0, q + spread)))
    return float(np.log(high / low)) / (2 * NORMAL_975)


def _jackknife_error(slices: Sequence[Sequence[float]], q: float) -> float:
    """Return the standard error of the logarithm of a quantile, which leaves out one slice after another.

    Requests of a burst share its fate, so slices tell more of the error than requests. 0 for a single slice.
    """
    if len(slices) < 2:
        return 0.0
    logs = [
        math.log(np.quantile([each for j, other in enumerate(slices) if j != k for each in other], q))
        for k in range(len(slices))
    ]
    return math.sqrt((len(slices) - 1) * float(np.var(logs)))


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
