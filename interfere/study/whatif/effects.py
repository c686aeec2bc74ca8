"""What sharing changes against the same queue without it, by queue, placement, cap, seats, load and scenario.

Worlds that are offered more than they can serve at their own load are told apart: gains there grow with the length of
the trace.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.schedulers.records import SchedulerRecord, Sharing
from interfere.sim.truth import Composition
from interfere.sim.uncertainty import UncertainMean
from interfere.sim.world import World
from interfere.study.comparison import change_over_days
from interfere.study.coverage import Coverage, UnknownWorkload
from interfere.study.inputs import StudyInputs
from interfere.study.replays import ReplayResult
from interfere.study.study import Study
from interfere.study.whatif.missing_pairs import MissingTruth

SAME_SHARE = 0.01  # greedy within this of matching: the cheaper one is recommended


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of sharing under one queue, compared with the same queue without sharing."""

    queue: str
    sharing: Sharing  # greedy or matching
    gangs_share: bool  # do jobs on several GPUs share too, by an assumption?
    scenario: str  # what workloads without truth do
    is_other_scenario: bool  # is it another one than was asked for?
    max_slowdown: float  # cap on predicted slowdowns; inf: none
    seats: int  # jobs that may share a device
    composition: Composition  # how groups that nobody measured follow from their pairs
    target_load: float | None  # None: the trace's own
    overloaded: bool  # is it of worlds that are offered more than they can serve?
    load: float  # offered, mean over worlds weighted by jobs
    jobs: int
    change: UncertainMean | None  # of the mean completion time; None where a job was dropped
    change_to_pairs: UncertainMean | None  # against two seats under matching; None for these
    mean_completion_s: float
    reference_completion_s: float
    p99_completion_s: float  # mean over worlds, weighted by jobs
    reference_p99_s: float
    shared: float  # share of busy device time with two jobs or more, over worlds as above
    past_cap: float  # share of pairs in which a side was slowed beyond the counted cap
    stops: int
    cpu_s: float

    @property
    def is_plain(self) -> bool:
        """Whether the effect is without assumptions and caps, with two jobs a device."""
        measured = not self.gangs_share and not self.is_other_scenario
        return measured and math.isinf(self.max_slowdown) and self.seats == DEFAULT_SEATS


def effects_of(results: Sequence[ReplayResult], inputs: StudyInputs) -> tuple[Effect, ...]:
    """Return one effect for each kind of task with sharing. Stable and overloaded worlds are separate at their own
    load."""
    overloaded = {k for k, world in enumerate(inputs.worlds) if is_overloaded(world)}
    groups: dict[_Kind, list[ReplayResult]] = {}
    for result in results:
        task = result.task
        heavy = task.load is None and task.world in overloaded
        kind = _Kind(task.scheduler, task.load, heavy, task.max_slowdown, task.scenario, task.composition)
        groups.setdefault(kind, []).append(result)
    effects = []
    for kind, found in groups.items():
        reference = kind.scheduler.unshared
        if reference is None:
            continue
        others = groups.get(_Kind(reference, kind.load, kind.heavy), [])
        pairs = groups.get(_Kind(kind.scheduler.two_seats, kind.load, kind.heavy), [])
        traces = {(other.task.world, other.task.draw) for other in others}
        same = [result for result in found if (result.task.world, result.task.draw) in traces]
        traces = {(result.task.world, result.task.draw) for result in same}
        others = [other for other in others if (other.task.world, other.task.draw) in traces]
        if same:
            effects.append(_effect(same, others, pairs, inputs, overloaded=kind.heavy))
    return tuple(effects)


class _Kind(NamedTuple):
    """The properties that the results of one effect share."""

    scheduler: SchedulerRecord
    load: float | None
    heavy: bool
    max_slowdown: float = math.inf
    scenario: int = 0
    composition: Composition = Composition.SUM


def is_overloaded(world: World) -> bool:
    """Return whether the recorded jobs of a world need more than its devices can serve."""
    return world.load >= 1


