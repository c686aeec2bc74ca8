"""Several schedulers on the same traces: which is better, by how much, and how sure that is.

Differences pair a scheduler with its reference job by job: completion times with the same scheduler without sharing,
deadline satisfaction with EDF that drops infeasible jobs. Means and their intervals are of the traces as recorded;
further draws only show the spread. Jobs of one second may have been replayed in further orders.
Worlds with deadlines are one group. The others are split: where more is offered than can be served, any gain grows with
the length of the trace, so overloaded worlds are reported apart; a further draw of a stable world that happens to be
overloaded counts nowhere.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from interfere.sim.ratio_interval import POSITIVE, RELATIVE_CHANGE, SHARE, SHARE_CHANGE
from interfere.sim.schedulers.records import SchedulerRecord
from interfere.sim.score import DayTotals, Score, score_of
from interfere.sim.trace_worlds import has_ties
from interfere.sim.uncertainty import MIN_SPREAD_DAYS, UncertainMean, mean_over_days, mean_over_traces
from interfere.sim.world import World
from interfere.study.replays import ReplayResult, ReplayTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One scheduler on all traces of a group. Means and differences are over the traces as recorded."""

    policy: str  # the scheduler's name
    scheduler: SchedulerRecord
    score: Score  # of the traces as recorded, all worlds together
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
class Comparison:
    """All replays, and one line a scheduler for each group of traces."""

    runs: tuple[ReplayResult, ...]
    stable: tuple[Line, ...]
    overloaded: tuple[Line, ...]
    deadlines: tuple[Line, ...]  # worlds with deadlines, whatever their load
    cap: float
    dropped: tuple[str, ...]  # further draws with too much load


def with_references(schedulers: Sequence[SchedulerRecord]) -> tuple[SchedulerRecord, ...]:
    """Return the schedulers, each after its references: without sharing, and with two seats."""
    found = (each for record in schedulers for each in (record.unshared, record.in_pairs, record) if each is not None)
    return tuple(dict.fromkeys(found))


def compare(
    runs: Sequence[ReplayResult],
    schedulers: Sequence[SchedulerRecord],
    *,
    cap: float,
    with_deadlines: Collection[str] = (),
) -> Comparison:
    """Lines of the schedulers, all replayed on the same traces. `with_deadlines`: names of the worlds that have
    deadlines."""
    heavy = {run.world for run in runs if run.task.draw == 0 and run.load >= 1} - {*with_deadlines}
    plain = [run for run in runs if run.world not in with_deadlines]
    stable = [run for run in plain if run.world not in heavy]
    dropped = [f"{run.world} draw {run.task.draw}" for run in stable if run.load >= 1]
    lines = partial(_lines, schedulers=schedulers)
    return Comparison(
        runs=tuple(runs),
        stable=lines([run for run in stable if run.load < 1]),
        overloaded=lines([run for run in plain if run.world in heavy]),
        deadlines=lines([run for run in runs if run.world in with_deadlines]),
        cap=cap,
        dropped=tuple(dict.fromkeys(dropped)),
    )


def trace_tasks(
    plain: ReplayTask,
    schedulers: Sequence[SchedulerRecord],
    worlds: Sequence[World],
    *,
    draws: int = 0,
    tie_draws: int = 0,
) -> list[ReplayTask]:
    """Trace by trace, every scheduler in every order of ties; the rest as in the plain task."""
    tasks = []
    for k, world in enumerate(worlds):
        for draw in range(draws + 1):
            ties = tie_draws if draw == 0 and has_ties(world) else 0
            tasks += [
                replace(plain, scheduler=one, world=k, draw=draw, tie=tie)
                for one in schedulers
                for tie in range(ties + 1)
            ]
    return tasks


def on_whole_traces(runs: Sequence[ReplayResult], tasks: Sequence[ReplayTask]) -> tuple[ReplayResult, ...]:
    """For an interrupted study, return the runs on traces of which all tasks are done."""
    done = {run.task for run in runs}
    unfinished = {(task.world, task.draw) for task in tasks if task not in done}
    return tuple(run for run in runs if (run.task.world, run.task.draw) not in unfinished)


def _lines(runs: Sequence[ReplayResult], schedulers: Sequence[SchedulerRecord]) -> tuple[Line, ...]:
    if not runs:
        return ()
    by_scheduler: dict[SchedulerRecord, list[ReplayResult]] = {record: [] for record in schedulers}
    for run in runs:  # in the same order of traces for every scheduler
        by_scheduler[run.task.scheduler].append(run)
    return tuple(_line(record, by_scheduler) for record in schedulers)


