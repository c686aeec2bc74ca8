"""Several schedulers on the same traces: which is better, by how much, and how sure that is.

Each world is replayed as recorded (draw 0) and on further draws of its days, with all arrivals stretched to a load
where one is given. Differences pair a scheduler with its reference trace by trace: completion times with the same
scheduler without sharing, deadline satisfaction with EDF that drops infeasible jobs.
Worlds with deadlines are one group. The others are split: where more is offered than can be served, any gain grows with
the length of the trace, so overloaded worlds are reported apart; a further draw of a stable world that happens to be
overloaded counts nowhere.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from interfere.errors import InvalidInputError
from interfere.sim.cluster import Scheduler, Truth
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.registry import deadline_baseline_of, reference_of
from interfere.sim.score import Difference, Score, TraceMean, relative_difference, score, trace_mean
from interfere.sim.trace_worlds import redraw_days, scale_to_load
from interfere.sim.world import World

Make = Callable[[str], Scheduler]
"""Name of a scheduler -> a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scheduler on one trace."""

    policy: str
    world: str
    draw: int  # 0: as recorded
    load: float  # offered, before edge devices are added or taken away
    score: Score
    seconds: float  # that the replay took
    replayed: Replayed | None  # of draw 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One scheduler on all traces of a group. Means and differences are over all traces, draws included."""

    policy: str
    score: Score  # of draw 0, all worlds together
    against: str  # the same without sharing; empty for one that shares nothing
    change: Difference | None  # of mean completion time to `against`; None without `against` or with dropped jobs
    satisfaction: TraceMean | None  # of deadlines; None where no job has one
    deadlines_against: str  # the baseline that satisfaction is compared with; empty: none, or it is the baseline
    satisfaction_change: TraceMean | None
    best_effort_s: TraceMean | None  # mean completion time of jobs without a deadline; None where no job has one
    seconds: float  # that all replays took


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All runs, and one line a scheduler for each group of traces."""

    runs: tuple[Run, ...]
    stable: tuple[Line, ...]
    overloaded: tuple[Line, ...]
    deadlines: tuple[Line, ...]  # worlds with deadlines, whatever their load
    cap: float
    dropped: tuple[str, ...]  # further draws with too much load


def study(
    worlds: Sequence[World],
    truth: Truth,
    policies: Sequence[str],
    make: Make,
    *,
    draws: int = 0,
    load: float | None = None,
    prepare: Callable[[World], World] | None = None,
    cap: float = 1.5,
    seed: int = 0,
    references: bool = True,
    report: Callable[[str], None] | None = None,
) -> Study:
    """Replay every scheduler on every trace.

    `prepare`: what is done to each trace after its days are drawn and its arrivals stretched, as adding an edge.
    `cap`: slowdown past which a pair counts in `Score.past_cap`. `references`: also replay the reference of every
    scheduler that shares. Raises InvalidInputError where there is no scheduler.
    """
    names = list(dict.fromkeys(policies))
    if references:
        names = list(dict.fromkeys(name for policy in names for name in (reference_of(policy), policy) if name))
    if not names:
        raise InvalidInputError("no policy to replay", value="none", remedy="name one with --policy")
    runs: list[Run] = []
    for world in worlds:
        for draw in range(draws + 1):
            drawn = draw_trace(world, draw, load, seed)
            prepared = prepare(drawn) if prepare is not None else drawn
            for name in names:
                run = _run(name, make(name), prepared, truth, cap, world=world.name, draw=draw, load=drawn.load)
                runs.append(run)
                if report is not None:
                    report(_progress(run, draws))
    with_deadlines = {world.name for world in worlds if world.has_deadlines}
    heavy = {run.world for run in runs if run.draw == 0 and run.load >= 1} - with_deadlines
    plain = [run for run in runs if run.world not in with_deadlines]
    stable = [run for run in plain if run.world not in heavy]
    dropped = [f"{run.world} draw {run.draw}" for run in stable if run.load >= 1]
    lines = partial(_lines, names=names, cap=cap)
    return Study(
        runs=tuple(runs),
        stable=lines([run for run in stable if run.load < 1]),
        overloaded=lines([run for run in plain if run.world in heavy]),
        deadlines=lines([run for run in runs if run.world in with_deadlines]),
        cap=cap,
        dropped=tuple(dict.fromkeys(dropped)),
    )


def draw_trace(world: World, draw: int, load: float | None, seed: int) -> World:
    """One trace of a world: as recorded for draw 0, else of redrawn days; stretched to the load where one is given."""
    drawn = world if draw == 0 else redraw_days(world, seed * 1000 + draw)
    return drawn if load is None else scale_to_load(drawn, load)


def _run(
    name: str, scheduler: Scheduler, trace: World, truth: Truth, cap: float, *, world: str, draw: int, load: float
) -> Run:
    started = time.perf_counter()
    replayed = replay(trace, truth, scheduler)
    seconds = time.perf_counter() - started
    return Run(
        policy=name,
        world=world,
        draw=draw,
        load=load,
        score=score([replayed], cap),
        seconds=seconds,
        replayed=replayed if draw == 0 else None,
    )


def _progress(run: Run, draws: int) -> str:
    text = (
        f"{run.world} draw {run.draw}/{draws} load {run.load:.2f} {run.policy}: mean completion "
        f"{run.score.mean_completion_s:,.0f} s, "
    )
    if run.score.with_deadline:
        text += f"{run.score.satisfaction:.1%} of deadlines met, "
    return f"{text}{run.seconds:.1f} s"


def _lines(runs: Sequence[Run], names: Sequence[str], cap: float) -> tuple[Line, ...]:
    if not runs:
        return ()
    by_name: dict[str, list[Run]] = {name: [] for name in names}
    for run in runs:  # in the same order of traces for every scheduler
        by_name[run.policy].append(run)
    return tuple(_line(name, by_name, cap) for name in names)


def _line(name: str, by_name: dict[str, list[Run]], cap: float) -> Line:
    runs = by_name[name]
    against = reference_of(name)
    satisfaction = _satisfaction(runs)
    baseline = deadline_baseline_of(name) if satisfaction else ""
    satisfaction_change = None
    if baseline in by_name and baseline != name:
        pairs = zip(satisfaction, _satisfaction(by_name[baseline]), strict=True)
        satisfaction_change = trace_mean([share - reference for share, reference in pairs])
    return Line(
        policy=name,
        score=score([run.replayed for run in runs if run.replayed is not None], cap),
        against=against if against in by_name else "",
        change=_change(runs, by_name.get(against, [])),
        satisfaction=trace_mean(satisfaction) if satisfaction else None,
        deadlines_against=baseline if satisfaction_change is not None else "",
        satisfaction_change=satisfaction_change,
        best_effort_s=_best_effort_s(runs) if satisfaction else None,
        seconds=float(np.sum([run.seconds for run in runs])),
    )


def _satisfaction(runs: Sequence[Run]) -> list[float]:
    """Of each trace in which some job has a deadline."""
    return [run.score.satisfaction for run in runs if run.score.with_deadline]


def _change(runs: Sequence[Run], references: Sequence[Run]) -> Difference | None:
    """Of mean completion time. Means over different jobs cannot be compared: None where a job was dropped."""
    if not references or any(run.score.dropped for run in (*runs, *references)):
        return None
    return relative_difference(
        [run.score.mean_completion_s for run in runs], [run.score.mean_completion_s for run in references]
    )


def _best_effort_s(runs: Sequence[Run]) -> TraceMean | None:
    means = [run.score.best_effort_jct_s for run in runs if not math.isnan(run.score.best_effort_jct_s)]
    return trace_mean(means) if means else None
