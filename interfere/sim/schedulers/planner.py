"""Schedulers that ask the server's own decision function, with the clock of the replay.

`PlannedSharing` sends the jobs that the order of a queue could not start as pending jobs, and the jobs without a
partner as residents with a free seat. `PlannedScheduler` sends everything: the plan also decides which job starts
alone, and where. Both are about slowdowns: weights fall by one a place in the queue, so that the plan starts the jobs
that the order would and its costs decide beside which; the objective must be one that weights do not enter.
`DeadlinePlanner` sends deadlines, windows of devices and the ledger of promises too.
Starts are carried out at once, so a planned start never outlives its decision.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import ScopeDecision, decide
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    ObjectiveKind,
    ScopeLedger,
    Snapshot,
    Window,
)
from interfere.records.cluster import DEFAULT_AGEING_S, DEFAULT_MIN_JOINT_THROUGHPUT, DEFAULT_RISK
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.deadlines import is_infeasible, next_infeasible_s
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.easy_backfill import BackfillReservation
from interfere.sim.schedulers.greedy_sharing import allowed_pairs, ends_first, fits_on
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.placement import Host, running_hosts
from interfere.sim.world import HOUR_S

# Waiting jobs that one decision considers. Of the four Venus clusters only the one in overload ever has more that could
# start, and half or twice as many change its mean completion time by less than 0.1 %.
MAX_PENDING = 64
MAX_BEST_EFFORT = 32  # jobs without a deadline that one decision of `DeadlinePlanner` considers, the shortest
SCOPE = "replay"
UNNAMED = "?"  # workload of a job whose trace names none


@dataclass(slots=True, kw_only=True)
class ServerPlanner:
    """Calls the server's decision function for a cluster."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.nan
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT
    max_shared_gpus: int | None = None
    guest_ends_first: bool = False  # by the estimates
    objective: ObjectiveKind = ObjectiveKind.TOTAL_SLOWDOWN
    estimate: Estimate = field(default_factory=Oracle)
    max_pending: int = MAX_PENDING
    risk: float = DEFAULT_RISK
    decisions: int = 0

    def decide_scope(
        self,
        pending: Iterable[Job],
        devices: Iterable[Device],
        cluster: Cluster,
        allowed: frozenset[ActionKind],
        *,
        ledger: ScopeLedger | None = None,
        promise_deadlines: bool = False,
    ) -> ScopeDecision:
        """One decision of the server. Without a ledger nothing is remembered: no promise outlives the decision."""
        self.decisions += 1
        limits = Limits.of(
            allowed=allowed,
            max_slowdown=self.max_slowdown,
            min_joint_throughput=self.min_joint_throughput,
            most_shared_gpus=self.max_shared_gpus,
            guest_ends_first=self.guest_ends_first,
            promise_deadlines=promise_deadlines,
            promise_ttl_s=0.0,
            ageing_s=0.0 if ledger is None else DEFAULT_AGEING_S,  # else the order of the queue says who goes first
            risk=self.risk,
        )
        snapshot = Snapshot(
            pending=tuple(pending),
            devices=tuple(devices),
            scope=SCOPE,
            limits=limits,
            objective=self.objective,
            now_s=cluster.now_s,
            partial=ledger is None,
        )
        context = PlanningContext(
            snapshot=snapshot,
            predictor=self.predictor,
            catalogue=ProfileLookup(profiles=self._profile),
            decision_id=f"replay-{self.decisions}",
        )
        return decide(context, ledger or ScopeLedger(scope=SCOPE))

    def starts(
        self, pending: Sequence[JobState], devices: Iterable[Device], cluster: Cluster, allowed: frozenset[ActionKind]
    ) -> list[Start]:
        """Starts of jobs, given in the order of the queue, by one decision that remembers nothing."""
        jobs = [self.job(state, cluster, weight=len(pending) - k) for k, state in enumerate(pending)]
        decision = self.decide_scope(jobs, devices, cluster, allowed)
        return [Start(job_id=a.job_id, device_ids=a.places) for a in decision.plan.actions if a.places]

    def has_profile(self, state: JobState, device_type: str) -> bool:
        """Is anything known of a job's workload on this device type?"""
        return (state.job.workload, device_type) in self.profiles

    def job(self, state: JobState, cluster: Cluster, weight: float = 1.0) -> Job:
        """A job as a scheduler sends it to the server, without its deadline."""
        return Job(
            id=state.job.id,
            workload=state.job.workload or UNNAMED,
            gpus=state.job.gpus,
            pools=state.job.pools,
            weight=weight,
            attained_s=cluster.served_s(state),
            remaining_s=self.estimate.remaining_s(state, cluster),
            elapsed_s=cluster.now_s - state.job.arrival_s,
        )

    def _profile(self, job: Job, device_type: str) -> JobProfile | None:
        return self.profiles.get((job.workload, device_type))


