"""Schedulers that ask the server's own decision function, with the clock of the replay.

`PlannedSharing` sends the jobs that the order of a queue could not start as pending jobs, and the jobs that leave a
seat as residents.
`PlannedScheduler` sends everything: the plan also decides which job starts alone, and where. These are about slowdowns:
weights fall by one a place in the queue, so that the plan starts the jobs that the order would and its costs decide
beside which. With another objective all jobs weigh one, and the plan decides their order too.
`DeadlinePlanner` also sends deadlines, windows of devices and the ledger of promises.
Starts are carried out at once, so a planned start never outlives its decision.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.rules.runtime import P90_Z
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    ScopeLedger,
    Snapshot,
    Window,
)
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.easy_backfill import BackfillReservation
from interfere.sim.schedulers.estimates import Estimate, ToldDurations, is_infeasible, next_infeasible_s
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import (
    AllowedPairs,
    Host,
    SchedulerSettings,
    allowed_pairs,
    fitting_pair,
    is_timely,
    running_hosts,
)
from interfere.sim.world import Windows

# Waiting jobs that one decision considers, of devices with two seats. Of the four Venus clusters only the one in
# overload ever has more that could start, and half or twice as many change its mean completion time by less than 0.1 %.
MAX_PENDING = 64
MAX_PENDING_GROUPS = 16  # with more seats: a decision takes a tenth of a second for so many jobs that all differ
MAX_BEST_EFFORT = 32  # jobs without a deadline that one decision about deadlines considers, the shortest
SCOPE = "replay"
UNNAMED = "?"  # workload of a job whose trace names none
JOINS = frozenset({ActionKind.START_SHARED, ActionKind.WAIT})


@dataclass(slots=True, kw_only=True)
class ServerPlanner:
    """Calls the server's decision function for a cluster."""

    settings: SchedulerSettings
    estimate: Estimate = field(default_factory=ToldDurations)
    objective: ObjectiveKind = ObjectiveKind.TOTAL_SLOWDOWN
    decisions: int = 0

    @property
    def max_pending(self) -> int:
        """The largest number of waiting jobs that one decision considers."""
        return MAX_PENDING if self.settings.seats == DEFAULT_SEATS else MAX_PENDING_GROUPS

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
        """Return one decision of the server on the pending jobs and devices. Without a ledger, promises end with the
        decision."""
        self.decisions += 1
        settings = self.settings
        limits = Limits.of(
            allowed=allowed,
            max_slowdown=settings.max_slowdown,
            min_joint_throughput=settings.min_joint_throughput,
            most_shared_gpus=settings.max_shared_gpus,
            guest_ends_first=settings.guest_ends_first,
            promise_deadlines=promise_deadlines,
            promise_ttl_s=0.0,
            risk=settings.risk,
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
            predictor=settings.predictor,
            catalogue=ProfileLookup(profiles=lambda job, kind: settings.profile(job.workload, kind)),
            decision_id=f"replay-{self.decisions}",
        )
        return decide(context, ledger or ScopeLedger(scope=SCOPE))

    def start_actions(
        self, pending: Sequence[JobState], devices: Iterable[Device], cluster: Cluster, allowed: frozenset[ActionKind]
    ) -> list[Action]:
        """Return the starts of one decision that keeps no ledger. `pending`: in the order of the queue."""
        by_place = self.objective is ObjectiveKind.TOTAL_SLOWDOWN  # others say for themselves which job comes first
        jobs = [
            self.job(state, cluster, weight=len(pending) - k if by_place else 1.0) for k, state in enumerate(pending)
        ]
        plan = self.decide_scope(jobs, devices, cluster, allowed).plan
        return [action for action in plan.actions if action.places]

    def host_devices(self, hosts: Iterable[Host], cluster: Cluster) -> list[Device]:
        """Return the devices of hosts as a scheduler sends them to the server, with their running jobs."""
        return [
            self.device(cluster, device_id, [self.job(resident, cluster) for resident in host.residents])
            for host in hosts
            for device_id in host.device_ids
        ]

    def device(self, cluster: Cluster, device_id: str, residents: Iterable[Job] = (), windows: Windows = ()) -> Device:
        """Return a device as a scheduler sends it to the server, with its running jobs and the windows known now."""
        seats = self.settings.seats
        return replace(
            cluster.devices[device_id].device,
            mode=self.settings.mode,
            seats=None if seats == DEFAULT_SEATS else seats,
            residents=tuple(residents),
            windows=tuple(
                Window(from_s=from_s, until_s=NAN if math.isinf(until_s) else until_s) for from_s, until_s in windows
            ),
        )

    def has_profiles(self, host: Host) -> bool:
        """Return whether the workload of every job of a host has a profile on its device type."""
        return all(self.settings.profile(state.job.workload, host.device_type) for state in host.residents)

    def job(self, state: JobState, cluster: Cluster, weight: float = 1.0) -> Job:
        """Return a job as a scheduler sends it to the server, without its deadline."""
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


