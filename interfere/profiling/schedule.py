"""The schedule of measuring: which groups there are, which block is next, how well blocks agree, what is unstable.

Laws: the schedule is a pure function of the seed and of the blocks measured so far, so a resumed campaign continues as
it would have gone on; a rejected block is repeated at the end of its pass, at most twice. A group that lost the block
of a pass keeps the blocks it has and gets no more; it is unstable when it has none.

Intervals: every block says how well it knows its slowdown, so a disturbed block weighs little. Whether blocks agree as
well as they say is known better from all rows of a table than from the two or three blocks of one: the scale factor of
a row's error (Particle Data Group, Review of Particle Physics, section 5.2.2; Birge 1932) is estimated over the table,
and that of a row is drawn to it with the weight of `PRIOR_BLOCKS` further blocks. Slowdowns are ratios, so means and
intervals are taken of their logarithms.

Of groups of three and more a balanced part is measured, so that all jobs and all pairs are measured alike often (greedy
balanced incomplete block design): of all groups, those come next that raise the sum of squares of the counts least,
where a job counts as often as it was chosen, and so does an unordered pair of jobs in a group, self pairs included.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import (
    BlockRequest,
    BlockSide,
    MeasuredBlock,
    WorkloadGroup,
    WorkloadPair,
    group_key,
)
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

MAX_RETRIES = 2  # of a rejected block
TARGET_HALF_WIDTH = 0.03  # of the mean log slowdown: no further block is measured below it
BLOCK_ERROR = 0.01  # assumed of every block on top of what its slices say; the scale factor corrects it
PRIOR_BLOCKS = 8

# 97.5 % quantiles of Student's t, degrees of freedom 1-30 (any statistics text, e.g. NIST handbook 1.3.6.7.2).
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_975 = 1.96  # the same quantile beyond the table


def t_quantile_975(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution, by its degrees of freedom."""
    return T_975[degrees - 1] if degrees <= len(T_975) else NORMAL_975


@dataclass(frozen=True, slots=True)
class BlockEstimate:
    """The slowdown of a job in a block, with its standard error."""

    slowdown: float  # of copies of the job, the geometric mean
    log_error: float  # standard error of its logarithm, as its slices say

    @property
    def weight(self) -> float:
        """The weight of the block in a mean over blocks: the inverse of its variance."""
        return 1.0 / (self.log_error**2 + BLOCK_ERROR**2)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the exponential of the mean logarithm; NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def mean_slowdown(blocks: Sequence[BlockEstimate]) -> float:
    """Return the geometric mean of the blocks' slowdowns, weighted by inverse variance; NaN for no blocks."""
    total = sum(block.weight for block in blocks)
    if not total:
        return math.nan
    return math.exp(sum(block.weight * math.log(block.slowdown) for block in blocks) / total)


def _squared_deviations(blocks: Sequence[BlockEstimate]) -> float:
    """Return the sum of squared deviations of the blocks from their mean in units of their errors (chi square)."""
    centre = math.log(mean_slowdown(blocks)) if blocks else 0.0
    return sum(block.weight * (math.log(block.slowdown) - centre) ** 2 for block in blocks)


def scale_factor(rows: Iterable[Sequence[BlockEstimate]]) -> float:
    """Return the factor by which blocks of a table differ more than their errors predict; at least 1."""
    rows = [blocks for blocks in rows if len(blocks) > 1]
    degrees = sum(len(blocks) - 1 for blocks in rows)
    squares = sum(map(_squared_deviations, rows))
    return max(1.0, math.sqrt((squares + PRIOR_BLOCKS) / (degrees + PRIOR_BLOCKS)))


def log_half_width(blocks: Sequence[BlockEstimate], scale: float = 1.0) -> float:
    """Return half the width of the 95 % interval of the mean log slowdown; infinite for no blocks."""
    if not blocks:
        return math.inf
    degrees = PRIOR_BLOCKS + len(blocks) - 1
    row_scale = math.sqrt((PRIOR_BLOCKS * scale**2 + _squared_deviations(blocks)) / degrees)
    return t_quantile_975(degrees) * max(1.0, row_scale) / math.sqrt(sum(block.weight for block in blocks))


def has_converged(blocks_per_side: Sequence[Sequence[BlockEstimate]]) -> bool:
    """Return whether the interval of every side is narrower than the target."""
    return all(log_half_width(blocks) < TARGET_HALF_WIDTH for blocks in blocks_per_side)


