"""Answers a question of `interfere replay`: reads a trace and a truth, replays schedulers, and returns their study."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from interfere.data.tables import Table, read_table
from interfere.data.traces import JobTrace, read_trace
from interfere.errors import InvalidInputError
from interfere.predict.residual import OnlineModel
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import MatrixPredictor, mean_beliefs, noisy_beliefs, true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.edge_world import (
    FAMILIES,
    DeadlineDraws,
    EdgeSetting,
    draw_deadlines,
    edge_beliefs,
    edge_truth,
    read_draws,
    with_deadlines,
)
from interfere.sim.schedulers.learning import LearningScheduler
from interfere.sim.schedulers.names import one_gpu_name, parse_name
from interfere.sim.schedulers.registry import SchedulerSettings, make_scheduler
from interfere.sim.study import Study, study
from interfere.sim.trace_worlds import TraceWorlds, days_spanned, has_ties, worlds_of
from interfere.sim.truth import UNKNOWN_ALONE, Composition, TableTruth, TruthTable, assume_unknown, truth_of
from interfere.sim.world import World
from interfere.training.replay.clusters import given_clusters
from interfere.training.replay.coverage import Coverage, coverage_of, require_coverage
from interfere.training.replay.question import COUNTED_CAP, Question, check_options
from interfere.training.replay.tuned_constants import tuned_here, tuned_note

GUESTS_END_FIRST = "guests end first, where no job is preempted: a job joins one that is expected to end no earlier"
OVERLOADED = "draws with an offered load of 1 or more count nowhere"
INTERRUPTED = "interrupted: of the traces that every policy was replayed on by then"
COMPOSED_GROUPS = (
    "seats: a group that the truth did not measure slows each job down by the sum of its pairs, 1 + Σ (s - 1), unless "
    "the title of a table says by their product; the scheduler composes groups as the server does"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The study, and what is to be known about it."""

    question: Question  # resolved, with the policies that were replayed
    coverage: Coverage
    study: Study  # groups that nobody measured are the sum of their pairs
    product: Study | None  # the same where they are the product; None where no more than two jobs share a device
    notes: tuple[str, ...]  # truth, trace, predictions: what was clipped, filled, left out
    deadline_draws: tuple[DeadlineDraws, ...] = ()  # one a world; empty without deadlines
    tuned: Mapping[str, str] = field(default_factory=dict)  # policy -> what of it was chosen on this very trace


