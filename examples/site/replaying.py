"""The streams of the site in the simulator: what each arm's mean completion would be by a table of measured pairs.

The replay has what a real queue has. Programs load and end, and use a core meanwhile; Slurm counts time limits in whole
minutes; a job that the adapter places starts a moment later. The advised arms are the adapter as it ships, in rounds of
a second, with a policy server that knows nothing at first and learns from the replayed marks. What is measured in runs
comes from the other repetitions alone.
"""

import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.site.arms import (
    CHECKPOINT_S,
    MARK_EVERY_S,
    WORKSPACE,
    Arm,
    WorkloadCost,
    adapter_values,
    comment_of,
    steps_of,
)
from examples.site.greedy import GreedyClient
from examples.site.run_times import LAUNCH_S, ProgramTimes, Run, control_share, program_times
from examples.site.simulated_slurm import LIMIT_S, AdvisedSlurm, SimulatedJob
from examples.site.stream import StreamJob, StreamSettings, stream_of
from interfere.client import PolicyClient
from interfere.config import NO_METRICS, Settings
from interfere.data.tables import Table
from interfere.records import Device
from interfere.records.documents import from_document
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.server import start_server
from interfere.sim.beliefs import beliefs_from
from interfere.sim.cluster import Scheduler
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.queue import Backfill
from interfere.sim.schedulers.records import Queue, SchedulerRecord, Sharing
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth, TruthTable, truth_of
from interfere.sim.world import SimDevice, SimJob, World

LEAST_MEETING_S = 2.0
# From a round to Slurm's allocation of a job that it placed on a free seat: median of 22 placements of two runs.
PLACEMENT_S = 0.55
BETWEEN_STREAMS_S = 1000.0  # on the clock of an advised arm's server
DAY_S = 86_400.0  # its clock begins so long ago, and no replayed time is in the future
TIME_BUDGET_S, CALL_S = 5.0, 60.0  # of a decision, and of a call: a replay does not depend on how fast it runs
Pair = tuple[str, str]
"""(workload, neighbour)"""
Slowdowns = Mapping[int, Mapping[Pair, float]]
"""By repetition."""
# Gangs take whole devices under every arm, so only jobs on one device share.
RECORDS = {
    Arm.SLURM: SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY),
    Arm.SHARING: SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY, sharing=Sharing.GREEDY, one_gpu=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReplay:
    """What all replays of a site need beside the arm and the stream."""

    settings: StreamSettings
    costs: Mapping[str, WorkloadCost]
    truth: TruthTable
    loading_workload: str  # what programs that load or end do to others, and others to them
    runs: tuple[Run, ...]
    met: Slowdowns  # that take the place of the truth's; by repetition, where there are any

    @classmethod
    def of(
        cls,
        settings: StreamSettings,
        costs: Mapping[str, WorkloadCost],
        table: Table,
        runs: Sequence[Run],
        met: Slowdowns | None = None,
    ) -> "SiteReplay":
        """Return the replays by a table. `met`: slowdowns that take the place of the table's, by repetition."""
        return cls(
            settings=settings,
            costs=costs,
            truth=truth_of(table),
            loading_workload=busiest_workload(table, settings.workloads),
            runs=tuple(runs),
            met=met or {},
        )

    def means(self, arm: Arm, repetitions: Iterable[int]) -> tuple[float, ...]:
        """Return an arm's mean completion in seconds, one number a repetition, in their order."""
        numbers = sorted(repetitions)
        if not arm.is_advised:
            return tuple(self._mean(self._world(number, arm), number, self._queue(arm)) for number in numbers)
        begin_s = float(int(time.time() - DAY_S))
        with tempfile.TemporaryDirectory() as folder, _client(arm, Path(folder)) as client:
            return tuple(
                self._mean(
                    self._world(number, arm),
                    number,
                    self._advised(client, number, Path(folder), begin_s + BETWEEN_STREAMS_S * k),
                )
                for k, number in enumerate(numbers)
            )

    def _mean(self, world: World, repetition: int, scheduler: Scheduler) -> float:
        truth = TableTruth((self._truth(repetition),), loading_workload=self.loading_workload)
        return float(completion_of_steps(replay(world, truth, scheduler)).mean())

    def _truth(self, repetition: int) -> TruthTable:
        """Return the slowdowns. Those met are relative to a program measured apart, which is stretched here."""
        stretch = program_times(self._others(repetition)).stretch
        met = self.met.get(repetition, {})
        return with_slowdowns(self.truth, {pair: met[pair] / stretch.get(pair[0], 1.0) for pair in met})

    def _others(self, repetition: int) -> list[Run]:
        return [run for run in self.runs if run["repetition"] != repetition]

    def _world(self, repetition: int, arm: Arm) -> World:
        """Return a stream as a world. What programs take beside their steps is from the other repetitions."""
        others = self._others(repetition)
        times = program_times(others)
        control = 1.0 + max(0.0, control_share(others, arm) - control_share(others, Arm.SLURM))
        return World(
            name=f"repetition {repetition}",
            jobs=tuple(self._job(job, times, control) for job in stream_of(self.settings, repetition)),
            devices=tuple(
                SimDevice(device=Device(id=f"n{k}/g0", node=f"n{k}", type=self.truth.device_type))
                for k in range(self.settings.devices)
            ),
        )

    def _job(self, job: StreamJob, times: ProgramTimes, control: float) -> SimJob:
        cost = self.costs[job.workload]
        stretch = times.stretch.get(job.workload, 1.0) * control
        start_up_s, shut_down_s = stretch * cost.start_up_s, times.shut_down_s.get(job.workload, 0.0)
        return SimJob(
            id=str(job.index + 1),
            workload=job.workload,
            arrival_s=job.arrival_s,
            gpus=job.gpus,
            idle_s=LAUNCH_S,
            start_up_s=start_up_s,
            shut_down_s=shut_down_s,
            duration_s=LAUNCH_S + start_up_s + stretch * steps_of(job, self.costs) * cost.step_s + shut_down_s,
            checkpoint_s=CHECKPOINT_S + start_up_s,
        )

    def _queue(self, arm: Arm) -> Scheduler:
        """Return Slurm's queue. Plain sharing believes that nothing slows anything down."""
        none = np.where(np.isnan(self.truth.table), np.nan, 1.0)
        beliefs = beliefs_from(self.truth, none, "no slowdown")
        options = SchedulerSettings(
            predictor=beliefs,
            profiles=beliefs.profiles,
            mode=self.truth.mode,
            whole_nodes=False,
            limit_unit_s=LIMIT_S,
        )
        return make_scheduler(RECORDS[arm], options)

    def _advised(self, client: PolicyClient, repetition: int, folder: Path, begin_s: float) -> Scheduler:
        """Return Slurm with the adapter, whose settings are those of the runs. No job is moved."""
        jobs = {
            str(job.index + 1): SimulatedJob(
                comment=comment_of(job) if job.gpus == 1 else "", step_s=self.costs[job.workload].step_s
            )
            for job in stream_of(self.settings, repetition)
        }
        return AdvisedSlurm.of(
            client,
            from_document(SlurmSettings, adapter_values(Arm.OURS) | {"spool": str(folder / "spool")}),
            jobs,
            begin_s=begin_s,
            placement_s=PLACEMENT_S,
            mark_every_s=MARK_EVERY_S,
        )


