"""What every scheduler of the registry must do on every world: the contract of `Scheduler.decide` in prose and code.

Each decision is checked against the cluster that it was made for, then the whole replay:
 1. Only waiting jobs start; nothing starts before it arrives.
 2. A gang gets all its devices at once: distinct, present now, of one pool and type, in a pool that the job allows.
 3. A job starts on free devices, or joins jobs on exactly their devices; never more on a device than seats.
 4. Jobs share only under a scheduler that shares, within the slowdown cap and the size that may share.
 5. Only a preemptive scheduler stops jobs, and only preemptible ones; running jobs are otherwise left alone.
 6. Only a scheduler of deadlines drops jobs or promises deadlines, and only of jobs that have a deadline.
 7. No job runs on a device while it is absent, and the work of every job that ends is its duration and checkpoints.
 8. Every job ends or is dropped.
 9. The same world gives the same decisions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from interfere.records import Device
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Cluster, Decision, Scheduler, Start
from interfere.sim.edge_world import EdgeSetting, edge_beliefs, edge_truth, with_deadlines
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.records import Queue, SchedulerRecord
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import HOUR_S, SimDevice, SimJob, World


@dataclass
class CheckedScheduler:
    """Checks every decision of a scheduler against the cluster that it was made for."""

    inner: Scheduler
    record: SchedulerRecord
    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def decide(self, cluster: Cluster) -> Decision:
        """The decision of the scheduler, checked."""
        decision = self.inner.decide(cluster)
        check_decision(decision, cluster, self.record)
        self.decisions.append((cluster.now_s, decision))
        return decision


def check_decision(decision: Decision, cluster: Cluster, record: SchedulerRecord) -> None:
    """Points 1 to 6."""
    promises_deadlines = record.queue in (Queue.SLOTS, Queue.POLICY_DEADLINES)
    heeds_deadlines = record.drop or promises_deadlines or record.queue is Queue.POLICY_NO_PROMISES
    for job_id in decision.stops:
        assert record.is_preemptive
        assert cluster.running[job_id].job.preemptible
    for job_id in decision.drops:
        assert heeds_deadlines
        assert cluster.waiting[job_id].job.has_deadline
    for job_id in decision.promises:
        assert promises_deadlines
        assert cluster.jobs[job_id].job.has_deadline
    on_device: dict[str, list[str]] = {device_id: [] for device_id in cluster.devices}
    for job_id, state in cluster.running.items():
        for device_id in state.device_ids:
            if job_id not in decision.stops:
                on_device[device_id].append(job_id)
    started: set[str] = set()
    for start in decision.starts:
        assert start.job_id not in started
        assert start.job_id not in decision.drops
        assert start.job_id in cluster.waiting or start.job_id in decision.stops
        check_start(start, on_device, cluster, record)
        started.add(start.job_id)
        for device_id in start.device_ids:
            on_device[device_id].append(start.job_id)


def check_start(start: Start, on_device: dict[str, list[str]], cluster: Cluster, record: SchedulerRecord) -> None:
    """Points 2 to 4."""
    job = cluster.jobs[start.job_id].job
    devices = [cluster.devices[device_id] for device_id in start.device_ids]
    assert len(set(start.device_ids)) == len(start.device_ids) == job.gpus
    assert all(device.is_present(cluster.now_s) for device in devices)
    assert len({(device.device.pool, device.device.type) for device in devices}) == 1
    assert not job.pools or devices[0].device.pool in job.pools
    (host_ids,) = {tuple(on_device[device_id]) for device_id in start.device_ids}  # the same on every device
    if not host_ids:
        return
    assert len(host_ids) < record.seats
    assert record.sharing
    assert job.gpus <= MAX_SHARED_GPUS
    index = BELIEFS.index
    for host_id in host_ids:
        host_devices = {device_id for device_id, job_ids in on_device.items() if host_id in job_ids}
        assert host_devices == set(start.device_ids)
        guest, host = index[job.workload], index[cluster.jobs[host_id].job.workload]
        slowdown = BELIEFS.on_type(devices[0].device.type)[[guest, host], [host, guest]]
        assert max(slowdown) <= MAX_SLOWDOWN * (1 + 1e-6)


def check_replay(replayed: Replayed) -> None:
    """Points 1, 7 and 8."""
    done_s = {job.id: 0.0 for job in replayed.world.jobs}
    devices = {device.device.id: device for device in replayed.world.devices}
    for span in replayed.spans:
        done_s[span.job_id] += span.rate * (span.end_s - span.start_s)
        for device_id in span.device_ids:
            assert devices[device_id].present_until_s(span.start_s) >= span.end_s
    rows = zip(replayed.world.jobs, replayed.started_s, replayed.ended_s, replayed.stops.tolist(), strict=True)
    for job, started_s, ended_s, stops in rows:
        assert not started_s < job.arrival_s
        assert not math.isnan(ended_s)
        if math.isfinite(ended_s):
            assert done_s[job.id] == pytest.approx(job.duration_s + stops * job.checkpoint_s, abs=1e-6)


def check_scheduler(record: SchedulerRecord, world: World) -> Replayed:
    """All points; the replay."""
    first, again = (CheckedScheduler(make_scheduler(record, SETTINGS), record) for _ in range(2))
    replayed = replay(world, TRUTH, first, seats=record.seats)
    check_replay(replayed)
    assert replay(world, TRUTH, again, seats=record.seats).ended_s.tolist() == replayed.ended_s.tolist()
    assert again.decisions == first.decisions
    return replayed


# --- worlds of every kind ---------------------------------------------------------------------------------------------

TYPE, MODE = "v100", SharingMode.MPS
NAMES = ("heavy", "light", "medium")


def truth(*rows: tuple[float, ...], names: tuple[str, ...] = NAMES) -> TruthTable:
    """A truth of these slowdowns, one row a victim."""
    table = np.array(rows, dtype=np.float64)
    return TruthTable(device_type=TYPE, mode=MODE, workloads=names[: len(table)], table=table)


USUAL = truth((2.5, 1.2, 1.5), (1.3, 1.1, 1.2), (1.8, 1.1, 1.4))


def devices(count: int, *, per_node: int = 4, **options: Any) -> tuple[SimDevice, ...]:
    """All of one type, in one pool."""
    return tuple(
        SimDevice(device=Device(id=f"d{k}", type=TYPE, node=f"n{k // per_node}", mode=MODE), **options)
        for k in range(count)
    )


def job(
    name: str, arrival_s: float, duration_s: float, workload: str = "light", gpus: int = 1, **options: Any
) -> SimJob:
    """One submission."""
    return SimJob(id=name, workload=workload, arrival_s=arrival_s, gpus=gpus, duration_s=duration_s, **options)


MAX_SLOWDOWN, MAX_SHARED_GPUS = 1.5, 2
BELIEFS = edge_beliefs(true_beliefs(USUAL), ["stranger"])
SETTINGS = SchedulerSettings(
    predictor=BELIEFS,
    profiles=BELIEFS.profiles,
    mode=MODE,
    max_slowdown=MAX_SLOWDOWN,
    max_shared_gpus=MAX_SHARED_GPUS,
)
TRUTH = TableTruth(edge_truth(USUAL))


def jobs(seed: int, count: int, max_gpus: int, mean_s: float) -> tuple[SimJob, ...]:
    """Jobs of every workload in a queue that builds up; some arrive together."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, count // 2, count)).tolist()
    return tuple(
        job(
            f"j{k}",
            arrival * mean_s / 3,
            float(rng.exponential(mean_s)),
            str(rng.choice([*NAMES, "stranger"])),
            int(rng.integers(1, max_gpus + 1)),
            checkpoint_s=mean_s / 100,
        )
        for k, arrival in enumerate(arrivals)
    )


