"""Slices of known jobs give the known slowdowns, whatever disturbs the machine; disturbances are seen and told."""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.profiling.schedule import block_estimates, log_half_width, mean_slowdown
from interfere.profiling.slices import (
    CLOCKS_KEPT,
    Recording,
    Slice,
    analyse_block,
    slice_plan,
    usual_clock_s,
)
from interfere.profiling.trace import Event, Trace
from interfere.records import BlockRequest, MeasuredBlock
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from tests.profiling.sample_blocks import joined, steady

Clock = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Times → how many times longer the core takes for its work."""

WINDOWS = tuple(
    Slice(running=frozenset(who), start_s=k * 1.0, end_s=(k + 1) * 1.0)
    for k, who in enumerate(({0}, {0, 1}, {1}, {0, 1}))
)


def first_job(shared_step_s: float, *, cpu_frac: float = 0.5) -> Trace:
    """10 ms alone in slice 0; in slices 1 and 3 as given."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(0.0, 1.0, step_s=0.01), steady(1.0, 2.0, **shared), steady(3.0, 4.0, **shared))


def second_job(shared_step_s: float, *, cpu_frac: float = 0.5, until_s: float = 4.0) -> Trace:
    """10 ms alone in slice 2; in slices 1 and 3 as given."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(1.0, 2.0, **shared), steady(2.0, 3.0, step_s=0.01), steady(3.0, until_s, **shared))


def measured_block(recordings: Sequence[Recording], windows: Sequence[Slice], **options: Any) -> MeasuredBlock:
    request = BlockRequest(members=tuple(each.name for each in recordings), pass_index=options.pop("pass_index", 0))
    return analyse_block(request, recordings, windows, started_at_s=0.0, slice_s=SLICE_S, **options)


def analyse(first: Trace, second: Trace, mode: SharingMode = DEFAULT_MODE) -> MeasuredBlock:
    recordings = [Recording(name=name, trace=trace, core=0) for name, trace in (("a", first), ("b", second))]
    return measured_block(recordings, WINDOWS, mode=mode)


def test_slowdowns_of_a_known_block() -> None:
    result = analyse(first_job(0.02), second_job(0.025))
    assert result.reason == ""
    assert [s.slowdown for s in result.sides] == pytest.approx([2.0, 2.5])
    assert [s.workload for s in result.sides] == ["a", "b"]
    assert [s.overlap_frac for s in result.sides] == pytest.approx([1.0, 1.0])
    assert result.steal_frac == pytest.approx(0.0, abs=1e-6)
    assert [side.slices_counted for side in result.sides] == [len(side.slices) for side in result.sides]


def test_longer_shared_steps_never_lower_the_slowdown() -> None:
    measured = [analyse(first_job(step), second_job(0.02)).sides[0].slowdown for step in (0.01, 0.013, 0.02, 0.04)]
    assert measured == sorted(measured)


def test_a_neighbour_that_did_not_run_gives_no_slowdown() -> None:
    assert "of the time" in analyse(first_job(0.02), second_job(0.02, until_s=3.1)).reason
    silent = np.empty((0, 4))
    assert "a: no whole step alone" in analyse(silent, second_job(0.02)).reason
    assert math.isnan(analyse(silent, second_job(0.02)).sides[0].slowdown)
    assert "a: no whole step beside the others" in analyse(first_job(0.8), second_job(0.02)).reason


def test_an_absurd_slowdown_is_refused() -> None:
    assert "out of" in analyse(first_job(0.001), second_job(0.02)).reason


def test_what_third_processes_took_is_subtracted_and_widens_the_interval() -> None:
    # Both want the core all the time. Undisturbed they share it in halves: steps of 20 ms. A third process takes 40 %.
    calm = analyse(first_job(0.02), second_job(0.02))
    robbed = analyse(first_job(0.02 / 0.6, cpu_frac=0.3), second_job(0.02 / 0.6, cpu_frac=0.3))
    assert robbed.reason == ""
    assert [side.slowdown for side in robbed.sides] == pytest.approx([2.0, 2.0], rel=0.02)
    assert robbed.steal_frac == pytest.approx(0.27, abs=0.02), "40 % of two of three seconds"
    assert all(side.log_error > 0.05 for side in robbed.sides)
    assert calm.sides[0].slices[0].taken_s == pytest.approx(0.0, abs=1e-3)


def test_pauses_of_the_job_itself_are_not_taken_time() -> None:
    paused = [steady(k, k + 1.0, step_s=0.01, pause_s=0.006) for k in (0.0, 1.0, 3.0)]
    result = analyse(joined(*paused), joined(*(steady(k, k + 1.0, step_s=0.02, cpu_frac=0.2) for k in (1.0, 2.0, 3.0))))
    assert sum(each.taken_s for each in result.sides[0].slices) == pytest.approx(0.0, abs=1e-3)
    assert result.sides[0].slices[0].paused_s == pytest.approx(0.6 * result.sides[0].slices[0].wall_s, rel=0.02)


def test_a_block_of_three_gives_three_slowdowns() -> None:
    plan = [frozenset(who) for who in ({0}, {0, 1, 2}, {1}, {2}, {0, 1, 2})]
    windows = [Slice(running=who, start_s=k * 1.0, end_s=k + 1.0) for k, who in enumerate(plan)]
    traces = []
    for job, shared_step_s in enumerate((0.03, 0.04, 0.05)):
        runs = [
            steady(
                w.start_s, w.end_s, step_s=0.01 if len(w.running) == 1 else shared_step_s, cpu_frac=1 / len(w.running)
            )
            for w in windows
            if job in w.running
        ]
        traces.append(joined(*runs))
    recordings = [Recording(name=name, trace=trace, core=0) for name, trace in zip("abc", traces, strict=True)]
    result = measured_block(recordings, windows)
    assert [s.slowdown for s in result.sides] == pytest.approx([3.0, 4.0, 5.0])
    assert result.reason == ""


def test_in_mode_priority_only_the_important_job_must_make_its_steps() -> None:
    waits = joined(steady(2.0, 3.0, step_s=0.01))  # it got nothing in the shared slices, not even its start
    important = joined(*(steady(start_s, start_s + 1.0, step_s=0.01) for start_s in (0.0, 1.0, 3.0)))
    measured = analyse(important, waits, mode=SharingMode.PRIORITY)
    assert measured.reason == ""
    assert measured.sides[0].slowdown == pytest.approx(1.0)
    assert math.isnan(measured.sides[1].slowdown)
    assert analyse(important, waits).reason


def test_a_plan_holds_each_job_alone_and_all_together_twice_a_round() -> None:
    plan = slice_plan(3, 4, np.random.default_rng(0))
    assert [sorted(map(sorted, each)) for each in plan] == [[[0], [0, 1, 2], [0, 1, 2], [1], [2]]] * 4
    assert len(set(map(tuple, plan))) > 1, "in another order each time"


# The laws of a disturbed machine, on simulated jobs: (seconds of work, seconds of pause, shares of the core together).
JOBS = ((0.003, 0.0), (0.010, 0.0), (0.002, 0.004), (0.012, 0.006))
PAIRS = tuple((a, b) for a in range(len(JOBS)) for b in range(a, len(JOBS)))
SLICE_S, SPIN_S, GRID_S = 0.12, 0.02, 0.0005


class SimulatedCore:
    """Cores whose common clock follows a function of time; jobs slow each other by a known factor, in the caches."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.times_s = np.arange(0.0, seconds, GRID_S)
        self.clock = clock(self.times_s)
        self.work_s = np.concatenate([[0.0], np.cumsum(GRID_S / self.clock)[:-1]])  # done since 0 by a busy core
        self.clocks_s: list[float] = []
        self.now_s = 0.0

    def spin_s(self) -> float:
        self.clocks_s.append(1e-5 * float(np.interp(self.now_s, self.times_s, self.clock)))
        return self.clocks_s[-1]

    def run_job(self, work_s: float, pause_s: float, stretch: float, end_s: float) -> Trace:
        """The trace of one job in a slice that begins now; its work takes `stretch` times longer beside others."""
        now_s, cpu_s, steps = self.now_s, 0.0, 0.0
        rows = [(now_s, 0.0, 0.0, float(Event.START))]
        while now_s < end_s:
            done_s = float(np.interp(now_s, self.times_s, self.work_s)) + work_s * stretch
            worked_s = float(np.interp(done_s, self.work_s, self.times_s))
            cpu_s += worked_s - now_s
            rows += [
                (worked_s, cpu_s, steps, float(Event.PAUSE)),
                (worked_s + pause_s, cpu_s, steps, float(Event.RESUME)),
            ]
            now_s, steps = worked_s + pause_s, steps + 1
            rows.append((now_s, cpu_s, steps, float(Event.STEP)))
        rows.append((now_s, cpu_s, steps, float(Event.STOP)))
        return np.array(rows)

    def block(self, pair: tuple[int, int], pass_index: int) -> MeasuredBlock:
        names, stretches = tuple(f"job-{k}" for k in pair), (1.6 + 0.1 * pair[1], 1.3 + 0.2 * pair[0])
        traces: list[list[Trace]] = [[], []]
        windows = []
        before_s = self.spin_s()
        for running in chain(*slice_plan(2, 4, np.random.default_rng((pass_index, *pair)))):
            end_s = self.now_s + SLICE_S
            runs = {k: self.run_job(*JOBS[pair[k]], stretches[k] if len(running) == 2 else 1.0, end_s) for k in running}
            for k, trace in runs.items():
                traces[k].append(trace)
            start_s, self.now_s = self.now_s, max(trace[-1, 0] for trace in runs.values()) + SPIN_S
            before_s, after_s = self.spin_s(), before_s
            windows.append(Slice(running=running, start_s=start_s, end_s=end_s, clocks=((after_s, before_s),) * 2))
        usual_s = usual_clock_s(self.clocks_s[-CLOCKS_KEPT:])
        return measured_block(
            [
                Recording(name=name, trace=joined(*runs), core=k)
                for k, (name, runs) in enumerate(zip(names, traces, strict=True))
            ],
            windows,
            usual_clocks_s=(usual_s, usual_s),
            pass_index=pass_index,
        )


