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
from interfere.sim.schedulers.names import GREEDY, MATCHING, name_of_pairs, parse_name, reference_of
from interfere.sim.sweeps.changes import change_over_days
from interfere.sim.sweeps.tasks import SweepResult, SweepTask
from interfere.sim.truth import Composition
from interfere.sim.uncertainty import UncertainMean
from interfere.sim.world import World
from interfere.training.whatif.inputs import WhatIfInputs

SAME_SHARE = 0.01  # greedy within this of matching: the cheaper one is recommended


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Sharing under one queue, against the same queue without."""

    queue: str
    sharing: str  # greedy or matching
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
        """Is it as measured and as asked for, without a cap, two jobs a device?"""
        measured = not self.gangs_share and not self.is_other_scenario
        return measured and math.isinf(self.max_slowdown) and self.seats == DEFAULT_SEATS


def effects_of(results: Sequence[SweepResult], inputs: WhatIfInputs) -> tuple[Effect, ...]:
    """One effect for each kind of task with sharing; stable and overloaded worlds apart at their own load."""
    overloaded = {k for k, world in enumerate(inputs.worlds) if is_overloaded(world)}
    groups: dict[_Kind, list[SweepResult]] = {}
    for result in results:
        task = result.task
        heavy = task.load is None and task.world in overloaded
        kind = _Kind(task.policy, task.load, heavy, task.max_slowdown, task.scenario, task.composition)
        groups.setdefault(kind, []).append(result)
    effects = []
    for kind, found in groups.items():
        reference = reference_of(kind.policy)
        others = groups.get(_Kind(reference, kind.load, kind.heavy), [])
        pairs = groups.get(_Kind(name_of_pairs(kind.policy), kind.load, kind.heavy), [])
        traces = {(other.task.world, other.task.draw) for other in others}
        same = [result for result in found if (result.task.world, result.task.draw) in traces]
        traces = {(result.task.world, result.task.draw) for result in same}
        others = [other for other in others if (other.task.world, other.task.draw) in traces]
        if reference and same:
            effects.append(_effect(same, others, pairs, inputs, overloaded=kind.heavy))
    return tuple(effects)


class _Kind(NamedTuple):
    """What the results of one effect have in common."""

    policy: str
    load: float | None
    heavy: bool
    max_slowdown: float = math.inf
    scenario: int = 0
    composition: Composition = Composition.SUM


def is_overloaded(world: World) -> bool:
    """Is a world offered more than it can serve as recorded?"""
    return world.load >= 1


def _effect(
    results: Sequence[SweepResult],
    references: Sequence[SweepResult],
    pairs: Sequence[SweepResult],
    inputs: WhatIfInputs,
    *,
    overloaded: bool,
) -> Effect:
    """`references`: on the same traces without sharing; `pairs`: with two seats a device."""
    task: SweepTask = results[0].task
    parsed = parse_name(task.policy)
    recorded = [result for result in results if not result.task.draw]
    others = [other for other in references if not other.task.draw]
    return Effect(
        queue=reference_of(task.policy),
        sharing=parsed.sharing,
        gangs_share=inputs.coverage.has_gangs and not parsed.one_gpu,
        scenario=inputs.scenarios[task.scenario].name,
        is_other_scenario=task.scenario > 0,
        max_slowdown=task.max_slowdown,
        seats=parsed.seats,
        composition=task.composition,
        target_load=task.load,
        overloaded=overloaded,
        load=_by_jobs(recorded, lambda result: result.load),
        jobs=sum(result.jobs for result in recorded),
        change=change_over_days(results, references),
        change_to_pairs=change_over_days(results, pairs) if parsed.seats > DEFAULT_SEATS else None,
        mean_completion_s=_by_jobs(recorded, lambda result: result.mean_completion_s),
        reference_completion_s=_by_jobs(others, lambda result: result.mean_completion_s),
        p99_completion_s=_by_jobs(recorded, lambda result: result.p99_completion_s),
        reference_p99_s=_by_jobs(others, lambda result: result.p99_completion_s),
        shared=_by_jobs(recorded, lambda result: result.shared),
        past_cap=_by_jobs(recorded, lambda result: result.past_cap),
        stops=sum(result.stops for result in recorded),
        cpu_s=sum(result.cpu_s for result in recorded),
    )


def _by_jobs(results: Sequence[SweepResult], figure: Callable[[SweepResult], float]) -> float:
    """Mean over worlds, weighted by their jobs."""
    return float(np.average([figure(result) for result in results], weights=[result.jobs for result in results]))


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
        """Of matching to greedy, as a share; negative where matching ends jobs sooner."""
        return self.matching_s / self.greedy_s - 1


def placement_comparisons(effects: Sequence[Effect]) -> tuple[PlacementComparison, ...]:
    """For each queue and load at which both were replayed, on worlds with stable load."""
    plain = [effect for effect in effects if effect.is_plain and not effect.overloaded]
    greedy = {(effect.queue, effect.target_load): effect for effect in plain if effect.sharing == GREEDY}
    pairs = [(greedy.get((effect.queue, effect.target_load)), effect) for effect in plain if effect.sharing == MATCHING]
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
