"""The question `whatif`: what sharing would change in a cluster, under each queue, cap, load and number of seats.

At the trace's own load: each queue without sharing, with greedy placement under each cap, and with matching. At each
load asked for: without sharing and with greedy; with matching at the highest, where the two differ most if they do;
under each cap at the middle one, since a trace with free devices says nothing about caps at its own load. More than two
seats a device are replayed wherever matching is, which alone forms larger groups, under queues that stop no job: once
with groups that nobody measured as the sum of their pairs, once as the product.
Where gangs may share, the measured line lets one-GPU jobs share only, and a second one rests on the assumption about
gangs, under the first queue also where gangs lose more than assumed. Scenarios about workloads without truth are
replayed at the trace's own load; so is one week under the server's decisions, and the first queue on fewer devices,
until service is worse than without sharing on all of them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS
from interfere.reports.document import Document
from interfere.reports.html_page import write_html_page
from interfere.sim.schedulers.records import COMMON_QUEUES, Queue, SchedulerRecord, Sharing
from interfere.sim.truth import GANG_EXCESS, Composition
from interfere.sim.uncertainty import UncertainMean
from interfere.study.comparison import Line, TraceGroup, compare
from interfere.study.coverage import MissingTruth, gpu_hours, missing_truth
from interfere.study.questions import StudyInputs, StudyModels, read_inputs
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask
from interfere.study.study import Study, require_acting
from interfere.study.whatif_findings import (
    GANG_EXCESSES,
    DevicesSaved,
    JobGroup,
    WeekScore,
    change_over_loads,
    devices_saved,
    gang_break_even,
    pays_from,
    tasks_of_fewer_devices,
    tasks_of_one_week,
    week_scores,
    who_ends_later,
)
from interfere.study.whatif_report import whatif_document
from interfere.study.whatif_sentences import (
    coverage_text,
    population_text,
    scenario_text,
    verdict,
    warnings,
)

LOADS = (0.5, 0.65, 0.75, 0.85, 0.95)
CAPS = (1.25, 1.5)  # beside none
SUGGESTED_PAIRS = 5
PAGE = "whatif.html"
REPLAY_ONLY = (  # fields that this question does not use
    *("deadlines", "added", "taken", "predict", "hide", "error", "online", "duration_error"),
    *("most_shared_gpus", "guest_may_stay", "whole_nodes", "slice_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The answer of a what-if question: effects of sharing, the inputs they rest on, and pairs worth measuring."""

    study: Study
    inputs: StudyInputs
    effects: tuple[Line, ...]  # schedulers that share, beside the same queue without sharing
    over_loads: Mapping[str, UncertainMean]  # by queue: the change over months at loads like these weeks, where known
    gangs: tuple[Line, ...]  # the first queue at the trace's own load with gangs that share, by what they lose
    saved: tuple[DevicesSaved, ...]  # by device type; empty where not all replays were done that tell it
    week: tuple[WeekScore, ...]  # of the first queue without sharing, with it, and of the server; empty if not replayed
    later: tuple[JobGroup, ...]  # who ends later with sharing; empty where that is not known
    missing: MissingTruth
    replays: int
    planned: int
    interrupted: bool
    cpu_s: float

    @property
    def load(self) -> float:
        """The offered load, mean over worlds weighted by jobs."""
        worlds = self.inputs.worlds
        return sum(world.load * len(world.jobs) for world in worlds) / sum(len(world.jobs) for world in worlds)

    @property
    def main_lines(self) -> tuple[Line, ...]:
        """The effects of greedy placement under the first queue on stable worlds, at its own load and others."""
        queue = self.study.schedulers[0].label
        plain = [line for line in self.effects if self.is_plain(line) and line.scheduler.sharing is Sharing.GREEDY]
        return tuple(line for line in plain if line.against == queue and line.group is TraceGroup.STABLE)

    @property
    def pays_from(self) -> float:
        """The load from which on sharing pays under the first queue; NaN where it pays at none."""
        return pays_from(self.main_lines)

    @property
    def gang_break_even(self) -> float:
        """Return the loss of gangs, relative to the assumed one, at which sharing begins to do harm; NaN if unknown."""
        own = [line for line in self.main_lines if line.task.load is None]
        return gang_break_even(self.gangs, own[0]) if own and len(self.gangs) > 1 else math.nan

    def gangs_share(self, line: Line) -> bool:
        """Return whether jobs on several devices share too in this effect, by an assumption."""
        return self.inputs.coverage.has_gangs and not line.scheduler.one_gpu

    def is_plain(self, line: Line) -> bool:
        """Return whether an effect has no assumptions, no cap, and two jobs a device."""
        measured = not self.gangs_share(line) and not line.task.scenario
        return measured and math.isinf(line.task.max_slowdown) and line.scheduler.seats == DEFAULT_SEATS

    def document(self) -> Document:
        """Return the report for people."""
        return whatif_document(self)

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return everything that was found, for programs. A cap of null is none; a target load of null is the trace's
        own."""
        sentences, tone = verdict(self)
        inputs = self.inputs
        names = ("load", "over_loads", "pays_from", "gang_break_even", "missing", "later")
        counts = ("replays", "planned", "interrupted")
        coverage = {"left_out": dict(inputs.left_out), "is_predicted": inputs.is_predicted}
        return {name: getattr(self, name) for name in (*names, *counts)} | {
            "question": self.study,
            "trace": inputs.trace,
            "coverage": inputs.coverage.facts() | coverage | {"text": coverage_text(inputs)},
            "verdict": " ".join(sentences),
            "tone": tone.value,
            "devices": self.saved,
            "week": [
                {"scheduler": each.scheduler.label, "change": each.change, **each.score.facts()} for each in self.week
            ],
            "scenarios": scenario_text(self),
            "populations": population_text(self),
            "effects": [self._effect_facts(line) for line in self.effects],
            "unknown": inputs.unknown,
            "notes": warnings(self),
            "page": next(iter(files), None),
        }

    def write(self, folder: Path) -> list[Path]:
        """Write the report as a page."""
        return [write_html_page(folder / PAGE, self.document())]

    def _effect_facts(self, line: Line) -> dict[str, Any]:
        task, reference = line.task, line.reference
        assert reference is not None
        figures = ("jobs", "mean_completion_s", "p99_completion_s", "shared", "past_cap", "stops")
        return {name: getattr(line.score, name) for name in figures} | {
            "queue": line.against,
            "sharing": line.scheduler.sharing,
            "gangs_share": self.gangs_share(line),
            "scenario": self.inputs.replays.scenarios[task.scenario].name,
            "is_other_scenario": task.scenario > 0,
            "max_slowdown": task.max_slowdown,
            "seats": line.scheduler.seats,
            "composition": task.composition,
            "target_load": task.load,
            "overloaded": line.group is TraceGroup.OVERLOADED,
            "load": line.load,
            "change": line.change,
            "change_to_pairs": line.change_to_pairs,
            "reference_completion_s": reference.mean_completion_s,
            "reference_p99_s": reference.p99_completion_s,
            "cpu_s": line.cpu_s,
        }


class WhatIfQuestion:
    """The question what sharing changes under each queue, compared with the same queue without sharing."""

    def resolved(self, study: Study) -> Study:
        """Return the study with the usual queues, loads and caps filled in and sorted."""
        require_acting(study, [(name, False, "question replay") for name in REPLAY_ONLY])
        resolved = replace(
            study,
            schedulers=study.schedulers or COMMON_QUEUES,
            loads=tuple(sorted(study.loads or LOADS)),
            caps=tuple(sorted(study.caps or CAPS)),
            seats=tuple(sorted(study.seats)),
            pairs=SUGGESTED_PAIRS if study.pairs is None else study.pairs,
        )
        _check(resolved)
        return resolved

    def inputs(self, study: Study, models: StudyModels) -> StudyInputs:
        """Return the trace and the truth, with all scenarios about workloads that the truth lacks."""
        return read_inputs(study, models, other_scenarios=True)

    def plan(self, study: Study, inputs: StudyInputs) -> tuple[ReplayInputs, list[ReplayTask]]:
        """Return all tasks, the most valuable for the answer first, in case the study is interrupted."""
        tasks: list[ReplayTask] = []
        for world in range(len(inputs.worlds)):
            tasks += _tasks_at(study, inputs, world, None)
        stretchable = [k for k, world in enumerate(inputs.worlds) if 0 < world.load < math.inf]
        tasks += tasks_of_one_week(inputs.worlds, _of_one_week(study, inputs))
        for load in study.loads:
            for world in stretchable:
                tasks += _tasks_at(study, inputs, world, load)
        return inputs.replays, list(dict.fromkeys(tasks))

    def further(self, study: Study, inputs: StudyInputs, results: Sequence[ReplayResult]) -> list[ReplayTask]:
        """Return the next replays of the search for the number of devices that could be given back."""
        return tasks_of_fewer_devices(inputs.worlds, results, *_first_queue(study, inputs))

    def answer(
        self,
        study: Study,
        inputs: StudyInputs,
        results: Sequence[ReplayResult],
        *,
        planned: int,
        interrupted: bool,
    ) -> WhatIfAnswer:
        """Return the effect of sharing, the unknown part of it, and the pairs to measure."""
        lines = compare([each for each in results if not (each.task.given_back or each.task.week)]).lines
        compared = [line for line in lines if line.reference is not None]
        queue, shared = _first_queue(study, inputs)
        gangs = ReplayTask(scheduler=_sharing(queue, Sharing.GREEDY, one_gpu=False))
        assert study.pairs is not None
        return WhatIfAnswer(
            study=study,
            inputs=inputs,
            effects=tuple(line for line in compared if line.task.gang_excess == GANG_EXCESS),
            over_loads={
                each.label: change
                for each in study.schedulers
                for sharing in (_sharing(each, Sharing.GREEDY, one_gpu=inputs.coverage.has_gangs),)
                if (change := change_over_loads(inputs.worlds, results, each, sharing, study.loads)) is not None
            },
            gangs=tuple(
                line
                for line in compared
                if inputs.coverage.has_gangs
                and line.task == replace(gangs, gang_excess=line.task.gang_excess)
                and line.group is TraceGroup.STABLE
            ),
            saved=devices_saved(inputs.worlds, results, queue, shared),
            week=week_scores(results, _of_one_week(study, inputs)),
            later=who_ends_later(inputs.worlds, results, queue, shared),
            missing=missing_truth(inputs.measured, inputs.tried, gpu_hours(inputs.worlds), study.pairs),
            replays=len(results),
            planned=planned,
            interrupted=interrupted,
            cpu_s=sum(result.cpu_s for result in results),
        )


def _check(study: Study) -> None:
    """Raise InvalidInputError for schedulers, loads, caps and seats that the question cannot compare."""
    for queue in study.schedulers:
        if queue.sharing or queue.drop or queue.is_policy or queue.queue is Queue.SLOTS:
            raise InvalidInputError(
                "--queue names a queue without sharing and deadlines; it is replayed with sharing and without",
                value=queue.label,
                remedy=f"for example {', '.join(each.label for each in COMMON_QUEUES)}",
            )
    ranges = (
        (study.loads, 0.0, 1.0, "--load lies between 0 and 1: beyond, gains grow with the length of the trace", 0.85),
        (study.caps, 1.0, math.inf, "--cap is a slowdown above 1", 1.25),
        (study.seats, DEFAULT_SEATS, MAX_SEATS + 1, "--seats is 3 or more: two jobs a device are always compared", 3),
    )
    for values, low, high, what, example in ranges:
        for value in values:
            if not low < value < high:
                raise InvalidInputError(what, value=value, remedy=f"for example {example}")
    matching = [_sharing(queue, Sharing.MATCHING, one_gpu=False) for queue in study.schedulers]
    if study.seats and not any(each.plans_groups for each in matching):
        raise InvalidInputError(
            "--seats would change nothing: it needs a queue that stops no job",
            value=", ".join(queue.label for queue in study.schedulers),
            remedy="leave it out, or give --queue fifo-easy, qssf-easy or sjf-easy",
        )


def _sharing(queue: SchedulerRecord, sharing: Sharing, *, one_gpu: bool) -> SchedulerRecord:
    return replace(queue, sharing=sharing, one_gpu=one_gpu)


def _first_queue(study: Study, inputs: StudyInputs) -> tuple[SchedulerRecord, SchedulerRecord]:
    """Return the queue that leads the report, without sharing and with the sharing that was measured."""
    queue = study.schedulers[0]
    return queue, _sharing(queue, Sharing.GREEDY, one_gpu=inputs.coverage.has_gangs)


def _of_one_week(study: Study, inputs: StudyInputs) -> tuple[SchedulerRecord, ...]:
    """Return the schedulers of the replays of one week: the first queue without sharing, with it, and the server."""
    server = SchedulerRecord(queue=Queue.POLICY, sharing=Sharing.MATCHING, one_gpu=inputs.coverage.has_gangs)
    return (*_first_queue(study, inputs), server)


def _tasks_at(study: Study, inputs: StudyInputs, world: int, load: float | None) -> Iterator[ReplayTask]:
    """Yield the replays of one world at a load; None is its own, at which most is asked."""
    gangs, is_own = inputs.coverage.has_gangs, load is None
    for queue in study.schedulers:
        greedy = ReplayTask(scheduler=_sharing(queue, Sharing.GREEDY, one_gpu=gangs), world=world, load=load)
        for draw in range(study.draws + 1 if is_own else 1):
            yield replace(greedy, scheduler=queue, draw=draw)
            yield replace(greedy, draw=draw)
        if gangs:
            sharing_gangs = replace(greedy, scheduler=_sharing(queue, Sharing.GREEDY, one_gpu=False))
            yield sharing_gangs
            if is_own and queue is study.schedulers[0]:
                for excess in GANG_EXCESSES:
                    yield replace(sharing_gangs, gang_excess=excess)
        if is_own or load == study.loads[len(study.loads) // 2]:
            for cap in study.caps:
                yield replace(greedy, max_slowdown=cap)
        if is_own:
            for scenario in range(1, len(inputs.replays.scenarios)):
                yield replace(greedy, scenario=scenario)
        if is_own or load == max(study.loads):
            matching = _sharing(queue, Sharing.MATCHING, one_gpu=gangs)
            yield from _by_matching(study, replace(greedy, scheduler=matching))


def _by_matching(study: Study, pairs: ReplayTask) -> Iterator[ReplayTask]:
    """Yield the task with matching for two seats a device, and for more seats where the scheduler forms such groups."""
    yield pairs
    for seated in filter(None, (pairs.scheduler.with_seats(seats) for seats in study.seats)):
        for composition in Composition:
            yield replace(pairs, scheduler=seated, composition=composition)
