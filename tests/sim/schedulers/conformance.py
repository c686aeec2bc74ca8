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
from dataclasses import dataclass, field

import pytest

from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.cluster import Cluster, Decision, Scheduler, Start, Truth
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.records import Queue, SchedulerRecord
from interfere.sim.world import World


@dataclass
class Contract:
    """What the record of a scheduler and its settings allow."""

    record: SchedulerRecord
    beliefs: MatrixPredictor
    max_slowdown: float
    max_shared_gpus: int

    @property
    def heeds_deadlines(self) -> bool:
        """May it drop jobs?"""
        return self.record.drop or self.promises_deadlines or self.record.queue is Queue.POLICY_NO_PROMISES

    @property
    def promises_deadlines(self) -> bool:
        """May it promise deadlines?"""
        return self.record.queue in (Queue.SLOTS, Queue.POLICY_DEADLINES)


@dataclass
class CheckedScheduler:
    """Checks every decision of a scheduler against the cluster that it was made for."""

    inner: Scheduler
    contract: Contract
    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def decide(self, cluster: Cluster) -> Decision:
        """The decision of the scheduler, checked."""
        decision = self.inner.decide(cluster)
        check_decision(decision, cluster, self.contract)
        self.decisions.append((cluster.now_s, decision))
        return decision


def check_decision(decision: Decision, cluster: Cluster, contract: Contract) -> None:
    """Points 1 to 6."""
    for job_id in decision.stops:
        assert contract.record.is_preemptive
        assert cluster.running[job_id].job.preemptible
    for job_id in decision.drops:
        assert contract.heeds_deadlines
        assert cluster.waiting[job_id].job.has_deadline
    for job_id in decision.promises:
        assert contract.promises_deadlines
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
        check_start(start, on_device, cluster, contract)
        started.add(start.job_id)
        for device_id in start.device_ids:
            on_device[device_id].append(start.job_id)


def check_start(start: Start, on_device: dict[str, list[str]], cluster: Cluster, contract: Contract) -> None:
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
    assert len(host_ids) < contract.record.seats
    assert contract.record.sharing
    assert job.gpus <= contract.max_shared_gpus
    index = contract.beliefs.index
    for host_id in host_ids:
        host_devices = {device_id for device_id, job_ids in on_device.items() if host_id in job_ids}
        assert host_devices == set(start.device_ids)
        guest, host = index[job.workload], index[cluster.jobs[host_id].job.workload]
        assert max(contract.beliefs.slowdown[[guest, host], [host, guest]]) <= contract.max_slowdown * (1 + 1e-6)


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


def check_scheduler(make: Callable[[], Scheduler], contract: Contract, world: World, truth: Truth) -> Replayed:
    """All points; the replay."""
    first = CheckedScheduler(make(), contract)
    replayed = replay(world, truth, first, seats=contract.record.seats)
    check_replay(replayed)
    again = CheckedScheduler(make(), contract)
    assert replay(world, truth, again, seats=contract.record.seats).ended_s.tolist() == replayed.ended_s.tolist()
    assert again.decisions == first.decisions
    return replayed