def _line(record: SchedulerRecord, by_scheduler: dict[SchedulerRecord, list[ReplayResult]]) -> Line:
    def in_order(scheduler: SchedulerRecord | None) -> list[ReplayResult]:
        found = by_scheduler.get(scheduler, []) if scheduler is not None else []
        return [run for run in found if run.task.tie == 0]

    runs = in_order(record)
    days = _days(runs)
    has_deadlines = any(run.totals.with_deadline for run in runs)
    baseline = record.deadline_baseline
    satisfaction = best_effort = satisfaction_change = None
    if has_deadlines:
        satisfaction = mean_over_days(
            [each.deadlines_met() for each in days], SHARE, traces=_traces(runs, _satisfaction(runs))
        )
        best_effort = mean_over_days(
            [each.best_effort_completion() for each in days],
            POSITIVE,
            traces=_traces(runs, [run.score.best_effort_jct_s for run in runs]),
        )
    if has_deadlines and baseline != record and (others := in_order(baseline)):
        satisfaction_change = mean_over_days(
            [one.deadlines_met(other) for one, other in zip(days, _days(others), strict=True)],
            SHARE_CHANGE,
            traces=_traces(runs, np.subtract(_satisfaction(runs), _satisfaction(others)).tolist()),
        )
    return Line(
        policy=record.label,
        scheduler=record,
        score=score_of([run.totals for run in runs if run.task.draw == 0]),
        against=record.unshared.label if record.unshared in by_scheduler and record.unshared else "",
        change=change_over_days(runs, in_order(record.unshared)),
        completion_s=mean_over_days(
            [each.completion() for each in days],
            POSITIVE,
            traces=_traces(runs, [run.score.mean_completion_s for run in runs]),
        ),
        worst_slowdown=mean_over_days(
            [each.worst() for each in days],
            POSITIVE,
            traces=_traces(runs, [run.totals.worst_slowdown for run in runs]),
        ),
        against_pairs=record.in_pairs.label if record.in_pairs in by_scheduler and record.in_pairs else "",
        change_to_pairs=change_over_days(runs, in_order(record.in_pairs)),
        tie_range_s=_tie_range_s(by_scheduler[record]),
        satisfaction=satisfaction,
        deadlines_against=baseline.label if satisfaction_change is not None else "",
        satisfaction_change=satisfaction_change,
        best_effort_s=best_effort,
        seconds=float(np.sum([run.seconds for run in by_scheduler[record]])),
    )


def _days(runs: Sequence[ReplayResult]) -> list[DayTotals]:
    """Return the daily sums of the traces as recorded."""
    return [run.days for run in runs if run.days is not None]


def _traces(runs: Sequence[ReplayResult], figures: Sequence[float]) -> list[float]:
    """Return the figures of whole traces, from which their spread is computed.

    Empty unless days were redrawn, or the traces have too few days for a spread over days.
    """
    redrawn = any(run.task.draw for run in runs)
    if not redrawn and sum(len(each.completion_s) for each in _days(runs)) >= MIN_SPREAD_DAYS:
        return []
    return [figure for figure in figures if not math.isnan(figure)]


def _satisfaction(runs: Sequence[ReplayResult]) -> list[float]:
    """Return the deadline satisfaction of each trace; NaN where no job has a deadline."""
    return [run.score.satisfaction for run in runs]


def _tie_range_s(runs: Sequence[ReplayResult]) -> tuple[float, float] | None:
    """Least and largest mean completion time over the orders of jobs of one second; None where none were drawn."""
    orders: dict[int, list[ReplayResult]] = {}
    for run in runs:
        if run.task.draw == 0:
            orders.setdefault(run.task.tie, []).append(run)
    if len(orders) < 2:
        return None
    means = [
        float(np.average([run.score.mean_completion_s for run in same], weights=[run.score.jobs for run in same]))
        for same in orders.values()
    ]
    return min(means), max(means)


# --- changes of the mean completion time ------------------------------------------------------------------------------


def change_over_days(runs: Sequence[ReplayResult], references: Sequence[ReplayResult]) -> UncertainMean | None:
    """Change of the mean completion time of all jobs of these worlds, as a share, with the interval over recorded days.

    None where there is nothing to compare or a job was dropped: means over different jobs cannot be compared.
    """
    pairs = _paired(runs, references)
    days = [
        run.days.completion_change(other.days)
        for run, other in pairs
        if run.days is not None and other.days is not None
    ]
    if not days:
        return None
    traces = _traces([run for run, _ in pairs], _shares(pairs))
    return mean_over_days(days, RELATIVE_CHANGE, traces=traces, subtract=1.0)


def change_over_traces(
    runs: Sequence[ReplayResult], references: Sequence[ReplayResult], population: str = "traces"
) -> UncertainMean | None:
    """Mean over traces of each trace's change of the mean completion time, as a share. None as above."""
    pairs = _paired(runs, references)
    return mean_over_traces(_shares(pairs), population) if pairs else None


def _paired(
    runs: Sequence[ReplayResult], references: Sequence[ReplayResult]
) -> list[tuple[ReplayResult, ReplayResult]]:
    """Runs and references on the same trace; none where a job was dropped."""
    by_trace = {(other.task.world, other.task.draw): other for other in references}
    pairs = [(run, other) for run in runs if (other := by_trace.get((run.task.world, run.task.draw))) is not None]
    return [] if any(run.totals.dropped or other.totals.dropped for run, other in pairs) else pairs


def _shares(pairs: Sequence[tuple[ReplayResult, ReplayResult]]) -> list[float]:
    """The change of each trace; those without jobs that end have none."""
    shares = [run.score.mean_completion_s / other.score.mean_completion_s - 1 for run, other in pairs]
    return [share for share in shares if not math.isnan(share)]
