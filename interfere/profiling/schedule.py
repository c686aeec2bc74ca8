"""The schedule of a campaign: which block of which pair is measured next, and which pairs are unstable.

Laws: the schedule is a pure function of the seed and of the blocks measured so far, so a resumed campaign continues as
it would have gone on; a rejected block is repeated at the end of its pass, at most twice. A pair is unstable when the
block of one of its first `passes` passes was rejected every time; a pair that lost only a later block keeps the blocks
it has and gets no more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from interfere.profiling.intervals import geometric_mean, has_converged
from interfere.profiling.quality_gates import MAX_RETRIES
from interfere.records import BlockRequest, PairBlock, WorkloadPair


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSchedule:
    """Which pairs, and how often: always `passes` blocks, and up to `max_blocks` until the interval is narrow."""

    pairs: tuple[WorkloadPair, ...]
    passes: int
    max_blocks: int
    seed: int


def all_pairs(workloads: Sequence[str]) -> tuple[WorkloadPair, ...]:
    """Every unordered pair, self pairs included."""
    return tuple(combinations_with_replacement(workloads, 2))


def pending_blocks(
    schedule: PairSchedule, blocks_by_pair: Mapping[frozenset[str], Sequence[PairBlock]]
) -> Iterator[BlockRequest]:
    """The blocks to measure, one after the other, pass by pass.

    `blocks_by_pair` is read anew before each request, so append every measured block to it.
    """
    for pass_index in range(schedule.max_blocks):
        for _ in range(1 + MAX_RETRIES):
            for pair in pass_order(schedule, pass_index):
                blocks = blocks_by_pair.get(frozenset(pair), ())
                attempt = next_attempt(schedule, blocks, pass_index)
                if attempt is not None:
                    yield BlockRequest(pair=pair, pass_index=pass_index, attempt=attempt, earlier=tuple(blocks))


def pass_order(schedule: PairSchedule, pass_index: int) -> list[WorkloadPair]:
    """The pairs of a pass in random order; first and second job swap from pass to pass."""
    shuffled = np.random.default_rng((schedule.seed, pass_index)).permutation(len(schedule.pairs))
    pairs = [schedule.pairs[k] for k in shuffled]
    return [(second, first) for first, second in pairs] if pass_index % 2 else pairs


def next_attempt(schedule: PairSchedule, blocks: Sequence[PairBlock], pass_index: int) -> int | None:
    """Attempt number of the block that a pair still needs in a pass; None when it needs none."""
    if pass_index >= schedule.max_blocks or lost_passes(blocks):
        return None
    attempts = [block for block in blocks if block.pass_index == pass_index]
    if any(block.accepted for block in attempts):
        return None
    if not attempts and pass_index >= schedule.passes and has_converged(slowdowns_per_side(blocks)):
        return None
    return len(attempts)


def remaining_blocks(schedule: PairSchedule, blocks_by_pair: Mapping[frozenset[str], Sequence[PairBlock]]) -> int:
    """Number of blocks still to measure: the certain ones, and all that pairs with a wide interval may yet take."""
    remaining = 0
    for pair in schedule.pairs:
        blocks = blocks_by_pair.get(frozenset(pair), ())
        if lost_passes(blocks):
            continue
        accepted = sum(block.accepted for block in blocks)
        may_take_more = accepted >= 2 and not has_converged(slowdowns_per_side(blocks))
        wanted = schedule.max_blocks if may_take_more else schedule.passes
        remaining += max(0, wanted - accepted)
    return remaining


def slowdowns_per_side(blocks: Sequence[PairBlock]) -> tuple[tuple[float, ...], ...]:
    """Slowdowns of each side of a pair, sorted by name, one for each accepted block.

    A self pair has one side, whose slowdowns are the geometric means of both.
    """
    accepted = [block for block in blocks if block.accepted]
    names = sorted({side.workload for block in accepted for side in block.sides})
    return tuple(
        tuple(geometric_mean([side.slowdown for side in block.sides if side.workload == name]) for block in accepted)
        for name in names
    )


def lost_passes(blocks: Sequence[PairBlock]) -> tuple[int, ...]:
    """Passes in which the block of a pair was rejected at every one of its attempts."""
    rejected = [block.pass_index for block in blocks if not block.accepted]
    return tuple(sorted(index for index in set(rejected) if rejected.count(index) > MAX_RETRIES))


def is_unstable(blocks: Sequence[PairBlock], passes: int) -> bool:
    """Whether a block that every pair must have was lost."""
    return any(index < passes for index in lost_passes(blocks))
