"""Questions to traces: each resolves a study, reads its inputs, plans its replays, and answers from their results.

`ask` is the whole of a study. A question of one's own is a class with the members of `Question`, named `package:Class`
in the study. The inputs are the trace, the slowdowns with the share of the trace that they cover, and what schedulers
believe.
Law: where sharing is asked about and the slowdowns cover next to nothing of the trace, there is no answer, but an error
that says what to do about that.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from interfere.config import load_settings
from interfere.data.importers.site_traces import read_workload_map
from interfere.data.tables import Table, read_table
from interfere.data.traces import JobTrace, VirtualCluster, read_trace
from interfere.errors import InvalidInputError
from interfere.extensions import ExtensionKind, find_extension
from interfere.reports.document import Document
from interfere.sharing_modes import OptionalSharingMode
from interfere.sim.beliefs import MatrixPredictor, beliefs_of_types, mean_beliefs, noisy_beliefs, true_beliefs
from interfere.sim.edge_world import EdgeSetting, edge_beliefs, edge_truth, with_deadlines
from interfere.sim.schedulers.sharing import SchedulerOptions
from interfere.sim.trace_worlds import speeds_of, worlds_of
from interfere.sim.truth import (
    STEP_TIME,
    UNKNOWN_ALONE,
    UNKNOWN_MEDIAN,
    UNKNOWN_WORST,
    TruthTable,
    assume_unknown,
    known_on_any,
    truth_of,
)
from interfere.sim.world import World, with_turnover
from interfere.study.coverage import Coverage, UnknownWorkload, coverage_of, require_coverage, unknown_workloads
from interfere.study.engine import Runner
from interfere.study.replays import (
    MeasuredPairs,
    ReplayInputs,
    ReplayResult,
    ReplayTask,
    Scenario,
    results_of,
    run_replays,
)
from interfere.study.study import COUNTED_CAP, TIRESIAS_CHECKPOINT_S, Study, given_clusters

Further = Callable[[Study, "StudyInputs", Sequence[ReplayResult]], Iterable[ReplayTask]]
QUESTIONS = {
    "replay": "interfere.study.replay_question:ReplayQuestion",
    "whatif": "interfere.study.whatif_question:WhatIfQuestion",
}


class Answer(Protocol):
    """The result of a study, for people and for programs."""

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the study, so that the answer covers only the finished replays."""

    def document(self) -> Document:
        """Return the report."""

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return all results as one JSON document. `files`: the files that `write` has written."""

    def write(self, folder: Path) -> list[Path]:
        """Write the report's files. Raises UnfitError where the folder cannot be written."""


class Question(Protocol):
    """A question about a trace.

    Where it has a method `further(study, inputs, results)`, that returns replays which the results so far call for; it
    is called again with their results, until it returns none.
    """

    def resolved(self, study: Study) -> Study:
        """Return the study with every default filled in. Raises InvalidInputError for a field that would change
        nothing."""

    def inputs(self, study: Study, models: "StudyModels") -> "StudyInputs":
        """Return the inputs of the study."""

    def plan(self, study: Study, inputs: "StudyInputs") -> tuple[ReplayInputs, list[ReplayTask]]:
        """Return the replays, in order of their value to an interrupted study."""

    def answer(
        self, study: Study, inputs: "StudyInputs", results: Sequence[ReplayResult], *, planned: int, interrupted: bool
    ) -> Answer:
        """Return the answer from the results that were computed, in the order of the plan."""


def ask(study: Study, models: "StudyModels", runner: Runner | None = None) -> Answer:
    """Answer a study: read its inputs, replay its tasks, and compare. An interrupted study goes on from the kept
    results.

    Raises TableError and ModelError for files that break their format, InvalidInputError for fields that contradict
    each other or would change nothing, UnfitError for jobs that could never run, and KeyboardInterrupt where nothing
    was done before it.
    """
    runner = runner or Runner()
    question = find_question(study.question)
    study = question.resolved(study)
    inputs = question.inputs(study, models)
    runner.say(inputs.coverage.note())
    for note in inputs.notes:
        runner.say(note)
    replays, tasks = question.plan(study, inputs)
    done = run_replays(replays, tasks, runner)
    results, planned = results_of(replays, done), done.tasks
    further: Further = getattr(question, "further", lambda *_: ())
    while not done.interrupted and (tasks := list(further(study, inputs, results))):
        done = run_replays(replays, tasks, runner)
        results, planned = results + results_of(replays, done), planned + done.tasks
    return question.answer(study, inputs, results, planned=planned, interrupted=done.interrupted)


def find_question(name: str) -> Question:
    """Return the question of this name, or of the class `package:Class`. Raises InvalidInputError for an unknown
    name."""
    question: Question = find_extension(ExtensionKind.QUESTION, QUESTIONS.get(name, name), QUESTIONS)()
    return question


# --- inputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBeliefs:
    """Beliefs of a scheduler that never saw the hidden pairs."""

    predictor: MatrixPredictor
    hidden: frozenset[tuple[str, str]]  # unordered
    error: float  # mean |measured speed - predicted speed| over the hidden rows
    measured: MeasuredPairs  # the seen pairs


