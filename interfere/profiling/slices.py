"""Computes slowdowns from short slices in which jobs ran alone and together: no clock and no process.

A block consists of slices of .1 to .3 s, some with one job alone, some with all jobs, in random order. For each job

    slowdown = (wall time / steps, beside the others) ÷ (wall time / steps, alone),

both over whole steps and over the slices that count. Three things disturb a slice, and each is known:

1. Third processes on the core: what they took of the job's waiting is subtracted from the wall time.
2. The clock of the core (its frequency, or somebody else on the sibling thread): a fixed piece of work beside each
   slice measures it, and the time in which the core worked is divided by it.
3. A burst between two such measurements: its slice stands out from the others of its kind.

Slices that are more disturbed than the others are dropped. What had to be corrected in the slices that count is not
known exactly, so a share of the correction becomes part of the standard error: a disturbed measurement has a wide
interval, and only one whose ratio has no meaning (a job did not run) is rejected.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.profiling.trace import (
    Requests,
    StepSpan,
    Trace,
    busy_intervals,
    covered_s,
    cpu_time_s,
    first_start_s,
    latencies_s,
    running_intervals,
    token_times_s,
    whole_steps,
)
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    BlockRequest,
    BlockSide,
    MeasuredBlock,
    SideSlice,
)
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

EDGE_S = 0.015  # cut from the start of each slice: caches refill after jobs were started or stopped
SLICE_S = 0.12  # of a job alone; bursts of contamination last .1 s to some seconds
MIN_SLICE_STEPS = 3  # of every job in a slice: one is cut at its start, two are left
MIN_OVERLAP = 0.95  # below it a job did not run beside the other
TOLERATED = 0.01  # doubt of a slice that always counts
LIKE_THE_OTHERS = 1.25  # times the lower quartile of the doubts: where every slice is disturbed, most still count
OUTLIER_SD, MIN_OUTLIER = 3.0, 0.03  # robust standard deviations above the median, and at least this share of it
MAD_TO_SD = 1.4826  # of a normal distribution
MIN_SLICE_SD = 0.005  # of the log step time of a slice; two equal slices prove no precision
SINGLE_SLICE_SD = 0.1  # of a single one: nothing is known
CLOCKS_KEPT = 200  # newest measurements of a core's clock, from which its usual clock is computed
# Of each correction. Eight workloads while others took 75 to 86 % of the core (log corrections of 1.2 to 1.6): against
# the shipped table, log slowdowns of 36 sides of single blocks were off by .15 (root mean square), a tenth of it.
CORRECTION_ERROR = 0.12
WARN_STEAL = 0.03  # share of the core; worth a warning
TIME, CPU, WAIT, CORE_BUSY = range(4)  # columns of Recording.samples
NO_REQUESTS: Requests = np.empty((0, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One slice of a block: the jobs that ran, and its start and end on the controller's monotonic clock."""

    running: frozenset[int]  # positions in the group of the jobs whose loops run
    start_s: float
    end_s: float
    # Of each job's core, of a gang the slowest one: CPU seconds of a fixed piece of work before and after the slice.
    # Empty: not measured.
    clocks: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The recording of one job over a block; of a gang, that of its first rank, which holds those of the others.

    A resident workload's trace holds CPU times and pauses. Of a command, both come from `samples`, float64[s, 4]:
    monotonic seconds; CPU seconds and seconds of waiting for the core, of all its processes; busy seconds of the core.
    """

    name: str
    trace: Trace
    core: int | None  # None: no CPU core, so its accounting describes nothing
    samples: NDArray[np.float64] | None = None
    requests: Requests | None = None  # that a service answered
    further_ranks: "tuple[Recording, ...]" = ()

    @property
    def ranks(self) -> "tuple[Recording, ...]":
        """The recordings of all ranks of the job, one for each core that it runs on."""
        return (self, *self.further_ranks)

    def sampled(self, column: int, start_s: float, end_s: float) -> float:
        """Return the growth of a column of the samples in a time span, interpolated linearly; NaN without samples."""
        if self.samples is None or not len(self.samples):
            return NAN
        return float(np.diff(np.interp((start_s, end_s), self.samples[:, TIME], self.samples[:, column]))[0])

    def used_s(self, start_s: float, end_s: float) -> float:
        """Return the CPU seconds that the job used in a time span."""
        if self.samples is None:
            return cpu_time_s(self.trace, start_s, end_s)
        return self.sampled(CPU, start_s, end_s)


def slice_plan(size: int, rounds: int, rng: np.random.Generator) -> list[list[frozenset[int]]]:
    """Return the set of running jobs for each slice of each round.

    A round runs every job alone once and all jobs together twice, in random order.
    """
    windows = [*(frozenset({k}) for k in range(size)), frozenset(range(size)), frozenset(range(size))]
    return [[windows[k] for k in rng.permutation(len(windows))] for _ in range(rounds)]


def side_slices(
    k: int, recordings: Sequence[Recording], windows: Sequence[Slice], mode: SharingMode = DEFAULT_MODE
) -> list[SideSlice]:
    """Return the measurement of the `k`-th job in each slice in which it finished at least one whole step."""
    start_s = windows[0].start_s
    slices = [_side_slice(k, recordings, window, start_s, mode) for window in windows if k in window.running]
    return [each for each in slices if each is not None]


def _side_slice(
    k: int, recordings: Sequence[Recording], window: Slice, block_start_s: float, mode: SharingMode
) -> SideSlice | None:
    """Return the measurement of the `k`-th job in one slice; None where it finished no whole step."""
    own = recordings[k]
    others = [recordings[j] for j in sorted(window.running - {k})]
    start_s = window.start_s + EDGE_S
    if not mode.properties.orders_jobs:  # there a job may wait through a whole slice: that is the effect to be measured
        start_s = max(start_s, *(first_start_s(other.trace, window.start_s, window.end_s) for other in others), 0.0)
    span = whole_steps(own.trace, start_s, window.end_s)
    if span is None:
        return None
    overlaps = [covered_s(running_intervals(other.trace), span.start_s, span.end_s) for other in others]
    neighbours = [rank for other in others for rank in other.ranks]
    uses = [_core_use(rank, [other for other in neighbours if other.core == rank.core], span) for rank in own.ranks]
    cpu_s, paused_s, _ = uses[0]
    taken_s = max(taken_s for _, _, taken_s in uses)  # the ranks of a gang wait for the one that lost most
    requests = NO_REQUESTS if own.requests is None else own.requests
    ttft, tpot = token_times_s(requests, start_s, window.end_s)
    latencies = latencies_s(requests, start_s, window.end_s)
    before, after = window.clocks[k] if window.clocks else (NAN, NAN)
    return SideSlice(
        alone=not others,
        start_s=round(window.start_s - block_start_s, 6),
        steps=span.steps,
        wall_s=round(span.wall_s, 6),
        paused_s=round(paused_s, 6),
        cpu_s=round(cpu_s, 6),
        taken_s=round(taken_s, 6),
        clock_before=before,
        clock_after=after,
        overlap_s=round(min(overlaps, default=span.wall_s), 6),
        latencies_s=tuple(latencies.round(6).tolist()),
        ttft_s=tuple(ttft.round(6).tolist()),
        tpot_s=tuple(tpot.round(6).tolist()),
    )


def _core_use(own: Recording, sharing: Sequence[Recording], span: StepSpan) -> tuple[float, float, float]:
    """Return the job's CPU seconds, the seconds of its own pauses, and the seconds of waiting that third processes
    caused.

    The waiting is divided between the neighbours on the core and third processes in proportion to their CPU time.
    """
    if own.core is None:
        return NAN, 0.0, 0.0
    start_s, end_s = span.start_s, span.end_s
    cpu_s = own.used_s(start_s, end_s)
    shared_s = sum(other.used_s(start_s, end_s) for other in sharing)
    if own.samples is None:
        waiting_s = max(0.0, covered_s(busy_intervals(own.trace), start_s, end_s) - cpu_s)
        wanted = np.concatenate([busy_intervals(each.trace) for each in (own, *sharing)])
        third_s = max(0.0, covered_s(wanted, start_s, end_s) - cpu_s - shared_s)
    else:
        waiting_s = min(own.sampled(WAIT, start_s, end_s), max(0.0, span.wall_s - cpu_s))
        third_s = max(0.0, own.sampled(CORE_BUSY, start_s, end_s) - cpu_s - shared_s)
    if math.isnan(cpu_s + shared_s + waiting_s + third_s):
        return cpu_s, 0.0, 0.0
    taken_s = min(third_s, waiting_s * third_s / (third_s + shared_s)) if third_s > 0 else 0.0
    return cpu_s, max(0.0, span.wall_s - cpu_s - waiting_s), taken_s


def usual_clock_s(clocks_s: Collection[float]) -> float:
    """Return the usual time of the fixed piece of work on a core: the median of the newest measurements.

    NaN for no measurements.
    """
    return float(np.median(list(clocks_s))) if clocks_s else NAN


def clock_factor(clock_s: float, usual_s: float) -> float:
    """Return how many times longer than usual the core takes for the same work; 1 where that is unknown."""
    factor = clock_s / usual_s
    return factor if factor > 0 else 1.0


def undisturbed_s(each: SideSlice, usual_clock_s: float) -> float:
    """Return the wall time of a slice at the usual clock of the core, without the time that third processes took.

    The job's own pauses do not depend on the clock, and the steps of a service are as long as their arrivals take: a
    disturbance shortens the pauses between them.
    """
    if each.latencies_s:
        return each.wall_s
    return _undisturbed_s(each, clock_factor((each.clock_before + each.clock_after) / 2, usual_clock_s))


def doubt(each: SideSlice, usual_clock_s: float) -> float:
    """Return the standard error of the logarithm of the corrected wall time.

    It is a share of the correction, plus the ambiguity of the clock. Where the clock before and after the slice differ,
    the moment of the change is unknown.
    """
    clocks_s = (each.clock_before, each.clock_after, (each.clock_before + each.clock_after) / 2)
    first, last, middle = (
        math.log(each.wall_s / _undisturbed_s(each, clock_factor(clock_s, usual_clock_s))) for clock_s in clocks_s
    )
    return CORRECTION_ERROR * abs(middle) + abs(first - last) / 2


def _undisturbed_s(each: SideSlice, factor: float) -> float:
    working_s = max(0.0, each.wall_s - each.paused_s - each.taken_s)
    return max(each.paused_s + working_s / factor, 1e-9)


def countable(slices: Sequence[SideSlice], usual_clock_s: float) -> list[SideSlice]:
    """Return the valid slices of a kind (alone, or with neighbours): the least disturbed slices, without outliers."""
    if not slices:
        return []
    # 1. Drop slices that are more disturbed than the others.
    doubts = np.array([doubt(each, usual_clock_s) for each in slices])
    limit = max(TOLERATED, LIKE_THE_OTHERS * float(np.quantile(doubts, 0.25)))
    calm = [each for each, its_doubt in zip(slices, doubts, strict=True) if its_doubt <= limit]
    # 2. Drop those in which a burst lay between two measurements of the clock.
    step_times = np.array([undisturbed_s(each, usual_clock_s) / each.steps for each in calm])
    median = float(np.median(step_times))
    robust_sd = MAD_TO_SD * float(np.median(np.abs(step_times - median)))
    highest = median + max(MIN_OUTLIER * median, OUTLIER_SD * robust_sd)
    return [each for each, step_time in zip(calm, step_times, strict=True) if step_time <= highest]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSlices:
    """Sums over the valid slices of one kind (alone, or with neighbours)."""

    steps: int
    wall_s: float  # undisturbed
    cpu_s: float
    step_time_sd_s: float  # between slices; NaN below two
    log_error: float  # standard error of the logarithm of the mean step time
    kept: tuple[SideSlice, ...] = ()


def count_slices(slices: Sequence[SideSlice], usual_clock_s: float) -> CountedSlices:
    """Return the number and the sums of the valid slices among slices of one kind (alone, or with neighbours)."""
    kept = countable(slices, usual_clock_s)
    walls_s = np.array([undisturbed_s(each, usual_clock_s) for each in kept])
    steps = np.array([each.steps for each in kept])
    if not kept:
        return CountedSlices(steps=0, wall_s=0.0, cpu_s=0.0, step_time_sd_s=NAN, log_error=math.inf)
    step_times_s = walls_s / steps
    log_sd = max(MIN_SLICE_SD, float(np.std(np.log(step_times_s), ddof=1))) if len(kept) > 1 else SINGLE_SLICE_SD
    # Slices with more steps weigh more, so fewer than all of them carry the mean (Kish's effective sample size).
    effective = float(steps.sum()) ** 2 / float((steps**2).sum())
    correction = float(np.mean([doubt(each, usual_clock_s) for each in kept]))
    return CountedSlices(
        steps=int(steps.sum()),
        wall_s=float(walls_s.sum()),
        cpu_s=sum(each.cpu_s for each in kept),
        step_time_sd_s=float(np.std(step_times_s, ddof=1)) if len(kept) > 1 else NAN,
        log_error=math.hypot(log_sd / math.sqrt(effective), correction),
        kept=tuple(kept),
    )


def block_side(name: str, slices: Sequence[SideSlice], usual_clock_s: float) -> BlockSide:
    """Return the measurement of one job in one block, from its slices alone and together with its neighbours."""
    alone = count_slices([each for each in slices if each.alone], usual_clock_s)
    shared_slices = [each for each in slices if not each.alone]
    shared = count_slices(shared_slices, usual_clock_s)
    kept = (*alone.kept, *shared.kept)
    ran_s = sum(each.wall_s for each in shared_slices)
    return BlockSide(
        workload=name,
        steps_alone=alone.steps,
        wall_alone_s=alone.wall_s,
        cpu_alone_s=alone.cpu_s,
        steps_shared=shared.steps,
        wall_shared_s=shared.wall_s,
        cpu_shared_s=shared.cpu_s,
        slices_counted=len(kept),
        log_error=math.hypot(alone.log_error, shared.log_error),
        overlap_frac=sum(each.overlap_s for each in shared_slices) / ran_s if ran_s else 0.0,
        slices=tuple(replace(each, counted=any(each is other for other in kept)) for each in slices),
    )


def analyse_block(
    request: BlockRequest,
    recordings: Sequence[Recording],
    windows: Sequence[Slice],
    *,
    started_at_s: float,
    slice_s: float,
    usual_clocks_s: Sequence[float] = (),
    mode: SharingMode = DEFAULT_MODE,
) -> MeasuredBlock:
    """Return the block that answers a request: the slowdowns of its jobs, from their recordings.

    `usual_clocks_s` holds the usual seconds of the fixed piece of work on each job's core.
    """
    usual_clocks_s = usual_clocks_s or (NAN,) * len(recordings)
    sides = []
    for k, recording in enumerate(recordings):
        slices = side_slices(k, recordings, windows, mode)
        sides.append(block_side(recording.name, slices, usual_clocks_s[k]))
    clocks_s = np.array([clocks for window in windows for clocks in window.clocks]).reshape(-1)
    return MeasuredBlock(
        pass_index=request.pass_index,
        attempt=request.attempt,
        started_at_s=started_at_s,
        window_s=slice_s,
        sides=tuple(sides),
        steal_frac=max(steal_frac(side.slices) for side in sides) if recordings[0].core is not None else NAN,
        drift_frac=float(clocks_s.max() / clocks_s.min() - 1) if clocks_s.size else NAN,
        reason=rejection(sides, mode),
        mode=mode,
    )


def failed_block(request: BlockRequest, reason: str, *, started_at_s: float, slice_s: float) -> MeasuredBlock:
    """Return a block that was broken off for a reason, without slowdowns."""
    return MeasuredBlock(
        pass_index=request.pass_index,
        attempt=request.attempt,
        started_at_s=started_at_s,
        window_s=slice_s,
        sides=tuple(block_side(name, (), NAN) for name in request.members),
        steal_frac=NAN,
        drift_frac=NAN,
        reason=reason,
    )


def steal_frac(slices: Sequence[SideSlice]) -> float:
    """Return the share of the time of slices that third processes took from a job; 0 for no slices."""
    taken_s, wall_s = sum(each.taken_s for each in slices), sum(each.wall_s for each in slices)
    return min(1.0, taken_s / wall_s) if wall_s else 0.0


def rejection(sides: Sequence[BlockSide], mode: SharingMode = DEFAULT_MODE) -> str:
    """Return the reason why the slowdowns of a block are invalid; empty where they are valid.

    In mode `priority`, only the important job, the first, must have finished its steps. The other job may wait all the
    time: this is the effect to measure, and its own row states that it has no slowdown.
    """
    for side in sides[:1] if mode.properties.orders_jobs else sides:
        if not (side.steps_alone and side.steps_shared):
            return f"{side.workload}: no whole step {'beside the others' if side.steps_alone else 'alone'} in any slice"
        if not mode.properties.orders_jobs and side.overlap_frac < MIN_OVERLAP:
            return f"{side.workload}: the other ran {side.overlap_frac:.0%} of the time, {MIN_OVERLAP:.0%} needed"
        if not MIN_SLOWDOWN <= side.slowdown <= MAX_SLOWDOWN:
            return f"{side.workload}: slowdown {side.slowdown:.3g} is out of [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
    return ""
