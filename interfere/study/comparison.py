"""Several schedulers on the same traces: which is better, by how much, and how sure that is.

Differences pair a scheduler with its reference job by job: completion times with the same scheduler without sharing,
deadline satisfaction with EDF that drops infeasible jobs. Means and their intervals are of the traces as recorded;
further draws only show the spread.
Worlds with deadlines are one group. The others are split: where more is offered than can be served, any gain grows with
the length of the trace, so overloaded worlds are reported apart; a further draw of a stable world that happens to be
overloaded counts nowhere.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.schedulers.records import SchedulerRecord
from interfere.sim.score import DayTotals, Score, score_of
from interfere.sim.truth import GANG_EXCESS, Composition
from interfere.sim.uncertainty import (
    MIN_SPREAD_DAYS,
    POSITIVE,
    RELATIVE_CHANGE,
    SHARE,
    SHARE_CHANGE,
    Bounds,
    DaySums,
    UncertainMean,
    mean_over_days,
)
from interfere.sim.world import World
from interfere.study.replays import ReplayResult, ReplayTask


class TraceGroup(StrEnum):
    """The groups into which a report divides traces, with the title of each group."""

    STABLE = "Worlds with stable load"
    OVERLOADED = "Overloaded worlds: gains there grow with the length of the trace"
    DEADLINES = "Worlds with deadlines and edge devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figures of one scheduler on all traces of a group. Means and differences are over the traces as recorded."""

    group: TraceGroup
    task: ReplayTask  # scheduler, load, cap, scenario and composition of its replays; of the first world
    load: float  # offered, mean over traces weighted by jobs
    score: Score  # of the traces as recorded, all worlds together
    reference: Score | None  # of the same scheduler without sharing on these traces; None where that was not replayed
    change: UncertainMean | None  # of mean completion time to the reference; None without it or with dropped jobs
    change_to_pairs: UncertainMean | None  # the same against two jobs at most on a device; None for schedulers of two
    completion_s: UncertainMean  # mean completion time of the jobs that end
    worst_slowdown: UncertainMean  # by company: of the jobs that arrive on one day the largest, averaged over days
    satisfaction: UncertainMean | None  # of deadlines; None where no job has one
    satisfaction_change: UncertainMean | None  # to the deadline baseline; None where that was not replayed
    best_effort_s: UncertainMean | None  # mean completion time of jobs without a deadline; None where no job has one
    seconds: float  # that all replays took
    cpu_s: float

    @property
    def scheduler(self) -> SchedulerRecord:
        """The scheduler whose replays these are."""
        return self.task.scheduler

    @property
    def policy(self) -> str:
        """The name of the scheduler."""
        return self.scheduler.label

    @property
    def against(self) -> str:
        """The name of the same scheduler without sharing; empty where it was not replayed."""
        return self.scheduler.unshared.label if self.reference is not None and self.scheduler.unshared else ""

    @property
    def against_pairs(self) -> str:
        """The name of the same scheduler with two seats a device; empty where it was not replayed."""
        return self.scheduler.two_seats.label if self.change_to_pairs is not None else ""

    @property
    def deadlines_against(self) -> str:
        """The name of the baseline that deadlines met are compared with; empty where none was replayed."""
        return self.scheduler.deadline_baseline.label if self.satisfaction_change is not None else ""

    def facts(self) -> dict[str, Any]:
        """Return all figures for programs, with the names of the schedulers that they compare."""
        names = ("policy", "scheduler", "against", "against_pairs", "deadlines_against")
        return {name: getattr(self, name) for name in names} | {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "task"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All replays, and one line for each scheduler, each group of traces and each condition that was replayed."""

    runs: tuple[ReplayResult, ...]
    lines: tuple[Line, ...]
    dropped: tuple[str, ...]  # further draws with too much load

    @property
    def stable(self) -> tuple[Line, ...]:
        """The lines of worlds that are offered less than they can serve."""
        return self.of(TraceGroup.STABLE)

    @property
    def overloaded(self) -> tuple[Line, ...]:
        """The lines of worlds that are offered more than they can serve."""
        return self.of(TraceGroup.OVERLOADED)

    @property
    def deadlines(self) -> tuple[Line, ...]:
        """The lines of worlds whose jobs have deadlines, at any load."""
        return self.of(TraceGroup.DEADLINES)

    def of(self, group: TraceGroup) -> tuple[Line, ...]:
        """Return the lines of one group of traces, in the order of the replays."""
        return tuple(line for line in self.lines if line.group is group)


def with_references(schedulers: Sequence[SchedulerRecord]) -> tuple[SchedulerRecord, ...]:
    """Return the schedulers, each preceded by those it is compared with: without sharing, and with two seats."""
    found = (each for record in schedulers for each in (record.unshared, record.two_seats, record) if each is not None)
    return tuple(dict.fromkeys(found))


def trace_tasks(
    plain: ReplayTask,
    schedulers: Sequence[SchedulerRecord],
    worlds: Sequence[World],
    *,
    draws: int = 0,
) -> list[ReplayTask]:
    """Return the tasks of every scheduler on every trace. Other fields are those of `plain`."""
    return [
        replace(plain, scheduler=one, world=k, draw=draw)
        for k in range(len(worlds))
        for draw in range(draws + 1)
        for one in schedulers
    ]


def on_whole_traces(runs: Sequence[ReplayResult], tasks: Sequence[ReplayTask]) -> tuple[ReplayResult, ...]:
    """Return only the runs on traces whose tasks are all done, as an interrupted study has them."""
    done = {run.task for run in runs}
    unfinished = {(task.world, task.draw) for task in tasks if task not in done}
    return tuple(run for run in runs if (run.task.world, run.task.draw) not in unfinished)


def compare(runs: Sequence[ReplayResult], *, with_deadlines: Collection[str] = ()) -> Comparison:
    """Return one line for each scheduler, group and condition. `with_deadlines`: names of the worlds that have some."""
    heavy = {(run.world, run.task.load) for run in runs if run.task.draw == 0 and run.load >= 1}
    kinds: dict[tuple[TraceGroup, ReplayTask], list[ReplayResult]] = {}
    dropped = []
    for run in runs:
        is_heavy = (run.world, run.task.load) in heavy
        group = TraceGroup.OVERLOADED if is_heavy else TraceGroup.STABLE
        if run.world in with_deadlines:
            group = TraceGroup.DEADLINES
        elif run.load >= 1 and not is_heavy:
            dropped.append(f"{run.world} draw {run.task.draw}")
            continue
        kinds.setdefault((group, _kind(run.task)), []).append(run)
    return Comparison(
        runs=tuple(runs),
        lines=tuple(_line(group, task, kinds) for group, task in kinds),
        dropped=tuple(dict.fromkeys(dropped)),
    )


def _kind(task: ReplayTask, scheduler: SchedulerRecord | None = None) -> ReplayTask:
    """Return the task that stands for all replays of one line: the fields that these replays have in common.

    `scheduler` replaces the scheduler of the task. Of a scheduler that shares nothing, neither the cap, the scenario
    nor the gangs' excess is part of its kind, and of one with two seats the composition is not.
    """
    scheduler = scheduler or task.scheduler
    kind = replace(task, scheduler=scheduler, world=0, draw=0)
    if not scheduler.sharing:
        kind = replace(kind, max_slowdown=math.inf, scenario=0, gang_excess=GANG_EXCESS)
    return kind if scheduler.seats > DEFAULT_SEATS else replace(kind, composition=Composition.SUM)


def _line(
    group: TraceGroup, task: ReplayTask, kinds: Mapping[tuple[TraceGroup, ReplayTask], Sequence[ReplayResult]]
) -> Line:
    def replays_of(scheduler: SchedulerRecord | None) -> list[ReplayResult]:
        return list(kinds.get((group, _kind(task, scheduler)), ())) if scheduler is not None else []

    # 1. The replays of the scheduler and, where there are any, those of its reference on the same traces.
    record = task.scheduler
    runs, alone = replays_of(record), replays_of(record.unshared)
    common = {_trace(run) for run in runs} & {_trace(run) for run in alone}
    if common:
        runs, alone = ([run for run in some if _trace(run) in common] for some in (runs, alone))
    recorded = [run for run in runs if not run.task.draw]

    def mean(
        sums_of: Callable[[DayTotals], DaySums], bounds: Bounds, figure: Callable[[Score], float]
    ) -> UncertainMean:
        days = [sums_of(each) for each in _days(runs)]
        return mean_over_days(days, bounds, traces=_traces(runs, [figure(run.score) for run in runs]))

    # 2. Deadlines, where jobs have any, against the baseline that meets most without the server.
    satisfaction = best_effort_s = satisfaction_change = None
    if any(run.score.with_deadline for run in runs):
        satisfaction = mean(DayTotals.deadlines_met, SHARE, lambda score: score.satisfaction)
        best_effort_s = mean(DayTotals.best_effort_completion, POSITIVE, lambda score: score.best_effort_jct_s)
        others = replays_of(record.deadline_baseline) if record.deadline_baseline != record else []
        if others:
            differences = [
                run.score.satisfaction - other.score.satisfaction for run, other in zip(runs, others, strict=True)
            ]
            satisfaction_change = mean_over_days(
                [one.deadlines_met(other) for one, other in zip(_days(runs), _days(others), strict=True)],
                SHARE_CHANGE,
                traces=_traces(runs, differences),
            )
    every = kinds[group, task]
    return Line(
        group=group,
        task=task,
        load=float(np.average([run.load for run in recorded], weights=[run.score.jobs for run in recorded])),
        score=score_of([run.score for run in recorded]),
        reference=score_of([run.score for run in alone if not run.task.draw]) if alone else None,
        change=change_over_days(runs, alone),
        change_to_pairs=change_over_days(runs, replays_of(record.two_seats if record.seats > DEFAULT_SEATS else None)),
        completion_s=mean(DayTotals.completion, POSITIVE, lambda score: score.mean_completion_s),
        worst_slowdown=mean(DayTotals.worst, POSITIVE, lambda score: score.worst_slowdown),
        satisfaction=satisfaction,
        satisfaction_change=satisfaction_change,
        best_effort_s=best_effort_s,
        seconds=float(np.sum([run.seconds for run in every])),
        cpu_s=float(np.sum([run.cpu_s for run in every])),
    )


def _trace(run: ReplayResult) -> tuple[int, int]:
    """Return the world and the draw that a replay is of."""
    return run.task.world, run.task.draw


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


# --- changes of the mean completion time ------------------------------------------------------------------------------


def change_over_days(runs: Sequence[ReplayResult], references: Sequence[ReplayResult]) -> UncertainMean | None:
    """Return the relative change of the mean completion time of all jobs, with its interval over recorded days.

    None where there is nothing to compare or a job was dropped: means over different jobs cannot be compared.
    """
    by_trace = {_trace(other): other for other in references}
    pairs = [(run, other) for run in runs if (other := by_trace.get(_trace(run))) is not None]
    days = [run.days.completion_change(other.days) for run, other in pairs if run.days and other.days]
    if not days or any(run.score.dropped or other.score.dropped for run, other in pairs):
        return None
    shares = [run.score.mean_completion_s / other.score.mean_completion_s - 1 for run, other in pairs]
    traces = _traces([run for run, _ in pairs], shares)
    return mean_over_days(days, RELATIVE_CHANGE, traces=traces, subtract=1.0)