@dataclass(slots=True, kw_only=True)
class PlannedSharing:
    """A placement in which the server decides which waiting job joins which running ones, up to the seats of each
    device."""

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
        planner, settings = self.planner, self.planner.settings
        in_pairs = settings.seats == DEFAULT_SEATS
        # 1. Select the jobs and hosts that could share: with two seats by their pair, with more by their size.
        pairs: AllowedPairs = allowed_pairs(waiting, hosts, settings) if in_pairs else {}
        limit = settings.max_shared_gpus
        if not in_pairs:
            hosts = [
                host
                for host in hosts
                if (limit is None or len(host.device_ids) <= limit) and planner.has_profiles(host)
            ]

        def may_join(state: JobState, host: Host) -> bool:
            if not in_pairs:
                return state.job.gpus == len(host.device_ids)
            pair = fitting_pair(state, host, pairs, settings, cluster)
            return pair is not None and is_timely(state, host, pair, settings, planner.estimate, cluster, reservation)

        candidates = (state for state in waiting if any(may_join(state, host) for host in hosts))
        pending = list(islice(candidates, planner.max_pending))
        useful_hosts = [host for host in hosts if any(may_join(state, host) for state in pending)]
        if not pending or not useful_hosts:
            return []
        is_capped = not math.isnan(settings.max_slowdown)
        if in_pairs and len(pending) == 1 and not is_capped:
            # Without a cap, which is about risk, the plan of one job is its cheapest host: no need to ask the server.
            guest = pending[0].job
            cheapest = min(
                useful_hosts,
                key=lambda host: pairs[guest.workload, host.state.job.workload, host.device_type].cost,
            )
            return [Start(job_id=guest.id, device_ids=cheapest.device_ids)]
        # 2. Take one decision. On reserved devices, keep only groups whose jobs all end in time.
        ids_on = {device_id: host.device_ids for host in useful_hosts for device_id in host.device_ids}
        actions = planner.start_actions(pending, planner.host_devices(useful_hosts, cluster), cluster, JOINS)
        return [
            Start(job_id=action.job_id, device_ids=ids_on[action.places[0]])
            for action in actions
            if reservation is None or self._keeps(reservation, action, cluster)
        ]

    @staticmethod
    def _keeps(reservation: BackfillReservation, action: Action, cluster: Cluster) -> bool:
        members = [cluster.jobs[job_id] for job_id in (action.job_id, *action.partners)]
        slowdowns = (action.slowdown, *action.slowdown_of_partners.values())
        return reservation.allows_group(members, action.places, slowdowns, cluster)