@dataclass(slots=True, kw_only=True)
class PlannedSharing:
    """The server decides which waiting job joins which host."""

    planner: ServerPlanner

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """The starts of one plan. Only jobs that could join some host are sent, and hosts that some job could join. The
        server knows no reservation: starts that break one are not carried out."""
        planner = self.planner
        cap = math.inf if math.isnan(planner.max_slowdown) else planner.max_slowdown
        pairs = allowed_pairs(
            waiting,
            hosts,
            planner.predictor,
            planner.profiles,
            planner.mode,
            max_slowdown=cap,
            min_joint_throughput=planner.min_joint_throughput,
        )

        def may_join(state: JobState, host: Host) -> bool:
            pair = pairs.get((state.job.workload, host.state.job.workload, host.device_type))
            if pair is None or not fits_on(state, host, cluster, planner.max_shared_gpus):
                return False
            if reservation is not None and not reservation.allows_pair(
                state, host.state, host.device_ids, pair, cluster
            ):
                return False
            return not planner.guest_ends_first or ends_first(state, host, pair, planner.estimate, cluster)

        candidates = (state for state in waiting if any(may_join(state, host) for host in hosts))
        pending = list(islice(candidates, planner.max_pending))
        useful_hosts = [host for host in hosts if any(may_join(state, host) for state in pending)]
        if not pending or not useful_hosts:
            return []
        if len(pending) == 1 and math.isnan(planner.max_slowdown) and planner.objective is ObjectiveKind.TOTAL_SLOWDOWN:
            # Without a cap, which is about risk, the plan of one job is its cheapest host: no need to ask the server.
            guest = pending[0].job
            cheapest = min(
                useful_hosts,
                key=lambda host: pairs[guest.workload, host.state.job.workload, host.device_type].cost,
            )
            return [Start(job_id=guest.id, device_ids=cheapest.device_ids)]
        devices = [
            replace(cluster.devices[device_id].device, mode=planner.mode, residents=(planner.job(host.state, cluster),))
            for host in useful_hosts
            for device_id in host.device_ids
        ]
        host_on = {device_id: host for host in useful_hosts for device_id in host.device_ids}
        starts = planner.starts(pending, devices, cluster, frozenset({ActionKind.START_SHARED, ActionKind.WAIT}))
        joined = [(start, host_on[start.device_ids[0]]) for start in starts]
        return [
            replace(start, device_ids=host.device_ids)
            for start, host in joined
            if reservation is None or may_join(cluster.jobs[start.job_id], host)
        ]


@dataclass(slots=True, kw_only=True)
class PlannedScheduler:
    """The server decides every start, alone or shared; the order only says which jobs it considers first."""

    planner: ServerPlanner
    order: Order
    share: bool = True  # may jobs share at all?

    def decide(self, cluster: Cluster) -> Decision:
        """The starts of one plan."""
        planner = self.planner
        hosts: list[JobState] = []
        if self.share:
            hosts = [
                state for state in cluster.unshared_jobs() if planner.has_profile(state, state.devices[0].device.type)
            ]
        host_sizes = {host.job.gpus for host in hosts}
        queue = in_order(self.order, cluster.waiting.values(), cluster)
        startable = (state for state in queue if state.job.gpus <= len(cluster.free) or state.job.gpus in host_sizes)
        pending = list(islice(startable, planner.max_pending))
        if not pending:
            return Decision()
        pending_sizes = {state.job.gpus for state in pending}
        devices = [replace(device, mode=planner.mode) for device in cluster.free]
        for host in hosts:
            if host.job.gpus in pending_sizes:
                residents = (planner.job(host, cluster),)
                devices += [replace(device.device, mode=planner.mode, residents=residents) for device in host.devices]
        allowed = {ActionKind.START_ALONE, ActionKind.WAIT} | ({ActionKind.START_SHARED} if self.share else set())
        return Decision(starts=planner.starts(pending, devices, cluster, frozenset(allowed)))


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
        """One plan; the server is not asked while no waiting job could start or has become infeasible."""
        waiting = cluster.waiting.values()
        wake_s = next_infeasible_s(waiting, cluster)
        if not (any(is_infeasible(state, cluster) for state in waiting) or self._can_start_any(cluster)):
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
        """Is there a waiting job with enough free devices in one pool, or a host of its size that it may join?"""
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
        """All waiting jobs with deadlines, and the shortest of the others."""
        with_deadline = [state for state in cluster.waiting.values() if state.job.has_deadline]
        best_effort = [state for state in cluster.waiting.values() if not state.job.has_deadline]
        best_effort.sort(key=lambda state: (state.remaining_s, state.arrival_rank))
        return [*with_deadline, *best_effort[: self.max_best_effort]]

    def _job(self, state: JobState, cluster: Cluster) -> Job:
        """A job as a scheduler sends it to the server, with its deadline."""
        remaining_s = max(0.0, self.planner.estimate.remaining_s(state, cluster))
        job = self.planner.job(state, cluster)
        job = replace(job, remaining_s=remaining_s, checkpoint_s=state.job.checkpoint_s)
        if state.job.has_deadline:
            return replace(job, deadline_s=state.job.deadline_s)
        return replace(job, preemptible=True, weight=0.5 / (1.0 + remaining_s / HOUR_S) ** 0.5)

    def _devices(self, cluster: Cluster) -> list[Device]:
        """All devices with the jobs that run on them and their windows as far as they are known."""
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
