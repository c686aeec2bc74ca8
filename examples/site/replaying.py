"""The streams of the site in the simulator: what each arm's mean completion would be by a table of measured pairs."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from examples.site.arms import CHECKPOINT_S, Arm, WorkloadCost, steps_of
from examples.site.stream import StreamSettings, stream_of
from interfere.data.loading import load_table
from interfere.errors import InterfereError
from interfere.records import Device, ObjectiveKind
from interfere.sim.beliefs import beliefs_from, true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.replay import replay
from interfere.sim.schedulers.orders import ShortestFirst
from interfere.sim.schedulers.planner import PlannedScheduler, ServerPlanner
from interfere.sim.schedulers.queue import Backfill
from interfere.sim.schedulers.records import Queue, SchedulerRecord, Sharing
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth, TruthTable, truth_of
from interfere.sim.world import SimDevice, SimJob, World

LEAST_MEETING_S = 2.0
Pair = tuple[str, str]
"""(workload, neighbour)"""
# Gangs take whole devices under every arm, so only jobs on one device share.
RECORDS = {
    Arm.SLURM: SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY),
    Arm.SHARING: SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY, sharing=Sharing.GREEDY, one_gpu=True),
    Arm.GREEDY: SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY, sharing=Sharing.GREEDY, one_gpu=True),
}


def replayed_means(
    settings: StreamSettings,
    repetitions: Iterable[int],
    arms: Sequence[Arm],
    costs: dict[str, WorkloadCost],
    table: str,
    turnover_s: Mapping[Arm, float],
    met: Mapping[int, Mapping[Pair, float]] | None = None,
) -> dict[Arm, tuple[float, ...]]:
    """Return each arm's mean completion in seconds, one number a repetition; NaN where the replay is not possible.

    `turnover_s`: how long a place stays empty between two jobs, by arm; 0 where absent. `met`: slowdowns that take the
    place of the table's, by repetition.

    The simulator knows run times and the slowdowns of the table beforehand, which no arm of the site does: plain
    sharing believes that nothing slows anything down, the other arms believe the table.
    """
    truth = truth_of(load_table(table))
    means: dict[Arm, list[float]] = {arm: [] for arm in arms}
    for repetition in repetitions:
        known = _with_slowdowns(truth, met[repetition]) if met else truth
        for arm in arms:
            world = _world(settings, repetition, costs, truth.device_type, turnover_s.get(arm, 0.0))
            means[arm].append(_mean_completion_s(world, known, arm))
    return {arm: tuple(values) for arm, values in means.items()}


def slowdowns_met(runs: Sequence[Mapping[str, Any]]) -> dict[int, dict[Pair, float]]:
    """Return for each repetition the median slowdown of each ordered pair that met for long enough in the others."""
    found: dict[int, dict[Pair, float]] = {}
    for repetition in {run["repetition"] for run in runs}:
        seen: dict[Pair, list[float]] = {}
        for meeting in (each for run in runs if run["repetition"] != repetition for each in run["meetings"]):
            if meeting["seconds"] >= LEAST_MEETING_S:
                seen.setdefault((meeting["workload"], meeting["neighbour"]), []).append(meeting["slowdown"])
        found[repetition] = {pair: statistics.median(values) for pair, values in seen.items()}
    return found


def _with_slowdowns(truth: TruthTable, slowdowns: Mapping[Pair, float]) -> TruthTable:
    table, index = truth.table.copy(), truth.index
    for (victim, neighbour), slowdown in slowdowns.items():
        if victim in index and neighbour in index:
            table[index[victim], index[neighbour]] = max(1.0, slowdown)
    return replace(truth, table=table)


def _world(
    settings: StreamSettings, repetition: int, costs: dict[str, WorkloadCost], device_type: str, turnover_s: float
) -> World:
    jobs = stream_of(settings, repetition)
    return World(
        name=f"repetition {repetition}",
        jobs=tuple(
            SimJob(
                id=f"j{job.index}",
                workload=job.workload,
                arrival_s=job.arrival_s,
                gpus=job.gpus,
                idle_s=turnover_s,
                duration_s=turnover_s
                + costs[job.workload].start_up_s
                + steps_of(job, costs) * costs[job.workload].step_s,
                checkpoint_s=CHECKPOINT_S + costs[job.workload].start_up_s,
            )
            for job in jobs
        ),
        devices=tuple(
            SimDevice(device=Device(id=f"n{k}/g0", node=f"n{k}", type=device_type)) for k in range(settings.devices)
        ),
    )


def _mean_completion_s(world: World, truth: TruthTable, arm: Arm) -> float:
    none = np.where(np.isnan(truth.table), np.nan, 1.0)
    beliefs = beliefs_from(truth, none, "no slowdown") if arm is Arm.SHARING else true_beliefs(truth)
    options = SchedulerSettings(
        predictor=beliefs,
        profiles=beliefs.profiles,
        mode=truth.mode,
        whole_nodes=False,
    )
    try:
        done = replay(world, TableTruth((truth,)), _scheduler(arm, options))
    except InterfereError:
        return math.nan
    return float(done.completion_s.mean())


def _scheduler(arm: Arm, settings: SchedulerSettings) -> Scheduler:
    """Return the scheduler of an arm: the server's plan with its default objective, which moves no job here, or a
    queue."""
    if arm not in (Arm.OURS, Arm.MOVES):
        return make_scheduler(RECORDS[arm], settings)
    planner = ServerPlanner(settings=replace(settings, max_shared_gpus=1), objective=ObjectiveKind.AUTO)
    return PlannedScheduler(planner=planner, order=ShortestFirst(estimate=planner.estimate))