@dataclass(slots=True, kw_only=True)
class PlannedScheduler:
    """A scheduler in which the server decides every start. The order only says which jobs the server considers
    first."""

    planner: ServerPlanner
    order: Order
    share: bool = True  # may jobs share at all?

    def decide(self, cluster: Cluster) -> Decision:
        """Return the starts of one plan of the server."""
        planner = self.planner
        hosts = [host for host in running_hosts(cluster) if self.share and planner.has_profiles(host)]
        host_sizes = {len(host.device_ids) for host in hosts}
        queue = in_order(self.order, cluster.waiting.values(), cluster)
        startable = (state for state in queue if state.job.gpus <= len(cluster.free) or state.job.gpus in host_sizes)
        pending = list(islice(startable, planner.max_pending))
        if not pending:
            return Decision()
        sizes = {state.job.gpus for state in pending}
        devices = [planner.device(cluster, device.id) for device in cluster.free]
        devices += planner.host_devices((host for host in hosts if len(host.device_ids) in sizes), cluster)
        allowed = {ActionKind.START_ALONE, ActionKind.WAIT} | ({ActionKind.START_SHARED} if self.share else set())
        actions = planner.start_actions(pending, devices, cluster, frozenset(allowed))
        return Decision(starts=[Start(job_id=action.job_id, device_ids=action.places) for action in actions])


@dataclass(slots=True, kw_only=True)
class DeadlinePlanner:
    """A scheduler in which the server starts and declines jobs by deadlines, and remembers promised deadlines.

    The objective is the server's default: the fewest expected misses, then the mean time to the end. Only jobs without
    a deadline may be stopped by a device that leaves. Jobs that the plan declines are dropped.
    """

    planner: ServerPlanner
    share: bool = True
    promise: bool = True  # promise deadlines, and start no job that would break one
    _ledger: ScopeLedger = field(default_factory=lambda: ScopeLedger(scope=SCOPE))

    def decide(self, cluster: Cluster) -> Decision:
        """Return one plan. The server is not asked while no waiting job could start or has become infeasible."""
        waiting, estimate = cluster.waiting.values(), self.planner.estimate
        wake_s = next_infeasible_s(waiting, cluster, estimate)
        infeasible = any(is_infeasible(state, cluster, estimate) for state in waiting)
        if not infeasible and not self._can_start_any(cluster):
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
        """Return whether a waiting job could start, on enough free devices of one pool or beside a host of its size."""
        max_free = cluster.free.most_of_one_pool()
        waiting = list(cluster.waiting.values())
        if any(state.job.gpus <= max_free for state in waiting):
            return True
        if not self.share:
            return False
        hosts = running_hosts(cluster)
        uncapped = replace(self.planner.settings, max_slowdown=NAN)
        pairs = allowed_pairs(waiting, hosts, uncapped)
        return any(fitting_pair(state, host, pairs, uncapped, cluster) for state in waiting for host in hosts)

    def _pending(self, cluster: Cluster) -> list[JobState]:
        """Return all waiting jobs with deadlines, and the shortest waiting jobs without."""
        with_deadline = [state for state in cluster.waiting.values() if state.job.has_deadline]
        best_effort = [state for state in cluster.waiting.values() if not state.job.has_deadline]
        best_effort.sort(key=lambda state: (state.remaining_s, state.arrival_rank))
        return [*with_deadline, *best_effort[:MAX_BEST_EFFORT]]

    def _job(self, state: JobState, cluster: Cluster) -> Job:
        """Return a job as a scheduler sends it to the server, with its deadline."""
        error = self.planner.estimate.error
        job = self.planner.job(state, cluster)
        job = replace(job, remaining_s=max(0.0, job.remaining_s), checkpoint_s=state.job.checkpoint_s)
        if error:
            job = replace(job, remaining_p90_s=job.remaining_s * math.exp(P90_Z * error))
        if state.job.has_deadline:
            return replace(job, deadline_s=state.job.deadline_s)
        return replace(job, preemptible=state.job.preemptible)

    def _devices(self, cluster: Cluster) -> list[Device]:
        """Return all devices with their running jobs, and with the availability windows that are known now."""
        residents: dict[str, list[Job]] = {}
        for state in cluster.running.values():
            job = self._job(state, cluster)
            for device_id in state.device_ids:
                residents.setdefault(device_id, []).append(job)
        return [
            self.planner.device(cluster, device_id, residents.get(device_id, ()), device.known_windows(cluster.now_s))
            for device_id, device in cluster.devices.items()
        ]