# --- blocks to measure ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSchedule:
    """The groups to measure, and how often: `passes` blocks, up to `max_blocks` while an interval is wide."""

    groups: tuple[WorkloadGroup, ...]
    passes: int
    max_blocks: int
    seed: int
    mode: SharingMode = DEFAULT_MODE


def all_pairs(workloads: Sequence[str], mode: SharingMode = DEFAULT_MODE) -> tuple[WorkloadPair, ...]:
    """Return every unordered pair, self pairs included; in mode `priority` every ordered one, important job first."""
    if mode.properties.orders_jobs:
        return tuple((important, other) for important in workloads for other in workloads)
    return tuple(combinations_with_replacement(workloads, 2))


def pending_blocks(
    schedule: BlockSchedule, blocks_by_group: Mapping[WorkloadGroup, Sequence[MeasuredBlock]]
) -> Iterator[BlockRequest]:
    """Yield the next block to measure until none is missing, pass by pass.

    `blocks_by_group` is read anew before each request, so append every measured block to it.
    """
    for pass_index in range(schedule.max_blocks):
        for _ in range(1 + MAX_RETRIES):
            for members in pass_order(schedule, pass_index):
                blocks = blocks_by_group.get(group_key(members, schedule.mode), ())
                attempt = next_attempt(schedule, blocks, pass_index)
                if attempt is not None:
                    yield BlockRequest(members=members, pass_index=pass_index, attempt=attempt, earlier=tuple(blocks))


def pass_order(schedule: BlockSchedule, pass_index: int) -> list[WorkloadGroup]:
    """Return the groups of a pass in random order. The order of jobs within a group is reversed from pass to pass.

    In mode `priority` the order of jobs stays, because the first job is the important one.
    """
    shuffled = np.random.default_rng((schedule.seed, pass_index)).permutation(len(schedule.groups))
    groups = [schedule.groups[k] for k in shuffled]
    swapped = pass_index % 2 and not schedule.mode.properties.orders_jobs
    return [members[::-1] for members in groups] if swapped else groups


def next_attempt(schedule: BlockSchedule, blocks: Sequence[MeasuredBlock], pass_index: int) -> int | None:
    """Return the attempt number of the block that a group still needs in a pass; None when it needs none."""
    if pass_index >= schedule.max_blocks or lost_passes(blocks):
        return None
    attempts = [block for block in blocks if block.pass_index == pass_index]
    if any(block.accepted for block in attempts):
        return None
    if not attempts and pass_index >= schedule.passes and has_converged(estimates_per_side(blocks)):
        return None
    return len(attempts)


def remaining_blocks(
    schedule: BlockSchedule, blocks_by_group: Mapping[WorkloadGroup, Sequence[MeasuredBlock]]
) -> dict[WorkloadGroup, int]:
    """Return how many blocks of each group are still to be measured, with all that a wide interval may yet need."""
    remaining: dict[WorkloadGroup, int] = {}
    for members in schedule.groups:
        blocks = blocks_by_group.get(group_key(members, schedule.mode), ())
        if lost_passes(blocks):
            continue
        accepted = sum(block.accepted for block in blocks)
        may_take_more = accepted >= 2 and not has_converged(estimates_per_side(blocks))
        wanted = schedule.max_blocks if may_take_more else schedule.passes
        remaining[members] = max(0, wanted - accepted)
    return remaining


def estimates_per_side(blocks: Sequence[MeasuredBlock]) -> tuple[tuple[BlockEstimate, ...], ...]:
    """Return the slowdown of each distinct job of a group in each accepted block; jobs are sorted by name.

    In mode `priority` each job counts by itself, the important one first.
    """
    accepted = [block for block in blocks if block.accepted]
    if not accepted:
        return ()
    if accepted[0].mode.properties.orders_jobs:
        return tuple(block_estimates(accepted, (k,)) for k in range(len(accepted[0].sides)))
    return tuple(block_estimates(accepted, name) for name in sorted({side.workload for side in accepted[0].sides}))


def block_estimates(blocks: Sequence[MeasuredBlock], job: str | tuple[int, ...]) -> tuple[BlockEstimate, ...]:
    """Return the slowdown of one job, given by its name or its places in the group, in each accepted block.

    Copies of a job are one estimate, as disturbances hit them together.
    """
    estimates = []
    for block in (block for block in blocks if block.accepted):
        sides = sides_of_job(block, job)
        error = sum(side.log_error**2 for side in sides) / len(sides)
        estimates.append(BlockEstimate(geometric_mean([side.slowdown for side in sides]), error**0.5))
    return tuple(estimates)