def _effect(
    results: Sequence[ReplayResult],
    references: Sequence[ReplayResult],
    pairs: Sequence[ReplayResult],
    inputs: StudyInputs,
    *,
    overloaded: bool,
) -> Effect:
    """Return one effect. `references`: the same traces without sharing. `pairs`: the same traces with two seats a
    device."""
    task, scheduler = results[0].task, results[0].task.scheduler
    recorded = [result for result in results if not result.task.draw]
    others = [other for other in references if not other.task.draw]
    return Effect(
        queue=others[0].task.scheduler.label,
        sharing=scheduler.sharing,
        gangs_share=inputs.coverage.has_gangs and not scheduler.one_gpu,
        scenario=inputs.replays.scenarios[task.scenario].name,
        is_other_scenario=task.scenario > 0,
        max_slowdown=task.max_slowdown,
        seats=scheduler.seats,
        composition=task.composition,
        target_load=task.load,
        overloaded=overloaded,
        load=_by_jobs(recorded, lambda result: result.load),
        jobs=sum(result.score.jobs for result in recorded),
        change=change_over_days(results, references),
        change_to_pairs=change_over_days(results, pairs) if scheduler.seats > DEFAULT_SEATS else None,
        mean_completion_s=_by_jobs(recorded, lambda result: result.score.mean_completion_s),
        reference_completion_s=_by_jobs(others, lambda result: result.score.mean_completion_s),
        p99_completion_s=_by_jobs(recorded, lambda result: result.score.p99_completion_s),
        reference_p99_s=_by_jobs(others, lambda result: result.score.p99_completion_s),
        shared=_by_jobs(recorded, lambda result: result.score.shared),
        past_cap=_by_jobs(recorded, lambda result: result.score.past_cap),
        stops=sum(result.score.stops for result in recorded),
        cpu_s=sum(result.cpu_s for result in recorded),
    )


def _by_jobs(results: Sequence[ReplayResult], figure: Callable[[ReplayResult], float]) -> float:
    """Mean over worlds, weighted by their jobs."""
    return float(np.average([figure(result) for result in results], weights=[result.score.jobs for result in results]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementComparison:
    """Matching against greedy placement under one queue at one load."""

    queue: str
    target_load: float | None
    load: float
    greedy_s: float  # mean completion time
    matching_s: float
    greedy_cpu_s: float
    matching_cpu_s: float

    @property
    def difference(self) -> float:
        """The mean completion time under matching relative to greedy placement, as a share. Negative: matching ends
        jobs sooner."""
        return self.matching_s / self.greedy_s - 1


def placement_comparisons(effects: Sequence[Effect]) -> tuple[PlacementComparison, ...]:
    """Compare matching with greedy placement at each queue and load with replays of both, on worlds with stable
    load."""
    plain = [effect for effect in effects if effect.is_plain and not effect.overloaded]
    greedy = {(effect.queue, effect.target_load): effect for effect in plain if effect.sharing is Sharing.GREEDY}
    pairs = [
        (greedy.get((effect.queue, effect.target_load)), effect)
        for effect in plain
        if effect.sharing is Sharing.MATCHING
    ]
    return tuple(
        PlacementComparison(
            queue=matching.queue,
            target_load=matching.target_load,
            load=matching.load,
            greedy_s=other.mean_completion_s,
            matching_s=matching.mean_completion_s,
            greedy_cpu_s=other.cpu_s,
            matching_cpu_s=matching.cpu_s,
        )
        for other, matching in pairs
        if other is not None and other.jobs == matching.jobs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfFindings:
    """Everything that the report shows."""

    study: Study
    trace: str
    load: float  # offered, mean over worlds weighted by jobs
    coverage: Coverage
    left_out: tuple[tuple[str, int], ...]  # jobs that cannot be replayed: reason, number
    is_predicted: bool  # are slowdowns predictions of a model?
    unknown: tuple[UnknownWorkload, ...]
    effects: tuple[Effect, ...]
    comparisons: tuple[PlacementComparison, ...]
    missing: MissingTruth
    notes: tuple[str, ...]
    replays: int
    planned: int
    interrupted: bool
    cpu_s: float
