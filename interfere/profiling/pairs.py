"""Pairs of a campaign: which block comes next, one block measured, and blocks turned into rows.

Laws: the plan is a pure function of the seed and of the blocks measured so far, so a resumed campaign continues as it
would have gone on; a refused block is repeated at the end of its pass, twice at most. A pair whose block of a wanted
pass was refused every time is unstable; one that lost only a block beyond those keeps what it has and gets no more.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from interfere.data.quality import block_slowdowns
from interfere.profiling.fleet import Fleet
from interfere.profiling.protocol import (
    EDGE_S,
    LONGER_REMEDY,
    MIN_STEPS,
    RETRIES,
    Window,
    estimate,
    geometric_mean,
    half_width_log,
    is_settled,
)
from interfere.profiling.raw import Block, Chunk
from interfere.profiling.trace import chunks
from interfere.records import NAN, PairMeasurement, PairStatus

Pair = tuple[str, str]
SETTLED_STEPS = MIN_STEPS + 3  # of the slower job alone, in one window: its shared windows then hold enough at 2 ×


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which pairs, how often. `passes` blocks always, up to `max_blocks` until the interval is narrow."""

    pairs: tuple[Pair, ...]
    passes: int
    max_blocks: int
    seed: int


def all_pairs(workloads: Sequence[str]) -> tuple[Pair, ...]:
    """Every unordered pair, self pairs included."""
    return tuple(combinations_with_replacement(workloads, 2))


def series(blocks: Sequence[Block]) -> tuple[tuple[float, ...], ...]:
    """Slowdowns per block of each side of a pair, sides by name; a self pair has one series, its sides averaged."""
    passed = [block for block in blocks if not block.reason]
    names = sorted({side.workload for block in passed for side in block.sides})
    return tuple(
        tuple(geometric_mean([s.slowdown for s in block.sides if s.workload == name]) for block in passed)
        for name in names
    )


def next_attempt(plan: Plan, blocks: Sequence[Block], pass_index: int) -> int | None:
    """Attempt number of the block that a pair still needs in a pass; None when it needs none."""
    if pass_index >= plan.max_blocks or lost_passes(blocks):
        return None
    tried = [block for block in blocks if block.pass_index == pass_index]
    if any(not block.reason for block in tried):
        return None
    if not tried and pass_index >= plan.passes and is_settled(series(blocks)):
        return None
    return len(tried)


def lost_passes(blocks: Sequence[Block]) -> tuple[int, ...]:
    """Passes in which the block of a pair failed every one of its attempts."""
    failed = [block.pass_index for block in blocks if block.reason]
    return tuple(sorted(index for index in set(failed) if failed.count(index) > RETRIES))


def is_unstable(blocks: Sequence[Block], passes: int) -> bool:
    """Whether a block that every pair must have was lost."""
    return any(index < passes for index in lost_passes(blocks))


def order(plan: Plan, pass_index: int) -> list[Pair]:
    """The pairs of a pass in random order; roles A and B swap from pass to pass."""
    shuffled = np.random.default_rng((plan.seed, pass_index)).permutation(len(plan.pairs))
    pairs = [plan.pairs[k] for k in shuffled]
    return [(second, first) for first, second in pairs] if pass_index % 2 else pairs


def todo(plan: Plan, blocks: dict[frozenset[str], list[Block]]) -> Iterator[tuple[Pair, int, int]]:
    """(pair, pass, attempt) one after the other; `blocks` is read anew each time, so append what was measured."""
    for pass_index in range(plan.max_blocks):
        for _ in range(1 + RETRIES):
            for pair in order(plan, pass_index):
                attempt = next_attempt(plan, blocks.get(frozenset(pair), []), pass_index)
                if attempt is not None:
                    yield pair, pass_index, attempt


def stretch(blocks: Sequence[Block]) -> float:
    """How much longer the next block of a pair is: half as much again for each one that held too few steps."""
    return 1.0 + 0.5 * sum(LONGER_REMEDY in block.reason for block in blocks)


def blocks_left(plan: Plan, blocks: dict[frozenset[str], list[Block]]) -> int:
    """Blocks still to come: certain ones, plus those that pairs not settled yet may take."""
    left = 0
    for pair in plan.pairs:
        known = blocks.get(frozenset(pair), [])
        passed = [block for block in known if not block.reason]
        if lost_passes(known):
            continue
        wanted = plan.passes
        if len(passed) >= 2 and not is_settled(series(known)):
            wanted = plan.max_blocks
        left += max(0, wanted - len(passed))
    return left


def measure_block(
    fleet: Fleet,
    pair: Pair,
    *,
    pass_index: int,
    attempt: int,
    window_s: float,
    step_s: float,
    stretch: float,
    now_s: float,
) -> Block:
    """Run one block. Windows grow with the slower job's step alone; `stretch` lengthens them after too few steps."""
    length = max(window_s, EDGE_S + SETTLED_STEPS * step_s) * stretch
    traces, windows, drift = fleet.run_block(*pair, length)
    read = estimate(pair, traces, windows, drift)
    kept = kept_chunks(traces, windows)
    return Block(
        pass_index=pass_index,
        attempt=attempt,
        started_at_s=now_s,
        window_s=length,
        sides=read.sides,
        steal_frac=read.steal_frac,
        drift_frac=read.drift_frac,
        reason=read.reason,
        chunks=kept,
    )


def kept_chunks(
    traces: Sequence[NDArray[np.float64]], windows: Sequence[Window]
) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """The chunks of both sides of a block, as its raw line keeps them."""
    begin, kept = windows[0].start_s, []
    for trace in traces:
        rows: list[Chunk] = []
        for k, window in enumerate(windows):
            for start, wall, cpu, steps in chunks(trace, window.start_s, window.end_s):
                rows.append((float(k), round(start - begin, 6), round(wall, 6), round(cpu, 6), float(steps)))
        kept.append(tuple(rows))
    return kept[0], kept[1]


def rows(
    blocks: Sequence[Block],
    *,
    passes: int,
    device_type: str,
    device_name: str,
    campaign: str,
    source: str,
    mode: str = "timeslice",
) -> tuple[PairMeasurement, ...]:
    """The one or two rows of an unordered pair from its blocks."""
    passed = [block for block in blocks if not block.reason]
    unstable = is_unstable(blocks, passes) or not passed
    reason = next((block.reason for block in reversed(blocks) if block.reason), "") if unstable else ""
    names = [side.workload for side in blocks[0].sides]
    measured = []
    for victim, neighbour in dict.fromkeys(((names[0], names[1]), (names[1], names[0]))):
        sides = [side for block in passed for side in block.sides if side.workload == victim]
        values = tuple(side.slowdown for side in sides)
        row = PairMeasurement(
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            passes=values,
            status=PairStatus.UNSTABLE if unstable else PairStatus.OK,
            slowdown=NAN if unstable else geometric_mean(values),
            reason=reason,
            overlap_frac=min(1.0, sum(s.overlap_frac for s in sides) / len(sides)) if sides else NAN,
            steal_frac=sum(b.steal_frac for b in passed) / len(passed) if passed else NAN,
            source=source,
            campaign=campaign,
            device_name=device_name,
            measured_at_s=max(block.started_at_s for block in blocks),
        )
        measured.append(row if unstable else _with_interval(row))
    return tuple(measured)


def _with_interval(row: PairMeasurement) -> PairMeasurement:
    half = half_width_log(block_slowdowns(row))
    if not math.isfinite(half):
        return row
    return replace(row, lower=row.slowdown * math.exp(-half), upper=row.slowdown * math.exp(half))
