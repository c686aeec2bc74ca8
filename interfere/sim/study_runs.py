"""The runs of a study: every scheduler on every trace, with progress and the time left.

An interrupt keeps what is done: the runs of all traces that every scheduler has been replayed on.
Law: the runs that are returned are the same schedulers on each trace.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interfere.sim.cluster import Scheduler, Truth
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.names import parse_name
from interfere.sim.score import Score, score
from interfere.sim.trace_worlds import has_ties, redraw_days, scale_to_load, shuffle_ties
from interfere.sim.world import World

REPORT_EVERY_S = 10.0  # within one replay

Make = Callable[[str], Scheduler]
"""Name of a scheduler -> a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scheduler on one trace."""

    policy: str
    world: str
    draw: int  # 0: as recorded
    tie: int  # 0: jobs of one second in the order of the trace; else the number of the order drawn
    load: float  # offered, before edge devices are added or taken away
    score: Score
    seconds: float  # that the replay took
    replayed: Replayed | None  # of draw 0, in the order of the trace


class Place(NamedTuple):
    """Which trace of a study a run is on."""

    world: str
    draw: int
    tie: int
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlan:
    """The traces that schedulers are replayed on; see `study`."""

    worlds: Sequence[World]
    draws: int
    tie_draws: int
    load: float | None
    prepare: Callable[[World], World] | None
    seed: int

    def traces(self) -> Iterator[list[tuple[Place, World]]]:
        """The recorded trace of each world with its orders of ties, then each redraw: one list each."""
        for world in self.worlds:
            for draw in range(self.draws + 1):
                drawn = draw_trace(world, draw, self.load, self.seed)
                prepared = self.prepare(drawn) if self.prepare is not None else drawn
                orders = [prepared]
                if draw == 0 and has_ties(prepared):
                    ties = range(1, self.tie_draws + 1)
                    orders += [shuffle_ties(prepared, self.seed * 1000 + tie) for tie in ties]
                yield [(Place(world.name, draw, tie, drawn.load), trace) for tie, trace in enumerate(orders)]

    def count(self) -> int:
        """Number of traces, orders of ties included."""
        return sum(self.draws + 1 + (self.tie_draws if has_ties(world) else 0) for world in self.worlds)


def draw_trace(world: World, draw: int, load: float | None, seed: int) -> World:
    """One trace of a world: as recorded for draw 0, else of redrawn days; stretched to the load where one is given."""
    drawn = world if draw == 0 else redraw_days(world, seed * 1000 + draw)
    return drawn if load is None else scale_to_load(drawn, load)


def run_all(
    plan: TracePlan,
    truth: Truth,
    names: Sequence[str],
    make: Make,
    cap: float,
    report: Callable[[str], None] | None = None,
) -> tuple[list[Run], bool]:
    """The runs, and whether an interrupt ended them early. Raises KeyboardInterrupt where no trace was done by then."""
    runs: list[Run] = []
    progress = _Progress(plan.count() * len(names), report)
    for same_trace in plan.traces():
        finished = len(runs)
        try:
            for name in names:
                for place, trace in same_trace:
                    runs.append(_run(name, make(name), trace, truth, cap, place, progress))
                    progress.ended(runs[-1], plan.draws)
        except KeyboardInterrupt:
            if not finished:
                raise
            return runs[:finished], True
    return runs, False


def _run(
    name: str, scheduler: Scheduler, trace: World, truth: Truth, cap: float, place: Place, progress: "_Progress"
) -> Run:
    started_s = time.perf_counter()
    replayed = replay(
        trace,
        truth,
        scheduler,
        seats=parse_name(name).seats,
        report=lambda over, jobs: progress.within(name, place, over, jobs),
    )
    seconds = time.perf_counter() - started_s
    return Run(
        policy=name,
        world=place.world,
        draw=place.draw,
        tie=place.tie,
        load=place.load,
        score=score([replayed], cap),
        seconds=seconds,
        replayed=replayed if place.draw == place.tie == 0 else None,
    )


class _Progress:
    """Tells what was replayed and about how long the rest takes, at the mean time of the replays so far."""

    def __init__(self, total: int, report: Callable[[str], None] | None) -> None:
        self._total, self._report = total, report
        self._ended = 0
        self._started_s = self._reported_s = time.perf_counter()

    def ended(self, run: Run, draws: int) -> None:
        """A replay is over."""
        self._ended += 1
        if self._report is None:
            return
        self._reported_s = time.perf_counter()
        left_s = (self._reported_s - self._started_s) / self._ended * (self._total - self._ended)
        order = f" tie order {run.tie}" if run.tie else ""
        met = f"{run.score.satisfaction:.1%} of deadlines met, " if run.score.with_deadline else ""
        left = f", {format_time_left(left_s)}" if self._ended < self._total else ""
        self._report(
            f"{self._ended} of {self._total}: {run.world} draw {run.draw}/{draws}{order} load {run.load:.2f} "
            f"{run.policy}: mean completion {run.score.mean_completion_s:,.0f} s, {met}{run.seconds:.1f} s{left}"
        )

    def within(self, name: str, place: Place, over: int, jobs: int) -> None:
        """A replay goes on."""
        now_s = time.perf_counter()
        if self._report is not None and now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            self._report(f"{place.world} draw {place.draw} {name}: {over} of {jobs} jobs are over")


def format_time_left(time_s: float) -> str:
    """The time that a study or sweep still takes, in words."""
    return f"about {time_s:.0f} s left" if time_s < 120 else f"about {time_s / 60:.0f} min left"