def answer_question(question: Question, *, report: Callable[[str], None] | None = None) -> Answer:
    """Read, replay and score. Raises TableError for files that break their schema, InvalidInputError for options that
    make no sense together or would change nothing, UnfitError for jobs that could never run."""
    check_options(question)
    notes: list[str] = []

    def note(text: str) -> None:
        if text:
            notes.append(text)
            if report is not None:
                report(text)

    # 1. The truth, the worlds and what is believed.
    table, trace = read_table(question.truth), read_trace(question.trace)
    truth = _truth(question, table)
    trace_worlds = _worlds(question, trace, truth)
    _check_draws(question, trace_worlds.worlds)
    question = question.resolved()
    coverage = coverage_of(truth, trace_worlds.worlds)
    if any(parse_name(name).sharing for name in question.policies):
        require_coverage(coverage, truth, trace_worlds.worlds)
        question = replace(question, policies=_policies(question, coverage))
    note(coverage.note())
    assert question.guest_may_stay is not None
    tuned = tuned_here(trace_worlds.worlds, question.policies, guest_may_stay=question.guest_may_stay)
    note(tuned_note(tuned))
    if question.unknown != UNKNOWN_ALONE:
        names = [job.workload for world in trace_worlds.worlds for job in world.jobs]
        truth = assume_unknown(truth, names, question.unknown)
    note(truth.note())
    note(trace_worlds.note())
    if not question.guest_may_stay:
        note(GUESTS_END_FIRST)
    belief, measured, belief_note = _beliefs(question, table, truth)
    note(belief_note)
    # 2. Deadlines and edge devices.
    worlds: Sequence[World] = trace_worlds.worlds
    truths: tuple[TruthTable, ...] = (truth,)
    edge: EdgeSetting | None = None
    deadline_draws: tuple[DeadlineDraws, ...] = ()
    if question.deadlines is not None:
        deadline_draws = _deadline_draws(worlds, question.deadlines, question.seed)
        worlds = [with_deadlines(world, draws) for world, draws in zip(worlds, deadline_draws, strict=True)]
        edge = EdgeSetting(added=question.added, revoked=question.taken, seed=question.seed)
        truths = edge_truth(truth)
        belief = edge_beliefs(belief, [job.workload for world in worlds for job in world.jobs])
        measured = tuple((*pair[:2], device_type, pair[3]) for pair in measured for device_type in belief.device_types)
        note("the trace does not say when it began: it begins at midnight" if math.isnan(trace.start_s) else "")
        note(_left_out_note(worlds, edge))
    # 3. Replay every scheduler on every trace.
    assert question.cap is not None
    replay_all = partial(
        study,
        worlds,
        policies=question.policies,
        make=_maker(question, belief, truth.mode, measured),
        draws=question.draws,
        tie_draws=question.tie_draws or 0,
        load=question.load,
        prepare=edge.apply if edge is not None else None,
        cap=question.cap if math.isfinite(question.cap) else COUNTED_CAP,
        seed=question.seed,
        references=question.deadlines is None,
        report=report,
    )
    result, product = _study_both_ends(replay_all, truths, question.policies)
    note(COMPOSED_GROUPS if product is not None else "")
    notes += [f"draws with an offered load of 1 or more count nowhere: {', '.join(result.dropped)}"] * bool(
        result.dropped
    )
    notes[:0] = [INTERRUPTED] * result.interrupted
    return Answer(
        question=question,
        coverage=coverage,
        study=result,
        product=product,
        notes=tuple(notes),
        deadline_draws=deadline_draws,
        tuned=tuned,
    )


def _study_both_ends(
    replay_all: Callable[..., Study], truths: Sequence[TruthTable], policies: Sequence[str]
) -> tuple[Study, Study | None]:
    """The study of all policies, groups being the sum of their pairs; and where more than two jobs may share a device
    that at the other end of what groups may do: their product. Policies of pairs are replayed once."""
    result = replay_all(TableTruth(truths, Composition.SUM))
    if result.interrupted or all(parse_name(name).seats == DEFAULT_SEATS for name in policies):
        return result, None
    of_pairs = [run for run in result.runs if parse_name(run.policy).seats == DEFAULT_SEATS]
    return result, replay_all(TableTruth(truths, Composition.PRODUCT), known_runs=of_pairs)


def _policies(question: Question, coverage: Coverage) -> tuple[str, ...]:
    """The policies of the question; where gangs would share, each that shares also with one-GPU jobs only."""
    if not coverage.has_gangs or question.most_shared_gpus is not None:
        return question.policies
    pairs = ((one_gpu_name(name), name) for name in question.policies)
    return tuple(dict.fromkeys(name for pair in pairs for name in pair if name))


def _check_draws(question: Question, worlds: Sequence[World]) -> None:
    """Raises InvalidInputError where redrawn days would be the day that was recorded, or ties that are asked for are
    none."""
    if question.tie_draws and not any(has_ties(world) for world in worlds):
        raise InvalidInputError(
            "--tie-draws would change nothing: no two jobs of a world arrive together",
            value=f"--tie-draws {question.tie_draws}",
            remedy="leave it out",
        )
    if question.draws and all(days_spanned(world) == 1 for world in worlds):
        raise InvalidInputError(
            "--draws would change nothing: every world of the trace arrives within one day",
            value=f"--draws {question.draws}",
            remedy="leave it out, or give a trace of several days",
        )


