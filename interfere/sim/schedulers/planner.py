"""Decisions by the policy room itself: the same `plan_scope` that the server runs, asked with the clock of the replay.

`PlannedSharing` sends what the order of the queue could not start alone as pending jobs, and the jobs that run alone as
residents with a free seat. `PlannedScheduler` sends everything: the plan also decides who starts alone, and where.
Starts are carried out at once, so no promise outlives its decision. Weights fall by one a place in the queue, so that
the plan starts whom the order would and its costs decide beside whom: the objective must be one that weights do not
enter.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from interfere.policy.decide import plan_scope
from interfere.protocols import Predictor
from interfere.records import ActionKind, Device, Job, JobProfile, Limits, ObjectiveKind, ScopeLedger, Snapshot
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Decision, Progress, Start
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.greedy_sharing import allowed_pairs, ends_first, joinable
from interfere.sim.schedulers.orders import Order
from interfere.sim.schedulers.queue import Host, in_order

# Waiting jobs that one decision looks at. Of the four Venus clusters only the one in overload ever has more that could
# start, and half or twice as many change its mean completion time by less than 0.1 %.
DEPTH = 64


@dataclass(slots=True, kw_only=True)
class Planner:
    """One call of the policy room."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.nan
    most_shared_gpus: int | None = None
    guest_ends_first: bool = False  # by the estimates
    objective: ObjectiveKind = ObjectiveKind.TOTAL_SLOWDOWN
    estimate: Estimate = field(default_factory=Oracle)
    depth: int = DEPTH
    decisions: int = 0

    def plan(
        self, able: Sequence[Progress], devices: Iterable[Device], cluster: Cluster, allowed: frozenset[ActionKind]
    ) -> list[Start]:
        """Starts of jobs given in order, on devices with their residents."""
        self.decisions += 1
        limits = Limits.of(
            allowed=allowed,
            max_slowdown=self.max_slowdown,
            most_shared_gpus=self.most_shared_gpus,
            guest_ends_first=self.guest_ends_first,
        )
        snapshot = Snapshot(
            pending=tuple(self.job(one, cluster, weight=len(able) - k) for k, one in enumerate(able)),
            devices=tuple(devices),
            scope=cluster.world.name,
            limits=limits,
            objective=self.objective,
            now_s=cluster.now_s,
        )
        ledger = ScopeLedger(scope=cluster.world.name)  # whatever was promised was done at once
        decided = plan_scope(snapshot, ledger, self.predictor, self._resolve, f"replay-{self.decisions}")
        return [Start(job_id=a.job_id, device_ids=a.places) for a in decided.plan.actions if a.places]

    def knows(self, one: Progress, kinds: Iterable[str]) -> bool:
        """Is anything known of its workload on one of these device types?"""
        return any((one.job.workload, kind) in self.profiles for kind in kinds)

    def job(self, one: Progress, cluster: Cluster, weight: float = 1.0) -> Job:
        """As a scheduler would send it."""
        return Job(
            id=one.job.id,
            workload=one.job.workload,
            gpus=one.job.gpus,
            pools=one.job.pools,
            weight=weight,
            attained_s=cluster.served_s(one),
            remaining_s=self.estimate.left_s(one, cluster),
            elapsed_s=cluster.now_s - one.job.arrival_s,
        )

    def _resolve(self, job: Job, device_type: str) -> JobProfile | None:
        return self.profiles.get((job.workload, device_type))


@dataclass(slots=True, kw_only=True)
class PlannedSharing:
    """Who shares with whom."""

    planner: Planner

    def join(self, waiting: Sequence[Progress], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """The starts of one plan; nobody is sent whom no host would do for, whatever the plan."""
        planner = self.planner
        cap = math.inf if math.isnan(planner.max_slowdown) else planner.max_slowdown
        allowed = allowed_pairs(waiting, hosts, planner.predictor, planner.profiles, planner.mode, cap)

        def may(one: Progress, host: Host) -> bool:
            pair = allowed.get((one.job.workload, host.one.job.workload, host.device_type))
            if pair is None or not joinable(one, host, cluster, planner.most_shared_gpus):
                return False
            return not planner.guest_ends_first or ends_first(one, host, pair, planner.estimate, cluster)

        able = list(islice((one for one in waiting if any(may(one, host) for host in hosts)), planner.depth))
        useful = [host for host in hosts if any(may(one, host) for one in able)]
        if not able or not useful:
            return []
        devices = [
            replace(cluster.devices[name].device, mode=planner.mode, residents=(planner.job(host.one, cluster),))
            for host in useful
            for name in host.device_ids
        ]
        whole = {name: host.device_ids for host in useful for name in host.device_ids}
        found = planner.plan(able, devices, cluster, frozenset({ActionKind.START_SHARED, ActionKind.WAIT}))
        return [replace(start, device_ids=whole[start.device_ids[0]]) for start in found]


@dataclass(slots=True, kw_only=True)
class PlannedScheduler:
    """Everything that starts, alone or shared, by the plan; the order only says whose turn it is."""

    planner: Planner
    order: Order
    share: bool = True  # may jobs share at all?

    def decide(self, cluster: Cluster) -> Decision:
        """The starts of one plan."""
        planner = self.planner
        hosts = [one for one in cluster.sharable() if planner.knows(one, [one.devices[0].device.type])]
        sizes = {one.job.gpus for one in hosts} if self.share else set()
        room = len(cluster.empty)
        queue = in_order(self.order, cluster.waiting.values(), cluster)
        able = [one for one in queue if one.job.gpus <= room or one.job.gpus in sizes][: planner.depth]
        if not able:
            return Decision()
        wanted = {one.job.gpus for one in able}
        devices = [replace(device, mode=planner.mode) for device in cluster.free()]
        for one in hosts if self.share else []:
            resident = planner.job(one, cluster)
            if one.job.gpus in wanted:
                devices += [replace(d.device, mode=planner.mode, residents=(resident,)) for d in one.devices]
        allowed = {ActionKind.START_ALONE, ActionKind.WAIT} | ({ActionKind.START_SHARED} if self.share else set())
        return Decision(starts=planner.plan(able, devices, cluster, frozenset(allowed)))
