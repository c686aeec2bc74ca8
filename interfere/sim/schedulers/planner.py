"""Schedulers that ask the server's own decision function, with the clock of the replay.

`PlannedSharing` sends the jobs that the order of a queue could not start as pending jobs, and the jobs without a
partner as residents with a free seat; `PlannedGroups` does so where devices have more than two seats.
`PlannedScheduler` sends everything: the plan also decides which job starts alone, and where. All are about slowdowns:
weights fall by one a place in the queue, so that the plan starts the jobs that the order would and its costs decide
beside which; the objective must be one that weights do not enter.
`deadline_planner` sends deadlines, windows of devices and the ledger of promises too.
Starts are carried out at once, so a planned start never outlives its decision.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import ScopeDecision, decide
from interfere.protocols import Predictor
from interfere.records import Action, ActionKind, Device, Job, JobProfile, Limits, ObjectiveKind, ScopeLedger, Snapshot
from interfere.records.cluster import DEFAULT_SEATS
from interfere.records.limits import DEFAULT_AGEING_S, DEFAULT_MIN_JOINT_THROUGHPUT, DEFAULT_RISK
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.easy_backfill import BackfillReservation
from interfere.sim.schedulers.greedy_sharing import allowed_pairs, ends_first, fits_on
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.placement import Host, running_hosts

# Waiting jobs that one decision about groups considers: it takes a tenth of a second for so many that all differ.
MAX_PENDING_GROUPS = 16
# Waiting jobs that one decision considers. Of the four Venus clusters only the one in overload ever has more that could
# start, and half or twice as many change its mean completion time by less than 0.1 %.
MAX_PENDING = 64
SCOPE = "replay"
UNNAMED = "?"  # workload of a job whose trace names none


@dataclass(slots=True, kw_only=True)
class ServerPlanner:
    """Calls the server's decision function for a cluster."""

    predictor: Predictor
    profiles: Profiles
    mode: SharingMode
    max_slowdown: float = math.nan
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT
    max_shared_gpus: int | None = None
    guest_ends_first: bool = False  # by the estimates
    objective: ObjectiveKind = ObjectiveKind.TOTAL_SLOWDOWN
    estimate: Estimate = field(default_factory=Oracle)
    max_pending: int = MAX_PENDING
    seats: int = DEFAULT_SEATS  # jobs that may share a device
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
        """Return one decision of the server. No ledger is kept: no promise outlives the decision."""
        self.decisions += 1
        limits = Limits.of(
            allowed=allowed,
            max_slowdown=self.max_slowdown,
            min_joint_throughput=self.min_joint_throughput,
            most_shared_gpus=self.max_shared_gpus,
            guest_ends_first=self.guest_ends_first,
            promise_deadlines=promise_deadlines,
            promise_ttl_s=0.0,
            ageing_s=0.0 if ledger is None else DEFAULT_AGEING_S,  # else the order of the queue decides
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
        actions = self.start_actions(jobs, devices, cluster, allowed)
        return [Start(job_id=action.job_id, device_ids=action.places) for action in actions]

    def start_actions(
        self, pending: Iterable[Job], devices: Iterable[Device], cluster: Cluster, allowed: frozenset[ActionKind]
    ) -> list[Action]:
        """Return the starts of one server decision that keeps no ledger."""
        plan = self.decide_scope(pending, devices, cluster, allowed).plan
        return [action for action in plan.actions if action.places]

    def device(self, cluster: Cluster, device_id: str, residents: Iterable[JobState] = ()) -> Device:
        """Return a device as a scheduler sends it to the server, with its running jobs."""
        return replace(
            cluster.devices[device_id].device,
            mode=self.mode,
            seats=None if self.seats == DEFAULT_SEATS else self.seats,
            residents=tuple(self.job(resident, cluster) for resident in residents),
        )

    def has_profiles(self, host: Host) -> bool:
        """Return whether the workload of every job of a host has a profile on its device type."""
        return all((state.job.workload, host.device_type) in self.profiles for state in host.residents)

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
        """Return the starts of one plan.

        Only jobs that could join some host are sent, and hosts that some job could join. The server knows no
        reservation, so starts that break the reservation are not carried out.
        """
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
            planner.device(cluster, device_id, (host.state,)) for host in useful_hosts for device_id in host.device_ids
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
class PlannedGroups:
    """The server decides which waiting jobs join which groups of running jobs, up to the seats of each device."""

    planner: ServerPlanner

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """Return the starts of one plan. A start that breaks the reservation, and the starts after it, are not carried
        out."""
        planner = self.planner
        # 1. Select hosts whose jobs all have profiles, and waiting jobs of the size of some host.
        hosts = [host for host in hosts if self._may_share(host)]
        sizes = {len(host.device_ids) for host in hosts}
        fitting = (state for state in waiting if state.job.gpus in sizes)
        pending = list(islice(fitting, planner.max_pending))
        if not pending:
            return []
        # 2. The same jobs and devices as records.
        sizes = {state.job.gpus for state in pending}
        jobs = [planner.job(state, cluster, weight=len(pending) - k) for k, state in enumerate(pending)]
        devices = [
            planner.device(cluster, device_id, host.residents)
            for host in hosts
            if len(host.device_ids) in sizes
            for device_id in host.device_ids
        ]
        # 3. Take one decision. On reserved devices, keep only groups whose jobs all end in time.
        actions = planner.start_actions(jobs, devices, cluster, frozenset({ActionKind.START_SHARED, ActionKind.WAIT}))
        ids_on = {device_id: host.device_ids for host in hosts for device_id in host.device_ids}
        return [
            Start(job_id=action.job_id, device_ids=ids_on[action.device_id])
            for action in actions
            if reservation is None or self._keeps(reservation, action, cluster)
        ]

    def _may_share(self, host: Host) -> bool:
        limit = self.planner.max_shared_gpus
        return (limit is None or len(host.device_ids) <= limit) and self.planner.has_profiles(host)

    @staticmethod
    def _keeps(reservation: BackfillReservation, action: Action, cluster: Cluster) -> bool:
        """Return whether all jobs of a group end by the shadow time at their predicted slowdowns."""
        members = [cluster.jobs[job_id] for job_id in (action.job_id, *action.partners)]
        slowdowns = (action.slowdown, *action.slowdown_of_partners.values())
        return reservation.allows_group(members, action.places, slowdowns, cluster)


@dataclass(slots=True, kw_only=True)
class PlannedScheduler:
    """The server decides every start, alone or shared; the order only says which jobs it considers first."""

    planner: ServerPlanner
    order: Order
    share: bool = True  # may jobs share at all?

    def decide(self, cluster: Cluster) -> Decision:
        """The starts of one plan."""
        planner = self.planner
        hosts = [host for host in running_hosts(cluster) if self.share and planner.has_profiles(host)]
        host_sizes = {len(host.device_ids) for host in hosts}
        queue = in_order(self.order, cluster.waiting.values(), cluster)
        startable = (state for state in queue if state.job.gpus <= len(cluster.free) or state.job.gpus in host_sizes)
        pending = list(islice(startable, planner.max_pending))
        if not pending:
            return Decision()
        pending_sizes = {state.job.gpus for state in pending}
        devices = [planner.device(cluster, device.id) for device in cluster.free]
        devices += [
            planner.device(cluster, device_id, host.residents)
            for host in hosts
            if len(host.device_ids) in pending_sizes
            for device_id in host.device_ids
        ]
        allowed = {ActionKind.START_ALONE, ActionKind.WAIT} | ({ActionKind.START_SHARED} if self.share else set())
        return Decision(starts=planner.starts(pending, devices, cluster, frozenset(allowed)))