def _truth(question: Question, table: Table) -> TruthTable:
    """The truth of the replay; where asked for, a model fills what the table lacks."""
    truth = truth_of(table, device_type=question.device_type, mode=question.mode)
    if question.fill:
        from interfere.training.replay.model_beliefs import fill_truth

        truth = fill_truth(table, truth, seed=question.seed)
    return truth


def _worlds(question: Question, trace: JobTrace, truth: TruthTable) -> TraceWorlds:
    """One world per virtual cluster."""
    settings = question.resolved()
    assert settings.per_node is not None
    assert settings.checkpoint_s is not None
    return worlds_of(
        trace,
        device_type=truth.device_type,
        mode=truth.mode,
        clusters=given_clusters(trace, question.gpus, settings.per_node),
        checkpoint_s=settings.checkpoint_s,
        tie_seed=question.seed if question.shuffle_ties else None,
    )


MeasuredPairs = tuple[tuple[str, str, str, SharingMode], ...]
"""(victim, neighbour, device type, mode) of the pairs whose prediction is a measurement."""


def _beliefs(question: Question, table: Table, truth: TruthTable) -> tuple[MatrixPredictor, MeasuredPairs, str]:
    """What sharing is decided by, which pairs of it are measurements, and a note about it."""
    if question.predict == "mean":
        return mean_beliefs(truth), (), "predictions: the mean of all pairs, for every pair"
    if question.predict == "truth":
        exact = true_beliefs(truth)
        return (noisy_beliefs(truth, question.error, question.seed) if question.error else exact), (), ""
    from interfere.training.replay.model_beliefs import fit_beliefs

    assert question.hide is not None
    fitted = fit_beliefs(table, truth, hide=question.hide, seed=question.seed)
    note = (
        f"predictions: {len(fitted.hidden)} pairs hidden ({question.hide:.0%}), on these the model's mean error of "
        f"speed is {fitted.error:.3f}; the others by their measurement"
    )
    return fitted.predictor, fitted.measured, note


def _deadline_draws(worlds: Sequence[World], deadlines: str, seed: int) -> tuple[DeadlineDraws, ...]:
    """Deadlines in the order of the worlds: drawn from a family, or read from a file of draws."""
    if deadlines in FAMILIES or not Path(deadlines).exists():
        return tuple(draw_deadlines(world, deadlines, seed) for world in worlds)
    draws = {draw.world: draw for draw in read_draws(Path(deadlines))}
    missing = [world.name for world in worlds if world.name not in draws]
    if missing:
        raise InvalidInputError(
            f"no deadlines of world {missing[0]} in the file",
            value=deadlines,
            remedy=f"it has {', '.join(draws) or 'none'}; draw anew with one of {', '.join(FAMILIES)}",
        )
    return tuple(draws[world.name] for world in worlds)


def _left_out_note(worlds: Sequence[World], edge: EdgeSetting) -> str:
    jobs = sum(len(world.jobs) - len(edge.apply(world).jobs) for world in worlds)
    return f"left out: {jobs} larger than the cloud of their virtual cluster" if jobs else ""


def _maker(
    question: Question, belief: MatrixPredictor, mode: SharingMode, measured: MeasuredPairs
) -> Callable[[str], Scheduler]:
    """Makes schedulers by name, each with an online model of its own where learning was asked for."""
    assert question.cap is not None
    assert question.whole_nodes is not None
    settings = SchedulerSettings(
        predictor=belief,
        profiles=belief.profiles,
        mode=mode,
        max_slowdown=question.cap if math.isfinite(question.cap) else math.nan,
        max_shared_gpus=question.most_shared_gpus,
        guest_ends_first=not question.guest_may_stay,
        whole_nodes=question.whole_nodes,
        slice_s=question.slice_s,
        duration_error=question.duration_error,
        seed=question.seed,
    )

    def make(name: str) -> Scheduler:
        if not question.online:
            return make_scheduler(name, settings)
        online = OnlineModel(belief, measured=measured)
        scheduler = make_scheduler(name, replace(settings, predictor=online))
        return LearningScheduler(scheduler, online, belief.profiles, mode)

    return make
