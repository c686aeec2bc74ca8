"""Several schedulers on the same traces: which is better, by how much, and how sure that is.

Each world is replayed as recorded (draw 0) and on further draws of its days, with all arrivals stretched to a load
where one is given. Differences pair a scheduler with its reference job by job: completion times with the same scheduler
without sharing, deadline satisfaction with EDF that drops infeasible jobs. Means and their intervals are of the traces
as recorded; further draws only show the spread. Jobs of one second are replayed in further orders where asked for.
Worlds with deadlines are one group. The others are split: where more is offered than can be served, any gain grows with
the length of the trace, so overloaded worlds are reported apart; a further draw of a stable world that happens to be
overloaded counts nowhere.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from interfere.errors import InvalidInputError
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.cluster import Truth
from interfere.sim.ratio_interval import POSITIVE, RELATIVE_CHANGE, SHARE, SHARE_CHANGE
from interfere.sim.replay import Replayed
from interfere.sim.schedulers.names import deadline_baseline_of, name_of_pairs, parse_name, reference_of
from interfere.sim.score import (
    Score,
    best_effort_by_day,
    completion_by_day,
    completion_change_by_day,
    deadlines_met_by_day,
    score,
    worst_slowdown_by_day,
)
from interfere.sim.study_runs import Make, Run, TracePlan, run_all
from interfere.sim.trace_worlds import days_spanned
from interfere.sim.uncertainty import MIN_SPREAD_DAYS, UncertainMean, mean_over_days
from interfere.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One scheduler on all traces of a group. Means and differences are over the traces as recorded."""

    policy: str
    score: Score  # of draw 0, all worlds together
    against: str  # the same without sharing; empty for one that shares nothing
    change: UncertainMean | None  # of mean completion time to `against`; None without `against` or with dropped jobs
    completion_s: UncertainMean  # mean completion time of the jobs that end
    worst_slowdown: UncertainMean  # by company: of the jobs that arrive on one day the largest, averaged over days
    against_pairs: str  # the same with two jobs at most on a device; empty for one that shares in pairs
    change_to_pairs: UncertainMean | None  # of mean completion time to `against_pairs`
    tie_range_s: tuple[float, float] | None  # of mean completion time over orders of jobs of one second
    satisfaction: UncertainMean | None  # of deadlines; None where no job has one
    deadlines_against: str  # the baseline that satisfaction is compared with; empty: none, or it is the baseline
    satisfaction_change: UncertainMean | None
    best_effort_s: UncertainMean | None  # mean completion time of jobs without a deadline; None where no job has one
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
    interrupted: bool = False  # is it of the traces that were done when the user stopped it?


def study(
    worlds: Sequence[World],
    truth: Truth,
    policies: Sequence[str],
    make: Make,
    *,
    draws: int = 0,
    tie_draws: int = 0,
    load: float | None = None,
    prepare: Callable[[World], World] | None = None,
    cap: float = 1.5,
    seed: int = 0,
    references: bool = True,
    known_runs: Sequence[Run] = (),
    report: Callable[[str], None] | None = None,
) -> Study:
    """Replay every scheduler on every trace.

    `tie_draws`: further orders of jobs of one second, for traces that have any. `prepare`: what is done to each trace
    after its days are drawn and its arrivals stretched, as adding an edge.
    `cap`: slowdown past which a pair counts in `Score.past_cap`. `references`: also replay what schedulers are compared
    with: each that shares without sharing, each with more than two seats with two. `known_runs`: of schedulers that
    need no replay, on the same traces. Raises InvalidInputError where there is no scheduler.
    """
    names = list(dict.fromkeys(policies))
    if references:
        names = list(dict.fromkeys(name for policy in names for name in (*_references(policy), policy)))
    if not names:
        raise InvalidInputError("no policy to replay", value="none", remedy="name one with --policy")
    plan = TracePlan(worlds=worlds, draws=draws, tie_draws=tie_draws, load=load, prepare=prepare, seed=seed)
    known = {run.policy for run in known_runs}
    runs, interrupted = run_all(plan, truth, [name for name in names if name not in known], make, cap, report)
    done = {(run.world, run.draw, run.tie) for run in runs} if interrupted else None
    same_traces = (run for run in known_runs if done is None or (run.world, run.draw, run.tie) in done)
    runs = [*(run for run in same_traces if run.policy in names), *runs]
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
        interrupted=interrupted,
    )


def _references(policy: str) -> tuple[str, ...]:
    """What a scheduler is compared with."""
    pairs = name_of_pairs(policy) if parse_name(policy).seats > DEFAULT_SEATS else ""
    return tuple(name for name in (reference_of(policy), pairs) if name)