def sides_of_job(block: MeasuredBlock, job: str | tuple[int, ...]) -> list[BlockSide]:
    """Return the measurements in a block of a job, given by its name or its places in the group."""
    return [side for k, side in enumerate(block.sides) if (side.workload == job if isinstance(job, str) else k in job)]


def lost_passes(blocks: Sequence[MeasuredBlock]) -> tuple[int, ...]:
    """Return the passes in which every attempt at the block of a group was rejected."""
    rejected = [block.pass_index for block in blocks if not block.accepted]
    return tuple(sorted(index for index in set(rejected) if rejected.count(index) > MAX_RETRIES))


def is_unstable(blocks: Sequence[MeasuredBlock]) -> bool:
    """Return whether the measuring of a group was given up without one accepted block."""
    return bool(lost_passes(blocks)) and not any(block.accepted for block in blocks)


JOB_WEIGHT = 1.0  # of a job's count beside a pair's: of 16 jobs in 120 triples all counts then differ by at most one
MAX_CANDIDATES = 6_000  # groups that are compared in a step; of more, a random sample is


def balanced_groups(workloads: Sequence[str], *, size: int, count: int, seed: int) -> tuple[WorkloadGroup, ...]:
    """Choose `count` distinct groups of `size` jobs in which all jobs and pairs are measured alike often.

    A job may take part in a group several times. Raises InvalidInputError.
    """
    possible = comb(len(workloads) + size - 1, size)
    if size < 3:
        raise InvalidInputError("a group has three jobs or more", value=size, remedy="two jobs are a pair")
    if not 1 <= count <= possible:
        raise InvalidInputError(
            f"{len(workloads)} workloads make {possible} groups of {size}", value=count, remedy=f"1 to {possible}"
        )
    rng = np.random.default_rng((seed, size))
    taken: set[tuple[int, ...]] = set()
    job_counts = np.zeros(len(workloads))
    pair_counts = np.zeros((len(workloads), len(workloads)))  # of the unordered pair, in both cells
    chosen = []
    for _ in range(count):
        candidates = _candidates(len(workloads), size, taken, rng)
        cost = _increase(candidates, job_counts, pair_counts)
        members = tuple(int(k) for k in candidates[rng.choice(np.flatnonzero(cost <= cost.min() + 1e-9))])
        taken.add(members)
        for k in members:
            job_counts[k] += 1
        for first, second in combinations(members, 2):
            pair_counts[first, second] += 1
            pair_counts[second, first] = pair_counts[first, second]
        chosen.append(tuple(workloads[k] for k in members))
    return tuple(chosen)


def _candidates(jobs: int, size: int, taken: set[tuple[int, ...]], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return groups that were not chosen yet, as int64[c, size] with sorted rows.

    They are all such groups where there are at most `MAX_CANDIDATES`, else a random part of them.
    """
    if comb(jobs + size - 1, size) <= MAX_CANDIDATES:
        rows = [row for row in combinations_with_replacement(range(jobs), size) if row not in taken]
    else:
        drawn = np.sort(rng.integers(0, jobs, size=(MAX_CANDIDATES, size)), axis=1)
        rows = [row for row in map(tuple, drawn.tolist()) if row not in taken]
    return np.array(rows, dtype=np.int64)


def _increase(
    groups: NDArray[np.int64], job_counts: NDArray[np.float64], pair_counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return float64[c]: by how much each group would raise the weighted sum of squared counts."""
    jobs = len(job_counts)
    members = np.zeros((len(groups), jobs))
    np.add.at(members, (np.arange(len(groups))[:, None], groups), 1.0)
    cost = 2 * JOB_WEIGHT * members @ job_counts
    for first, second in combinations(range(groups.shape[1]), 2):
        a, b = groups[:, first], groups[:, second]
        # A pair that stands k times in the group adds (c + k)² - c² = k (2 c + k): once for each of its places here.
        times = np.where(a == b, members[np.arange(len(groups)), a] * (members[np.arange(len(groups)), a] - 1) / 2, 0.0)
        times = np.where(a == b, times, members[np.arange(len(groups)), a] * members[np.arange(len(groups)), b])
        cost += 2 * pair_counts[a, b] + times
    return np.asarray(cost)
