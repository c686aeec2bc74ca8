"""The scheduler that asks the server about deadlines: it sends them, windows of devices and the ledger of promises."""

import math
from dataclasses import dataclass, field, replace

from interfere.policy.rules.runtime import P90_Z
from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    ScopeLedger,
    Window,
)
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.deadlines import is_infeasible, next_infeasible_s
from interfere.sim.schedulers.greedy_sharing import allowed_pairs, fits_on
from interfere.sim.schedulers.placement import running_hosts
from interfere.sim.schedulers.planner import SCOPE, ServerPlanner
from interfere.sim.world import HOUR_S

MAX_BEST_EFFORT = 32  # jobs without a deadline that one decision of `DeadlinePlanner` considers, the shortest


@dataclass(slots=True, kw_only=True)
class DeadlinePlanner:
    """The server decides starts and declines by deadlines, and remembers the deadlines that it promised.

    Jobs with deadlines weigh 1 and those without less, the shorter the more; only the latter may be stopped by a
    device that leaves. Jobs that the plan declines are dropped.
    """

    planner: ServerPlanner
    share: bool = True
    promise: bool = True  # promise deadlines, and start no job that would break one
    max_best_effort: int = MAX_BEST_EFFORT
    _ledger: ScopeLedger = field(default_factory=lambda: ScopeLedger(scope=SCOPE))

    def decide(self, cluster: Cluster) -> Decision:
        """Return one plan. The server is not asked while no waiting job could start or has become infeasible."""
        waiting = cluster.waiting.values()
        wake_s = next_infeasible_s(waiting, cluster, self.planner.estimate)
        if not (
            any(is_infeasible(state, cluster, self.planner.estimate) for state in waiting)
            or self._can_start_any(cluster)
        ):
            return Decision(wake_s=wake_s)
        allowed = {ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.DECLINE}
        decision = self.planner.decide_scope(
            [self._job(state, cluster) for state in self._pending(cluster)],
            self._devices(cluster),
            cluster,
            frozenset(allowed | ({ActionKind.START_SHARED} if self.share else set())),
            ledger=self._ledger,
            promise_deadlines=self.promise,
        )
        self._ledger = decision.ledger
        actions = decision.plan.actions
        start_kinds = (ActionKind.START_ALONE, ActionKind.START_SHARED)
        return Decision(
            starts=[
                Start(job_id=action.job_id, device_ids=action.places)
                for action in actions
                if action.kind in start_kinds
            ],
            drops=[action.job_id for action in actions if action.kind is ActionKind.DECLINE],
            promises=[action.job_id for action in actions if action.accepted],
            wake_s=wake_s,
        )

    def _can_start_any(self, cluster: Cluster) -> bool:
        """Return whether any waiting job has enough free devices in one pool, or a host of its size that it may
        join."""
        max_free = cluster.free.most_of_one_pool()
        waiting = list(cluster.waiting.values())
        if any(state.job.gpus <= max_free for state in waiting):
            return True
        if not self.share:
            return False
        planner, hosts = self.planner, running_hosts(cluster)
        pairs = allowed_pairs(
            waiting,
            hosts,
            planner.predictor,
            planner.profiles,
            planner.mode,
            min_joint_throughput=planner.min_joint_throughput,
        )
        return any(
            (state.job.workload, host.state.job.workload, host.device_type) in pairs
            and fits_on(state, host, cluster, planner.max_shared_gpus)
            for state in waiting
            for host in hosts
        )

    def _pending(self, cluster: Cluster) -> list[JobState]:
        """Return all waiting jobs with deadlines, and the shortest waiting jobs without."""
        with_deadline = [state for state in cluster.waiting.values() if state.job.has_deadline]
        best_effort = [state for state in cluster.waiting.values() if not state.job.has_deadline]
        best_effort.sort(key=lambda state: (state.remaining_s, state.arrival_rank))
        return [*with_deadline, *best_effort[: self.max_best_effort]]

    def _job(self, state: JobState, cluster: Cluster) -> Job:
        """A job as a scheduler sends it to the server, with its deadline."""
        remaining_s = max(0.0, self.planner.estimate.remaining_s(state, cluster))
        job = self.planner.job(state, cluster)
        job = replace(job, remaining_s=remaining_s, checkpoint_s=state.job.checkpoint_s)
        if self.planner.estimate.error:
            job = replace(job, remaining_p90_s=remaining_s * math.exp(P90_Z * self.planner.estimate.error))
        if state.job.has_deadline:
            return replace(job, deadline_s=state.job.deadline_s)
        return replace(job, preemptible=True, weight=0.5 / (1.0 + remaining_s / HOUR_S) ** 0.5)

    def _devices(self, cluster: Cluster) -> list[Device]:
        """Return all devices with their running jobs, and with the availability windows that are known now."""
        residents: dict[str, list[Job]] = {}
        for state in cluster.running.values():
            job = self._job(state, cluster)
            for device_id in state.device_ids:
                residents.setdefault(device_id, []).append(job)
        return [
            replace(
                device.device,
                mode=self.planner.mode,
                residents=tuple(residents.get(device_id, ())),
                windows=tuple(
                    Window(from_s=from_s, until_s=NAN if math.isinf(until_s) else until_s)
                    for from_s, until_s in device.known_windows(cluster.now_s)
                ),
            )
            for device_id, device in cluster.devices.items()
        ]
