"""Sharing as the server decides it: the same `plan_scope`, asked with the clock of the replay.

What the order of the queue could not start alone is sent as the pending jobs of a snapshot, the jobs that run alone as
residents with a free seat; the plan's start_shared are carried out, its promises fulfilled at once. Weights fall by one
a place in the queue, so that the plan starts whom the order would, and its costs decide beside whom: the objective must
be one that weights do not enter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from interfere.policy.scope import plan_scope
from interfere.protocols import Predictor
from interfere.records import ActionKind, Job, JobProfile, Limits, ObjectiveKind, ScopeLedger, Snapshot
from interfere.sim.cluster import Cluster, Progress, Start
from interfere.sim.estimates import Estimate, Oracle
from interfere.sim.forecast import Profiles
from interfere.sim.packing import joinable
from interfere.sim.queueing import Host

# Waiting jobs that a decision looks at: about as many as hosts that a virtual cluster of twenty nodes ever has free.
DEPTH = 64


@dataclass(slots=True, kw_only=True)
class PlannedSharing:
    """Who shares with whom, by the policy room."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.nan
    most_shared_gpus: int | None = None
    objective: ObjectiveKind = ObjectiveKind.TOTAL_SLOWDOWN
    estimate: Estimate = field(default_factory=Oracle)
    depth: int = DEPTH
    name: str = "matching"
    decisions: int = 0

    def join(self, waiting: Sequence[Progress], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """The starts of one plan."""
        sizes = {len(host.device_ids) for host in hosts}
        able = [one for one in waiting if one.job.gpus in sizes and self._knows(one, hosts)][: self.depth]
        useful = [host for host in hosts if any(joinable(one, host, cluster, self.most_shared_gpus) for one in able)]
        if not able or not useful:
            return []
        self.decisions += 1
        residents = {host.one.job.id: self._job(host.one, cluster) for host in useful}
        devices = tuple(
            replace(cluster.devices[name].device, mode=self.mode, residents=(residents[host.one.job.id],))
            for host in useful
            for name in host.device_ids
        )
        pending = [self._job(one, cluster, weight=len(able) - k) for k, one in enumerate(able)]
        limits = Limits(
            allowed=frozenset({ActionKind.START_SHARED, ActionKind.WAIT}),
            max_slowdown=self.max_slowdown,
            most_shared_gpus=self.most_shared_gpus,
        )
        snapshot = Snapshot(
            pending=tuple(pending), devices=devices, scope=cluster.world.name, limits=limits,
            objective=self.objective, now_s=cluster.now_s,
        )  # fmt: skip
        ledger = ScopeLedger(scope=cluster.world.name)  # whatever was promised was done at once
        plan = plan_scope(snapshot, ledger, self.predictor, self._resolve, f"replay-{self.decisions}").plan
        places = {name: host.device_ids for host in useful for name in host.device_ids}
        return [
            Start(job_id=action.job_id, device_ids=places[action.device_id])
            for action in plan.actions
            if action.kind is ActionKind.START_SHARED
        ]

    def _knows(self, one: Progress, hosts: Sequence[Host]) -> bool:
        return any((one.job.workload, host.device_type) in self.profiles for host in hosts[:1])

    def _resolve(self, job: Job, device_type: str) -> JobProfile | None:
        return self.profiles.get((job.workload, device_type))

    def _job(self, one: Progress, cluster: Cluster, weight: float = 1.0) -> Job:
        served_s = cluster.served_s(one)
        return Job(
            id=one.job.id, workload=one.job.workload, gpus=one.job.gpus, attained_s=served_s,
            remaining_s=max(0.0, self.estimate.whole_s(one, cluster) - served_s),
            elapsed_s=cluster.now_s - one.job.arrival_s, weight=weight,
        )  # fmt: skip
