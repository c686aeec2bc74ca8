"""One question of `interfere replay` answered: a trace, a truth and policies in, a study out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interfere.data.tables import Table, read_table
from interfere.data.traces import JobTrace, VirtualCluster, read_trace
from interfere.errors import InvalidInputError
from interfere.predict.residual import OnlineModel
from interfere.protocols import Predictor
from interfere.sim.beliefs import MatrixPredictor, ignorant, knowing, noisy
from interfere.sim.cluster import Scheduler
from interfere.sim.schedulers.learning import LearningScheduler
from interfere.sim.schedulers.registry import DEFAULT, DEFAULT_CAP, Beliefs, check_policy, scheduler_of
from interfere.sim.study import Study, study
from interfere.sim.trace_worlds import Worlds, worlds_of
from interfere.sim.truth import TableTruth, TruthTable, truth_of

WHY_FIRST = "devices that pass from guest to guest never come free for gangs; without gangs the rule would only cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options of the command, each as its help line says."""

    trace: Path
    truth: Path
    policies: tuple[str, ...] = ()
    predict: str = "truth"
    hide: float = 0.3
    online: bool = False
    error: float = 0.0
    cap: float = DEFAULT_CAP
    fill: bool = False
    device_type: str = ""
    mode: str = ""
    gpus: int | None = None
    per_node: int = 8
    whole_nodes: bool = True
    load: float | None = None
    draws: int = 0
    checkpoint_s: float = 0.0
    slice_s: float = 0.0
    guest_may_stay: bool = False
    most_shared_gpus: int | None = None
    shuffle_ties: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The study, and what is to be known about it."""

    question: Question
    study: Study
    notes: tuple[str, ...]  # truth, trace, predictions: what was clipped, filled, left out


def replayed(question: Question, *, report: Callable[[str], None] | None = None) -> Answer:
    """Read, replay and score. Raises TableError for files that break their schema, InvalidInputError for options that
    make no sense together, UnfitError for jobs that could never run."""
    say = report or (lambda _: None)
    for policy in question.policies:
        check_policy(policy)
    table = read_table(question.truth)
    truth = truth_asked(question, table)
    worlds = worlds_asked(question, read_trace(question.trace), truth)
    notes = [truth.note(), worlds.note()]
    for note in notes:
        say(note)
    ends_first = not question.guest_may_stay and any(job.gpus > 1 for world in worlds.worlds for job in world.jobs)
    if ends_first:
        notes.append(f"guests end first, where nobody is stopped: {WHY_FIRST}")
    belief, measured, note = belief_asked(question, table, truth)
    if note:
        notes.append(note)
        say(note)
    found = study(
        worlds.worlds,
        TableTruth([truth]),
        question.policies or DEFAULT,
        _maker(question, belief, truth, measured, ends_first=ends_first),
        draws=question.draws,
        load=question.load,
        cap=question.cap,
        seed=question.seed,
        report=say,
    )
    if found.dropped:
        notes.append(f"draws with an offered load of 1 or more count nowhere: {', '.join(found.dropped)}")
    return Answer(question=question, study=found, notes=tuple(notes))


def truth_asked(question: Question, table: Table) -> TruthTable:
    """What really happens, with what the table lacks filled by a model where that was asked for."""
    truth = truth_of(table, device_type=question.device_type, mode=question.mode)
    if question.fill:
        from training.replay.model_beliefs import filled

        truth = filled(table, truth, seed=question.seed)
    return truth


def worlds_asked(question: Question, trace: JobTrace, truth: TruthTable) -> Worlds:
    """One world a virtual cluster."""
    clusters: tuple[VirtualCluster, ...] = ()
    if question.gpus is not None:
        if trace.clusters:
            raise InvalidInputError(
                "the trace says which devices there are", value=f"--gpus {question.gpus}", remedy="leave --gpus out"
            )
        per_node = min(question.per_node, question.gpus)
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
        checkpoint_s=question.checkpoint_s,
        tie_seed=question.seed if question.shuffle_ties else None,
    )


_Measured = tuple[tuple[str, str, str, str], ...]


def belief_asked(question: Question, table: Table, truth: TruthTable) -> tuple[MatrixPredictor, _Measured, str]:
    """What sharing decides by, which pairs of it are measurements, and a note about it."""
    if question.error and question.predict != "truth":
        raise InvalidInputError(
            "an error is put on the truth only",
            value=f"--error {question.error} --predict {question.predict}",
            remedy="leave one out",
        )
    if question.predict == "mean":
        return ignorant(truth), (), "predictions: the mean of all pairs, for every pair"
    if question.predict == "truth":
        return (noisy(truth, question.error, question.seed) if question.error else knowing(truth)), (), ""
    from training.replay.model_beliefs import modelled

    found = modelled(table, truth, hide=question.hide, seed=question.seed)
    note = (
        f"predictions: {len(found.hidden)} pairs hidden ({question.hide:.0%}), on these the model's mean error of "
        f"speed is {found.error:.3f}; the others by their measurement"
    )
    return found.predictor, found.measured, note


def _maker(
    question: Question, belief: MatrixPredictor, truth: TruthTable, measured: _Measured, *, ends_first: bool
) -> Callable[[str], Scheduler]:
    """Fresh schedulers, each with an online model of its own where learning was asked for."""

    def make(policy: str) -> Scheduler:
        predictor: Predictor = OnlineModel(belief, measured=measured) if question.online else belief
        beliefs = Beliefs(
            predictor=predictor,
            profiles=belief.profiles,
            mode=truth.mode,
            max_slowdown=question.cap,
            guest_ends_first=ends_first,
            most_shared_gpus=question.most_shared_gpus,
        )
        made = scheduler_of(policy, beliefs, whole_nodes=question.whole_nodes, slice_s=question.slice_s)
        if isinstance(predictor, OnlineModel):
            return LearningScheduler(made, predictor, belief.profiles, truth.mode)
        return made

    return make