class StudyModels(Protocol):
    """The functions of models that studies need. A caller that can fit models passes an implementation."""

    def fit_beliefs(self, table: Table, truth: TruthTable, *, hide: float, seed: int) -> FittedBeliefs:
        """Return the beliefs of a model that never saw a share of the pairs of a table."""

    def fill_truth(self, table: Table, truth: TruthTable, *, seed: int) -> TruthTable:
        """Return the truth, with a model's predictions for pairs that nobody measured."""

    def predicted_truth(self, folder: Path, device_type: str, mode: OptionalSharingMode) -> TruthTable:
        """Return a model's predictions for the workloads whose profiles its folder contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInputs:
    """The inputs of the replays, the requested scenario first, with notes on them."""

    trace: str
    replays: ReplayInputs
    measured: TruthTable  # without assumptions about workloads that it lacks
    is_predicted: bool  # are slowdowns predictions of a model?
    coverage: Coverage
    unknown: tuple[UnknownWorkload, ...]  # most GPU hours first
    tried: frozenset[frozenset[str]]  # unordered pairs with a row of measurements; none of a model's predictions
    left_out: tuple[tuple[str, int], ...]  # jobs that cannot be replayed: reason, number
    notes: tuple[str, ...]  # on changes to the trace, the truth and the beliefs, one line each

    @property
    def worlds(self) -> tuple[World, ...]:
        """The worlds of the traces as recorded."""
        return self.replays.worlds


def read_inputs(study: Study, models: StudyModels, *, other_scenarios: bool = False) -> StudyInputs:
    """Read everything that a study replays.

    `other_scenarios`: also return the other assumptions about workloads without truth. Raises TableError and ModelError
    for files that break their format, InvalidInputError where the slowdowns cover next to nothing of the trace, several
    device types match, or devices are not known.
    """
    # 1. The trace, the slowdowns, and the worlds that they make.
    trace, map_note = _mapped(read_trace(study.trace), study.name_map)
    table = None if study.table is None else read_table(study.table)
    clusters = trace.clusters or given_clusters(study)
    if trace.clusters and (study.gpus is not None or study.gpus_by_type):
        raise InvalidInputError("the trace says which devices there are", value="--gpus", remedy="leave --gpus out")
    truths, tried = _truths(study, table, models, clusters)
    truth = known_on_any(truths)
    speeds, speeds_note = speeds_of(trace, truths, clusters)
    trace_worlds = worlds_of(
        trace,
        device_type=truth.device_type,
        mode=truth.mode,
        clusters=clusters,
        checkpoint_s=TIRESIAS_CHECKPOINT_S if study.checkpoint_s is None else study.checkpoint_s,
        speeds=speeds,
    )
    worlds = tuple(
        replace(world, jobs=tuple(with_turnover(job, study.turnover_s) for job in world.jobs))
        for world in trace_worlds.worlds
    )
    # 2. How much of the trace the slowdowns cover.
    coverage = coverage_of(truth, worlds)
    if other_scenarios or any(record.sharing for record in study.schedulers):
        require_coverage(coverage, truth, worlds)
    # 3. What is believed, in each scenario about workloads without truth.
    names = [job.workload for world in worlds for job in world.jobs]
    has_unknown = bool(set(filter(None, names)) - set(truth.workloads)) and study.model is None
    wanted = [study.unknown, *(UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST) * (other_scenarios and has_unknown)]
    scenarios, beliefs_note = list[Scenario](), ""
    for name in dict.fromkeys(wanted):
        assumed = [each if name == UNKNOWN_ALONE else assume_unknown(each, names, name) for each in truths]
        believed = [_beliefs(study, table, each, models) for each in assumed]
        predictors = [predictor for predictor, *_ in believed]
        scenarios.append(
            Scenario(
                name=name,
                truth=assumed[0],
                further_truths=tuple(assumed[1:]),
                beliefs=predictors[0] if len(truths) == 1 else beliefs_of_types(predictors, names, speeds),
                measured=tuple(pair for _, measured, _ in believed for pair in measured),
            )
        )
        beliefs_note = believed[0][-1]
    known = [each.note() for each in (scenarios[0].truth, *scenarios[0].further_truths)]
    notes = [map_note, *known, speeds_note, trace_worlds.note(), beliefs_note]
    # 4. Deadlines and edge devices.
    edge: EdgeSetting | None = None
    if study.deadlines is not None:
        if len(truths) > 1:
            raise InvalidInputError(
                "deadlines come with an edge, which is of one device type",
                value=", ".join(each.device_type for each in truths),
                remedy="leave deadlines out",
            )
        worlds = tuple(with_deadlines(world, study.deadlines, study.seed) for world in worlds)
        edge = EdgeSetting(added=study.added, revoked=study.taken, seed=study.seed)
        scenarios = [_with_edge(scenario, worlds) for scenario in scenarios]
        if math.isnan(trace.start_s):
            notes.append("the trace does not say when it began: it begins at midnight")
        if too_large := sum(len(world.jobs) - len(edge.apply(world).jobs) for world in worlds):
            notes.append(f"left out: {too_large} larger than the cloud of their virtual cluster")
    finite_caps = [cap for cap in study.caps if math.isfinite(cap)]
    return StudyInputs(
        trace=trace.name,
        replays=ReplayInputs(
            worlds=worlds,
            scenarios=tuple(scenarios),
            counted_cap=finite_caps[0] if len(finite_caps) == 1 else COUNTED_CAP,
            seed=study.seed,
            edge=edge,
            options=SchedulerOptions(
                max_shared_gpus=study.most_shared_gpus,
                guest_ends_first=study.guest_may_stay is False,
                whole_nodes=study.whole_nodes is not False,
                slice_s=study.slice_s,
                round_s=study.round_s,
                limit_unit_s=study.limit_unit_s,
                duration_error=study.duration_error,
                seed=study.seed,
            ),
            online=study.online,
        ),
        measured=truth,
        is_predicted=study.model is not None,
        coverage=coverage,
        unknown=unknown_workloads(truth, worlds),
        tried=tried,
        left_out=trace_worlds.left_out,
        notes=tuple(filter(None, notes)),
    )


def _mapped(trace: JobTrace, name_map: Path | None) -> tuple[JobTrace, str]:
    """Return the trace with its workloads renamed by the patterns of a file, and a note on how many jobs matched."""
    if name_map is None:
        return trace, ""
    patterns = read_workload_map(name_map)
    renamed = [replace(job, workload=patterns.workload(job.workload) or job.workload) for job in trace.jobs]
    matched = sum(bool(patterns.workload(job.workload)) for job in trace.jobs)
    return replace(trace, jobs=tuple(renamed)), f"names: {matched} of {len(renamed)} jobs mapped by {name_map.name}"


def _truths(
    study: Study, table: Table | None, models: StudyModels, clusters: Sequence[VirtualCluster]
) -> tuple[tuple[TruthTable, ...], frozenset[frozenset[str]]]:
    """Return the true slowdowns on each device type, and the unordered pairs that have a row of measurements in the
    table.

    The first type is the one on which run times of the trace hold: that of the study, or else the first of the trace.
    """
    named = [each.device_type for each in clusters if each.device_type]
    types = list(dict.fromkeys([study.device_type, *named] if study.device_type else named)) or [""]
    if named and types[0] not in named:
        raise InvalidInputError(
            "no device of the trace is of this type", value=study.device_type, remedy=f"one of {', '.join(types[1:])}"
        )
    if table is None:
        folder = load_settings(model=study.model).served_folder
        return tuple(models.predicted_truth(folder, kind, study.mode or "") for kind in types), frozenset()
    truths = [truth_of(table, device_type=kind, mode=study.mode or "") for kind in types]
    if len({truth.mode for truth in truths}) > 1:
        raise InvalidInputError(
            "all device types of a study share in one way",
            value="; ".join(f"{truth.device_type}, {truth.mode}" for truth in truths),
            remedy="name one with mode",
        )
    if study.fill:
        truths = [models.fill_truth(table, truth, seed=study.seed) for truth in truths]
    keys = {(truth.device_type, truth.mode, STEP_TIME) for truth in truths}
    rows = [row for row in table.pairs if (row.device_type, row.mode, row.metric) in keys]
    return tuple(truths), frozenset(frozenset((row.victim, row.neighbour)) for row in rows)


def _beliefs(
    study: Study, table: Table | None, truth: TruthTable, models: StudyModels
) -> tuple[MatrixPredictor, MeasuredPairs, str]:
    """Return the predictor that decides about sharing, the pairs for which it answers with measurements, and a note."""
    if study.predict == "mean":
        return mean_beliefs(truth), (), "predictions: the mean of all pairs, for every pair"
    if study.predict == "truth":
        return (noisy_beliefs(truth, study.error, study.seed) if study.error else true_beliefs(truth)), (), ""
    assert table is not None
    assert study.hide is not None
    fitted = models.fit_beliefs(table, truth, hide=study.hide, seed=study.seed)
    note = (
        f"predictions: {len(fitted.hidden)} pairs hidden ({study.hide:.0%}), on these the model's mean error of "
        f"speed is {fitted.error:.3f}; the others by their measurement"
    )
    return fitted.predictor, fitted.measured, note


def _with_edge(scenario: Scenario, worlds: Sequence[World]) -> Scenario:
    """Return the scenario extended by the edge, where slowdowns are the same."""
    truth, *further = edge_truth(scenario.truth)
    beliefs = edge_beliefs(scenario.beliefs, [job.workload for world in worlds for job in world.jobs])
    measured = tuple(
        (*pair[:2], device_type, pair[3]) for pair in scenario.measured for device_type in beliefs.device_types
    )
    return replace(scenario, truth=truth, further_truths=tuple(further), beliefs=beliefs, measured=measured)
