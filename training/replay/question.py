"""One question of `interfere replay` answered: a trace, a truth and schedulers in, a study out.

Law: every option changes the answer or is refused; none is silently ignored.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interfere.data.tables import Table, read_table
from interfere.data.traces import JobTrace, VirtualCluster, read_trace
from interfere.errors import InvalidInputError
from interfere.predict.residual import OnlineModel
from interfere.sim.beliefs import MatrixPredictor, mean_beliefs, noisy_beliefs, true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.edge_world import (
    CHECKPOINT_S,
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
from interfere.sim.schedulers.registry import (
    DEADLINE_DEFAULT,
    DEFAULT,
    DEFAULT_CAP,
    SchedulerSettings,
    canonical_name,
    make_scheduler,
    parse_name,
)
from interfere.sim.study import Study, study
from interfere.sim.trace_worlds import TraceWorlds, worlds_of
from interfere.sim.truth import TableTruth, TruthTable, truth_of
from interfere.sim.world import World

TIRESIAS_CHECKPOINT_S = 62.0  # the mean that Tiresias measured (Gu et al., NSDI 2019)
HIDDEN_SHARE = 0.3
NODE_GPUS = 8
GUESTS_END_FIRST = (
    "guests end first, where no job is preempted: devices that pass from guest to guest never come free for gangs; "
    "without gangs the rule would only cost"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options of the command, each as its help line says. None: the default, which `resolved` fills in."""

    trace: Path
    truth: Path
    policies: tuple[str, ...] = ()
    predict: str = "truth"
    hide: float | None = None
    online: bool = False
    error: float = 0.0
    cap: float | None = None  # inf: none
    fill: bool = False
    device_type: str = ""
    mode: str = ""
    gpus: int | None = None
    per_node: int | None = None
    whole_nodes: bool | None = None
    load: float | None = None
    draws: int = 0
    checkpoint_s: float | None = None
    slice_s: float = 0.0
    guest_may_stay: bool | None = None
    most_shared_gpus: int | None = None
    shuffle_ties: bool = False
    deadlines: str | None = None
    added: bool = False
    taken: bool = False
    seed: int = 0

    def resolved(self, *, has_gangs: bool = True) -> "Question":
        """The question with every default filled in. `has_gangs`: some job of the trace takes several devices.

        Deadlines limit slowdowns by themselves, and their replays have been without cap, whole nodes and the rule that
        guests end first from the start: published figures are comparable only so.
        """
        dated = self.deadlines is not None
        return replace(
            self,
            policies=tuple(canonical_name(name) for name in self.policies) or (DEADLINE_DEFAULT if dated else DEFAULT),
            hide=HIDDEN_SHARE if self.hide is None else self.hide,
            cap=(math.inf if dated else DEFAULT_CAP) if self.cap is None else self.cap,
            per_node=NODE_GPUS if self.per_node is None else self.per_node,
            whole_nodes=not dated if self.whole_nodes is None else self.whole_nodes,
            checkpoint_s=(CHECKPOINT_S if dated else TIRESIAS_CHECKPOINT_S)
            if self.checkpoint_s is None
            else self.checkpoint_s,
            guest_may_stay=dated or not has_gangs if self.guest_may_stay is None else self.guest_may_stay,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The study, and what is to be known about it."""

    question: Question  # resolved
    study: Study
    notes: tuple[str, ...]  # truth, trace, predictions: what was clipped, filled, left out
    deadline_draws: tuple[DeadlineDraws, ...] = ()  # one a world; empty without deadlines


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
    has_gangs = any(job.gpus > 1 for world in trace_worlds.worlds for job in world.jobs)
    question = question.resolved(has_gangs=has_gangs)
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
    result = study(
        worlds,
        TableTruth(truths),
        question.policies,
        _maker(question, belief, truth.mode, measured),
        draws=question.draws,
        load=question.load,
        prepare=edge.apply if edge is not None else None,
        cap=question.cap if math.isfinite(question.cap) else DEFAULT_CAP,
        seed=question.seed,
        references=question.deadlines is None,
        report=report,
    )
    if result.dropped:
        notes.append(f"draws with an offered load of 1 or more count nowhere: {', '.join(result.dropped)}")
    return Answer(question=question, study=result, notes=tuple(notes), deadline_draws=deadline_draws)


def check_options(question: Question) -> None:
    """Raises InvalidInputError for an unknown scheduler and for an option that would change nothing."""
    names = [parse_name(name) for name in question.resolved().policies]
    shares = any(name.sharing for name in names)
    preempts = any(name.is_preemptive for name in names)
    dated = question.deadlines is not None
    # (option, is it given?, does it act here?, what it needs)
    needs: list[tuple[str, bool, bool, str]] = [
        ("--hide", question.hide is not None, question.predict == "model", "--predict model"),
        ("--per-node", question.per_node is not None, question.gpus is not None, "--gpus"),
        ("--added", question.added, dated, "--deadlines"),
        ("--taken", question.taken, dated, "--deadlines"),
        ("--predict", question.predict != "truth", shares, "a policy that shares"),
        ("--online", question.online, shares, "a policy that shares"),
        ("--error", question.error > 0, shares, "a policy that shares"),
        ("--cap", question.cap is not None, shares, "a policy that shares"),
        ("--most-shared-gpus", question.most_shared_gpus is not None, shares, "a policy that shares"),
        (
            "--guest-may-stay and --guest-ends-first",
            question.guest_may_stay is not None,
            any(name.uses_guest_ends_first for name in names),
            "a policy that shares and stops no job",
        ),
        (
            "--slice-s",
            question.slice_s > 0,
            any(name.uses_slices for name in names),
            "a policy with an order that shares and stops no job",
        ),
        (
            "--any-node and --whole-nodes",
            question.whole_nodes is not None,
            any(name.uses_whole_nodes for name in names),
            "a policy with an order, or slots",
        ),
        (
            "--checkpoint-s",
            question.checkpoint_s is not None,
            preempts or dated,
            "a policy that stops jobs (tiresias, srtf), or --deadlines",
        ),
    ]
    for option, is_given, acts, need in needs:
        if is_given and not acts:
            raise InvalidInputError(
                f"{option} would change nothing: it needs {need}",
                value=f"policies {', '.join(question.policies)}" if question.policies else "the default policies",
                remedy="leave it out, or give what it needs",
            )
    if question.error and question.predict != "truth":
        raise InvalidInputError(
            "an error is put on the truth only",
            value=f"--error {question.error} --predict {question.predict}",
            remedy="leave one out",
        )


def _truth(question: Question, table: Table) -> TruthTable:
    """The truth of the replay; where asked for, a model fills what the table lacks."""
    truth = truth_of(table, device_type=question.device_type, mode=question.mode)
    if question.fill:
        from training.replay.model_beliefs import fill_truth

        truth = fill_truth(table, truth, seed=question.seed)
    return truth


def _worlds(question: Question, trace: JobTrace, truth: TruthTable) -> TraceWorlds:
    """One world per virtual cluster."""
    settings = question.resolved()
    assert settings.per_node is not None
    assert settings.checkpoint_s is not None
    clusters: tuple[VirtualCluster, ...] = ()
    if question.gpus is not None:
        if trace.clusters:
            raise InvalidInputError(
                "the trace says which devices there are", value=f"--gpus {question.gpus}", remedy="leave --gpus out"
            )
        per_node = min(settings.per_node, question.gpus)
        if question.gpus % per_node:
            raise InvalidInputError(
                "devices do not fill their nodes",
                value=f"--gpus {question.gpus} --per-node {per_node}",
                remedy="give a multiple",
            )
        clusters = (VirtualCluster(vc="all", nodes=question.gpus // per_node, gpus_per_node=per_node),)
    return worlds_of(
        trace,
        device_type=truth.device_type,
        mode=truth.mode,
        clusters=clusters,
        checkpoint_s=settings.checkpoint_s,
        tie_seed=question.seed if question.shuffle_ties else None,
    )


MeasuredPairs = tuple[tuple[str, str, str, str], ...]
"""(victim, neighbour, device type, mode) of the pairs whose prediction is a measurement."""


def _beliefs(question: Question, table: Table, truth: TruthTable) -> tuple[MatrixPredictor, MeasuredPairs, str]:
    """What sharing is decided by, which pairs of it are measurements, and a note about it."""
    if question.predict == "mean":
        return mean_beliefs(truth), (), "predictions: the mean of all pairs, for every pair"
    if question.predict == "truth":
        exact = true_beliefs(truth)
        return (noisy_beliefs(truth, question.error, question.seed) if question.error else exact), (), ""
    from training.replay.model_beliefs import fit_beliefs

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
    question: Question, belief: MatrixPredictor, mode: str, measured: MeasuredPairs
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
    )

    def make(name: str) -> Scheduler:
        if not question.online:
            return make_scheduler(name, settings)
        online = OnlineModel(belief, measured=measured)
        scheduler = make_scheduler(name, replace(settings, predictor=online))
        return LearningScheduler(scheduler, online, belief.profiles, mode)

    return make
