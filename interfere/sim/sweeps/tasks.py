"""One replay of a sweep as a picklable record, and the pure function that runs it.

Law: equal inputs and tasks give equal results, but for the CPU time, wherever they run.
"""

import hashlib
import math
import time
from dataclasses import dataclass

import numpy as np

from interfere import __version__
from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.names import parse_name
from interfere.sim.schedulers.registry import SchedulerSettings, make_scheduler
from interfere.sim.score import Score, score
from interfere.sim.study_runs import draw_trace
from interfere.sim.truth import Composition, TableTruth, TruthTable
from interfere.sim.world import DAY_S, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How fast jobs really run together, and what schedulers believe about that."""

    name: str
    truth: TruthTable
    beliefs: MatrixPredictor


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepInputs:
    """What all tasks of a sweep share; an engine sends it to each of its processes once."""

    worlds: tuple[World, ...]  # traces as recorded
    scenarios: tuple[Scenario, ...]
    counted_cap: float = 1.5  # slowdown past which pairs are counted
    seed: int = 0  # of redrawn days

    def digest(self) -> str:
        """A checksum of everything that results depend on, the version of this package included."""
        content = hashlib.sha256(f"{__version__} {self.counted_cap} {self.seed}".encode())
        for world in self.worlds:
            content.update(repr(world).encode())
        for scenario in self.scenarios:
            content.update(repr((scenario.name, scenario.truth.device_type, scenario.truth.workloads)).encode())
            content.update(scenario.truth.table.tobytes())
            content.update(repr((scenario.beliefs.version, tuple(scenario.beliefs.index))).encode())
            content.update(np.ascontiguousarray(scenario.beliefs.slowdown).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """One scheduler on one trace at one load."""

    policy: str
    world: int = 0  # index in `SweepInputs.worlds`
    load: float | None = None  # offered; None: as recorded
    draw: int = 0  # 0: the recorded days; else the number of the redraw
    max_slowdown: float = math.inf  # cap on predicted slowdowns of jobs that share
    scenario: int = 0  # index in `SweepInputs.scenarios`
    composition: Composition = Composition.SUM  # of groups of three and more that the truth did not measure


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What one replay came to."""

    task: SweepTask
    world: str
    load: float  # offered
    jobs: int
    mean_completion_s: float
    median_completion_s: float
    p99_completion_s: float
    mean_waiting_s: float
    shared: float  # share of busy device time with two jobs or more
    past_cap: float  # share of pairs in which a side was slowed by more than `SweepInputs.counted_cap`
    stops: int
    dropped: int
    completion_s_by_day: tuple[float, ...]  # summed by recorded day of arrival, however arrivals were stretched
    cpu_s: float


def run_task(inputs: SweepInputs, task: SweepTask) -> SweepResult:
    """Replay one task. Raises InvalidInputError for a policy that does not exist and a trace that cannot be stretched,
    UnfitError for jobs that could never run."""
    started_s = time.process_time()
    recorded, scenario = inputs.worlds[task.world], inputs.scenarios[task.scenario]
    trace = draw_trace(recorded, task.draw, task.load, inputs.seed)
    settings = SchedulerSettings(
        predictor=scenario.beliefs,
        profiles=scenario.beliefs.profiles,
        mode=scenario.truth.mode,
        max_slowdown=task.max_slowdown if math.isfinite(task.max_slowdown) else math.nan,
    )
    truth = TableTruth([scenario.truth], task.composition)
    replayed = replay(trace, truth, make_scheduler(task.policy, settings), seats=parse_name(task.policy).seats)
    found: Score = score([replayed], inputs.counted_cap)
    return SweepResult(
        task=task,
        world=recorded.name,
        load=trace.load,
        jobs=found.jobs,
        mean_completion_s=found.mean_completion_s,
        median_completion_s=found.median_completion_s,
        p99_completion_s=found.p99_completion_s,
        mean_waiting_s=found.mean_waiting_s,
        shared=found.shared,
        past_cap=found.past_cap,
        stops=found.stops,
        dropped=found.dropped,
        completion_s_by_day=_by_recorded_day(recorded, task, replayed),
        cpu_s=time.process_time() - started_s,
    )


def _by_recorded_day(recorded: World, task: SweepTask, replayed: Replayed) -> tuple[float, ...]:
    """Completion times summed by the day on which a job arrived before arrivals were stretched. Empty for a redraw,
    which says nothing about recorded days."""
    if task.draw:
        return ()
    days = np.array([job.arrival_s // DAY_S for job in recorded.jobs], dtype=np.int64)
    ended = np.where(np.isfinite(replayed.completion_s), replayed.completion_s, 0.0)
    return tuple(np.bincount(days - days[0], weights=ended).tolist())
