"""One replay of a study as a task: a scheduler on one trace at one load, and what it came to.

Law: equal inputs and tasks give equal results, but for the times that they took, wherever they run.
"""

import hashlib
import math
import time
from dataclasses import dataclass, field, fields, replace

import numpy as np

from interfere import __version__
from interfere.predict.residual import OnlineModel
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.cluster import Scheduler
from interfere.sim.edge_world import EdgeSetting
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.records import SchedulerRecord
from interfere.sim.schedulers.registry import LearningScheduler, make_scheduler
from interfere.sim.schedulers.sharing import SchedulerOptions, SchedulerSettings
from interfere.sim.score import DayTotals, Score, day_totals_of, score
from interfere.sim.trace_worlds import redraw_days, scale_to_load, typical_week, without_devices
from interfere.sim.truth import GANG_EXCESS, Composition, TableTruth, TruthTable
from interfere.sim.world import World
from interfere.study.engine import Document, Runner, TaskResults, tell

MeasuredPairs = tuple[tuple[str, str, str, SharingMode], ...]
"""(victim, neighbour, device type, mode) of the pairs whose prediction is a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The true slowdowns of jobs that run together, and the slowdowns that schedulers believe."""

    name: str
    truth: TruthTable
    beliefs: MatrixPredictor
    measured: MeasuredPairs = ()  # beliefs that are measurements, where schedulers learn
    further_truths: tuple[TruthTable, ...] = ()  # of further device types


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs:
    """The inputs that all tasks of a study share."""

    worlds: tuple[World, ...]  # traces as recorded
    scenarios: tuple[Scenario, ...]
    counted_cap: float = 1.5  # slowdown past which pairs are counted
    seed: int = 0  # of redrawn days
    edge: EdgeSetting | None = None  # added once days are drawn and arrivals are stretched
    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    online: bool = False  # do schedulers learn from what the replayed jobs measured so far?
    days_as_recorded: bool = True  # days by recorded arrivals, or else by arrivals stretched to a load
    keep_jobs: bool = False  # keep the fate of every job of the traces as recorded

    def digest(self) -> str:
        """Return a checksum of everything that results depend on, the version of this package included."""
        drawn = (self.counted_cap, self.seed, self.edge, self.options)
        rest = (__version__, drawn, self.online, self.days_as_recorded, self.keep_jobs)
        content = hashlib.sha256(repr(rest).encode())
        for world in self.worlds:
            content.update(repr(world).encode())
        for scenario in self.scenarios:
            for truth in (scenario.truth, *scenario.further_truths):
                content.update(repr((scenario.name, truth.device_type, truth.workloads, truth.groups)).encode())
                content.update(truth.table.tobytes())
            beliefs = (scenario.beliefs.version, scenario.beliefs.device_types, tuple(scenario.beliefs.index))
            content.update(repr((beliefs, scenario.measured)).encode())
            content.update(repr(scenario.beliefs.spread).encode())
            content.update(np.ascontiguousarray(scenario.beliefs.slowdown).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """One replay of a study: a scheduler on one trace at one load."""

    scheduler: SchedulerRecord
    world: int = 0  # index in `ReplayInputs.worlds`
    load: float | None = None  # offered; None: as recorded
    draw: int = 0  # 0: the recorded days; else the number of the redraw
    max_slowdown: float = math.inf  # cap on predicted slowdowns of jobs that share
    scenario: int = 0  # index in `ReplayInputs.scenarios`
    composition: Composition = Composition.SUM  # of groups of three and more that the truth did not measure
    week: bool = False  # only the week of the trace that is most like the whole of it
    given_back: int = 0  # devices that are gone, of those of the trace
    given_type: str = ""  # of which they are; empty: of any
    gang_excess: float = GANG_EXCESS  # what gangs lose beside others, relative to jobs on one device


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayResult:
    """The result of one replay."""

    task: ReplayTask
    world: str
    load: float  # offered, before edge devices are added or taken away
    score: Score
    days: DayTotals | None  # of recorded days; None for redrawn ones
    replayed: Replayed | None  # of the trace as recorded, without spans; None where jobs are not kept
    seconds: float  # that the replay took
    cpu_s: float

    @property
    def policy(self) -> str:
        """The label of the scheduler."""
        return self.task.scheduler.label


def run_replays(inputs: ReplayInputs, tasks: list[ReplayTask], runner: Runner) -> TaskResults[ReplayTask]:
    """Replay every task, and return the results."""
    return runner.run(replay_task, inputs, tasks, digest=inputs.digest, describe=describe)


def results_of(inputs: ReplayInputs, done: TaskResults[ReplayTask]) -> tuple[ReplayResult, ...]:
    """Return the results in the order of the tasks."""
    return tuple(_result(inputs, task, document) for task, document in done.documents.items())


def replay_task(inputs: ReplayInputs, task: ReplayTask) -> Document:
    """Replay one task. Raises InvalidInputError for a trace that cannot be stretched, UnfitError for jobs that could
    never run."""
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    recorded, scenario = inputs.worlds[task.world], inputs.scenarios[task.scenario]
    trace = trace_of(inputs, task)
    replayed = replay(
        trace,
        TableTruth((scenario.truth, *scenario.further_truths), task.composition, gang_excess=task.gang_excess),
        _scheduler(inputs, task),
        seats=task.scheduler.seats,
        report=lambda over, jobs: tell(f"{trace.name} {task.scheduler.label}: {over} of {jobs} jobs are over"),
    )
    document: Document = {
        "world": recorded.name,
        "load": _drawn(inputs, task).load,
        "score": _by_field(score([replayed], inputs.counted_cap)),
    }
    if not task.draw:
        arrivals = {job.id: job.arrival_s for job in (recorded if inputs.days_as_recorded else trace).jobs}
        document["days"] = _by_field(day_totals_of(replayed, np.array([arrivals[job.id] for job in trace.jobs])))
    if inputs.keep_jobs and not task.draw:
        document["jobs"] = {name: getattr(replayed, name) for name in _KEPT}
    return document | {"seconds": time.perf_counter() - started_s, "cpu_s": time.process_time() - cpu_started_s}


def _by_field(record: Score | DayTotals) -> Document:
    return {each.name: getattr(record, each.name) for each in fields(record)}


_KEPT = [each.name for each in fields(Replayed) if each.name not in ("world", "spans")]


def _result(inputs: ReplayInputs, task: ReplayTask, document: Document) -> ReplayResult:
    jobs = document.get("jobs")
    return ReplayResult(
        task=task,
        world=document["world"],
        load=document["load"],
        score=Score(**document["score"]),
        days=DayTotals(**document["days"]) if "days" in document else None,
        replayed=None if jobs is None else Replayed(world=trace_of(inputs, task), spans=(), **jobs),
        seconds=document["seconds"],
        cpu_s=document["cpu_s"],
    )


def trace_of(inputs: ReplayInputs, task: ReplayTask) -> World:
    """Return the trace that a task replays."""
    drawn = _drawn(inputs, task)
    prepared = drawn if inputs.edge is None else inputs.edge.apply(drawn)
    return without_devices(prepared, task.given_back, task.given_type) if task.given_back else prepared


def _drawn(inputs: ReplayInputs, task: ReplayTask) -> World:
    """Return the worlds as recorded for draw 0, else with redrawn days. A given load stretches the arrivals."""
    recorded = typical_week(inputs.worlds[task.world]) if task.week else inputs.worlds[task.world]
    drawn = redraw_days(recorded, inputs.seed * 1000 + task.draw) if task.draw else recorded
    return drawn if task.load is None else scale_to_load(drawn, task.load)


def _scheduler(inputs: ReplayInputs, task: ReplayTask) -> Scheduler:
    """Return a new scheduler for a task; where schedulers learn, it has a new online model."""
    scenario = inputs.scenarios[task.scenario]
    beliefs = scenario.beliefs
    settings = SchedulerSettings(
        predictor=beliefs,
        profiles=beliefs.profiles,
        mode=scenario.truth.mode,
        max_slowdown=task.max_slowdown if math.isfinite(task.max_slowdown) else math.nan,
        **{each.name: getattr(inputs.options, each.name) for each in fields(SchedulerOptions)},
    )
    if not inputs.online:
        return make_scheduler(task.scheduler, settings)
    online = OnlineModel(beliefs, measured=scenario.measured)
    scheduler = make_scheduler(task.scheduler, replace(settings, predictor=online))
    return LearningScheduler(scheduler, online, settings)


def describe(task: ReplayTask, document: Document) -> str:
    """Return a line about one result."""
    found = Score(**document["score"])
    draw = f" draw {task.draw}" if task.draw else ""
    met = f"{found.satisfaction:.1%} of deadlines met, " if found.with_deadline else ""
    return (
        f"{document['world']}{draw} load {document['load']:.2f} {task.scheduler.label}: mean completion "
        f"{found.mean_completion_s:,.0f} s, {met}{document['cpu_s']:.1f} s of CPU"
    )