def _lines(runs: Sequence[Run], names: Sequence[str], cap: float) -> tuple[Line, ...]:
    if not runs:
        return ()
    by_name: dict[str, list[Run]] = {name: [] for name in names}
    for run in runs:  # in the same order of traces for every scheduler
        by_name[run.policy].append(run)
    return tuple(_line(name, by_name, cap) for name in names)


def _line(name: str, by_name: dict[str, list[Run]], cap: float) -> Line:
    runs = [run for run in by_name[name] if run.tie == 0]
    recorded = _recorded(runs)
    against, pairs = reference_of(name), name_of_pairs(name) if parse_name(name).seats > DEFAULT_SEATS else ""
    has_deadlines = any(run.score.with_deadline for run in runs)
    baseline = deadline_baseline_of(name) if has_deadlines else ""
    satisfaction = best_effort = satisfaction_change = None
    if has_deadlines:
        satisfaction = mean_over_days(
            [deadlines_met_by_day(replayed) for replayed in recorded],
            SHARE,
            traces=_traces(runs, _satisfaction(runs)),
        )
        best_effort = mean_over_days(
            [best_effort_by_day(replayed) for replayed in recorded],
            POSITIVE,
            traces=_traces(runs, [run.score.best_effort_jct_s for run in runs]),
        )
    if baseline in by_name and baseline != name:
        others = [run for run in by_name[baseline] if run.tie == 0]
        differences = np.subtract(_satisfaction(runs), _satisfaction(others)).tolist()
        satisfaction_change = mean_over_days(
            [deadlines_met_by_day(*pair) for pair in zip(recorded, _recorded(others), strict=True)],
            SHARE_CHANGE,
            traces=_traces(runs, differences),
        )
    return Line(
        policy=name,
        score=score(recorded, cap),
        against=against if against in by_name else "",
        change=_change(runs, [run for run in by_name.get(against, []) if run.tie == 0]),
        completion_s=mean_over_days(
            [completion_by_day(replayed) for replayed in recorded],
            POSITIVE,
            traces=_traces(runs, [run.score.mean_completion_s for run in runs]),
        ),
        worst_slowdown=mean_over_days(
            [worst_slowdown_by_day(replayed) for replayed in recorded],
            POSITIVE,
            traces=_traces(runs, [run.score.worst_slowdown for run in runs]),
        ),
        against_pairs=pairs if pairs in by_name else "",
        change_to_pairs=_change(runs, [run for run in by_name.get(pairs, []) if run.tie == 0]),
        tie_range_s=_tie_range_s(by_name[name]),
        satisfaction=satisfaction,
        deadlines_against=baseline if satisfaction_change is not None else "",
        satisfaction_change=satisfaction_change,
        best_effort_s=best_effort,
        seconds=float(np.sum([run.seconds for run in by_name[name]])),
    )


def _recorded(runs: Sequence[Run]) -> list[Replayed]:
    return [run.replayed for run in runs if run.replayed is not None]


def _traces(runs: Sequence[Run], figures: Sequence[float]) -> list[float]:
    """Figures of whole traces, for the spread over them: only where days were redrawn, or traces are shorter than days
    that tell anything."""
    redrawn = any(run.draw for run in runs)
    if not redrawn and sum(days_spanned(replayed.world) for replayed in _recorded(runs)) >= MIN_SPREAD_DAYS:
        return []
    return [figure for figure in figures if not math.isnan(figure)]


def _satisfaction(runs: Sequence[Run]) -> list[float]:
    """Of each trace; NaN where no job has a deadline."""
    return [run.score.satisfaction for run in runs]


def _change(runs: Sequence[Run], references: Sequence[Run]) -> UncertainMean | None:
    """Of mean completion time. Means over different jobs cannot be compared: None where a job was dropped."""
    if not references or any(run.score.dropped for run in (*runs, *references)):
        return None
    shares = [
        run.score.mean_completion_s / reference.score.mean_completion_s - 1
        for run, reference in zip(runs, references, strict=True)
    ]
    return mean_over_days(
        [completion_change_by_day(*pair) for pair in zip(_recorded(runs), _recorded(references), strict=True)],
        RELATIVE_CHANGE,
        traces=_traces(runs, shares),
        subtract=1.0,
    )


def _tie_range_s(runs: Sequence[Run]) -> tuple[float, float] | None:
    """Least and largest mean completion time over the orders of jobs of one second; None where none were drawn."""
    orders: dict[int, list[Run]] = {}
    for run in runs:
        if run.draw == 0:
            orders.setdefault(run.tie, []).append(run)
    if len(orders) < 2:
        return None
    means = [
        float(np.average([run.score.mean_completion_s for run in same], weights=[run.score.jobs for run in same]))
        for same in orders.values()
    ]
    return min(means), max(means)