def measured_slowdowns(clock: Clock) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Slowdown and half-width of every job of every pair, of two passes on a core with this clock."""
    core = SimulatedCore(clock, seconds=120.0)
    blocks: dict[tuple[int, int], list[MeasuredBlock]] = {pair: [] for pair in PAIRS}
    for pass_index in range(2):
        for pair in PAIRS:
            blocks[pair].append(core.block(pair, pass_index))
    found = {}
    for pair, of_pair in blocks.items():
        assert all(block.accepted for block in of_pair)
        for k in range(2):
            estimates = block_estimates(of_pair, (k,))
            found[(*pair, k)] = mean_slowdown(estimates), log_half_width(estimates)
    return found


def contamination(seed: int) -> Clock:
    """A tenth of the time the core takes 1.7 times as long, in bursts of .1 s to some seconds."""
    rng = np.random.default_rng(seed)

    def clock(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        factors = np.ones(len(times_s))
        while (factors > 1).mean() < 0.1:
            start_s, length_s = rng.uniform(0, times_s[-1]), 0.1 * 20 ** rng.uniform()
            factors[(times_s >= start_s) & (times_s < start_s + length_s)] = 1.7
        return factors

    return clock


def drift(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """From -15 % to +15 % within 10 s, and back."""
    return np.asarray(0.85 + 0.3 * np.abs((times_s / 10.0) % 2.0 - 1.0))


def calm(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones(len(times_s))


@pytest.mark.parametrize("clock", [*(contamination(seed) for seed in range(5)), drift])
def test_contamination_and_drift_move_no_slowdown_by_more_than_one_per_cent(clock: Clock) -> None:
    undisturbed, disturbed = measured_slowdowns(calm), measured_slowdowns(clock)
    moved = {key: disturbed[key][0] / undisturbed[key][0] - 1 for key in undisturbed}
    worst = max(moved, key=lambda key: abs(moved[key]))
    assert abs(moved[worst]) < 0.01, (worst, moved[worst])


def test_on_a_calm_core_intervals_are_narrow() -> None:
    assert all(half_width < 0.05 for _, half_width in measured_slowdowns(calm).values())


def test_a_slice_in_which_a_burst_lay_between_two_spins_is_dropped() -> None:
    runs = [steady(k, k + 1.0, step_s=0.01 if k != 2.0 else 0.013) for k in (0.0, 1.0, 2.0, 3.0)]
    beside = [steady(k, k + 1.0, step_s=0.02, cpu_frac=0.5) for k in (4.0, 5.0)]
    windows = [Slice(running=frozenset({0}), start_s=k, end_s=k + 1.0) for k in (0.0, 1.0, 2.0, 3.0)]
    windows += [Slice(running=frozenset({0, 1}), start_s=k, end_s=k + 1.0) for k in (4.0, 5.0)]
    windows.append(Slice(running=frozenset({1}), start_s=6.0, end_s=7.0))
    recordings = [
        Recording(name="a", trace=joined(*runs, *beside), core=0),
        Recording(name="b", trace=joined(*beside, steady(6.0, 7.0, step_s=0.01)), core=0),
    ]
    side = measured_block(recordings, windows).sides[0]
    assert side.slowdown == pytest.approx(2.0)
    assert (len(side.slices), side.slices_counted) == (6, 5)


def recorded_run(
    name: str, begin: float, end: float, *, step_s: float, shared_step_s: float, busy: float, core_busy: float
) -> Recording:
    """A sampled command whose steps take longer from 7 s to 12.5 s; it and a third process keep the core busy."""
    times, now = [begin], begin
    while now < end:
        now += shared_step_s if 7.0 <= now < 12.5 else step_s
        times.append(now)
    events = [(t, np.nan, float(k), float(Event.STEP if k else Event.START)) for k, t in enumerate(times)]
    events.append((end, np.nan, float(len(times) - 1), float(Event.STOP)))
    sampled_at_s = np.arange(0.0, 20.0, 0.1)
    ran_s = np.clip(sampled_at_s, begin, end) - begin
    samples = np.column_stack([sampled_at_s, busy * ran_s, (1 - busy) * ran_s, core_busy * sampled_at_s])
    return Recording(name=name, trace=np.array(events), core=0, samples=samples)


def command_slices() -> Sequence[Slice]:
    """A alone from 2 s, both from 8 s, B alone from 14 s, each for 4 s in slices of half a second."""
    return [
        Slice(running=frozenset(who), start_s=start_s + k / 2, end_s=start_s + (k + 1) / 2)
        for who, start_s in (({0}, 2.0), ({0, 1}, 8.0), ({1}, 14.0))
        for k in range(8)
    ]


def test_sampled_commands_give_both_slowdowns_and_what_others_took() -> None:
    first = recorded_run("one", 0.0, 13.0, step_s=0.05, shared_step_s=0.075, busy=0.5, core_busy=1.0)
    second = recorded_run("other", 6.0, 19.0, step_s=0.02, shared_step_s=0.05, busy=0.5, core_busy=1.0)
    unpinned = [Recording(name=run.name, trace=run.trace, core=None, samples=run.samples) for run in (first, second)]
    analysis = measured_block(unpinned, command_slices())
    assert analysis.reason == ""
    assert [side.slowdown for side in analysis.sides] == pytest.approx([1.5, 2.5], rel=0.01)
    assert math.isnan(analysis.steal_frac)
    pinned = measured_block([first, second], command_slices())
    taken = [(each.alone, each.taken_s / each.wall_s) for each in pinned.sides[0].slices]
    assert [share for alone, share in taken if alone] == pytest.approx([0.5] * 8, abs=0.01)
    assert [share for alone, share in taken if not alone] == pytest.approx([0.0] * 8, abs=0.01), "0.5 + 0.5 of the core"
    assert pinned.sides[0].slowdown == pytest.approx(3.0, rel=0.03), "alone it had half of the core"
    assert pinned.sides[0].log_error > 0.05