def gangs() -> World:
    """Gangs of up to four on two nodes of two devices."""
    return World(name="gangs", jobs=jobs(0, 8, 4, 100.0), devices=devices(4, per_node=2))


def one_device() -> World:
    """Single devices asked for, and one that there is; one job may not be stopped."""
    first, *others = jobs(1, 8, 1, 100.0)
    return World(name="one", jobs=(replace(first, preemptible=False), *others), devices=devices(1))


def pools() -> World:
    """Two pools; some jobs may run in one only."""
    present = tuple(
        replace(device, device=replace(device.device, pool="xy"[k % 2])) for k, device in enumerate(devices(4))
    )
    allowed = ((), ("x",), ("y",))
    bound = tuple(replace(one, pools=allowed[k % 3]) for k, one in enumerate(jobs(2, 8, 2, 100.0)))
    return World(name="pools", jobs=bound, devices=present)


def windows() -> World:
    """A device that leaves and returns, without deadlines."""
    leaving = SimDevice(device=devices(1)[0].device, windows=((0.0, 90.0), (150.0, 400.0), (600.0, 1e9)))
    return World(name="windows", jobs=jobs(3, 8, 2, 100.0), devices=(leaving, *devices(3)[1:]))


def deadlines() -> World:
    """Deadlines on devices that are always present."""
    world = World(name="deadlines", jobs=jobs(1, 8, 2, 100.0), devices=devices(3))
    return with_deadlines(world, "usual", seed=0)


def edge() -> World:
    """Deadlines, and edge devices through a night in which they are taken back."""
    world = World(name="edge", jobs=jobs(5, 8, 2, 3 * HOUR_S), devices=devices(4, per_node=1), clock_s=20 * HOUR_S)
    dated = with_deadlines(world, "loose", seed=0)
    return EdgeSetting(revoked=True, seed=1).apply(dated)


WORLDS = (gangs, one_device, pools, windows, deadlines, edge)


class SchedulerLaws:
    """Every test gets `scheduler`: its record, as `preset` returns it for a name."""

    @pytest.fixture(scope="class")
    @classmethod
    def scheduler(cls) -> SchedulerRecord:
        """Override: the record of the scheduler."""
        raise NotImplementedError

    @pytest.mark.parametrize("world", WORLDS)
    def test_it_does_what_its_record_allows_on_every_world(
        self, scheduler: SchedulerRecord, world: Callable[[], World]
    ) -> None:
        check_scheduler(scheduler, world())