@contextmanager
def _client(arm: Arm, folder: Path) -> Iterator[PolicyClient]:
    """Run a policy server that knows nothing, and yield its client."""
    server = start_server(
        Settings(
            work=folder / WORKSPACE,
            port=0,
            metrics_port=NO_METRICS,
            insecure=True,
            grace_s=1.0,
            time_budget_s=TIME_BUDGET_S,
        )
    )
    try:
        with (GreedyClient if arm is Arm.GREEDY else PolicyClient)(server.address, timeout_s=CALL_S) as client:
            yield client
    finally:
        server.stop()


def replayed_means(site: SiteReplay, repetitions: Iterable[int], arms: Sequence[Arm]) -> dict[Arm, tuple[float, ...]]:
    """Return each arm's mean completion in seconds, one number a repetition."""
    numbers = sorted(repetitions)
    return {arm: site.means(arm, numbers) for arm in arms}


def completion_of_steps(done: Replayed) -> NDArray[np.float64]:
    """Return for each job the seconds from its arrival to its last step: its place may be taken for longer."""
    left_s = {job.id: job.duration_s - job.shut_down_s for job in done.world.jobs}
    last_step_s = dict[str, float]()
    for span in done.spans:  # in order of their ends
        done_s = span.rate * (span.end_s - span.start_s)
        if left_s[span.job_id] > 0:
            last_step_s[span.job_id] = span.start_s + min(done_s, left_s[span.job_id]) / span.rate
        left_s[span.job_id] -= done_s
    return np.array([last_step_s[job.id] - job.arrival_s for job in done.world.jobs])


def busiest_workload(table: Table, workloads: Iterable[str]) -> str:
    """Return the workload that keeps a device busiest alone: a program that loads computes without a pause. Empty where
    the table says of none how busy it is."""
    known = {job.workload: job.busy_frac for job in table.jobs if job.workload in set(workloads) and job.busy_frac > 0}
    return max(known, key=lambda workload: known[workload], default="")


def slowdowns_met(runs: Sequence[Run]) -> dict[int, dict[Pair, float]]:
    """Return for each repetition the median slowdown of each ordered pair that met for long enough in the others."""
    found: dict[int, dict[Pair, float]] = {}
    for repetition in {run["repetition"] for run in runs}:
        seen: dict[Pair, list[float]] = {}
        for meeting in (each for run in runs if run["repetition"] != repetition for each in run["meetings"]):
            if meeting["seconds"] >= LEAST_MEETING_S:
                seen.setdefault((meeting["workload"], meeting["neighbour"]), []).append(meeting["slowdown"])
        found[repetition] = {pair: statistics.median(values) for pair, values in seen.items()}
    return found


def with_slowdowns(truth: TruthTable, slowdowns: Mapping[Pair, float]) -> TruthTable:
    """Return the truth with these slowdowns in the place of its own, of workloads that it knows."""
    table, index = truth.table.copy(), truth.index
    for (victim, neighbour), slowdown in slowdowns.items():
        if victim in index and neighbour in index:
            table[index[victim], index[neighbour]] = max(1.0, slowdown)
    return replace(truth, table=table)
