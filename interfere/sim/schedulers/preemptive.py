"""Preemptive schedulers: stop jobs that come later in the order for jobs that come earlier, with or without sharing.

In order: a running job keeps its devices; a waiting job gets free ones, else those of running jobs that come after it,
the last first. Jobs that still wait may share. With sharing, a pair is separated once devices are free and no job
waits for them, if that saves more than twice the checkpoint: the rule of the server's migrations. A pair ranks as the
earlier of its two jobs. Running jobs are sorted only where a waiting job finds no free devices.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import itemgetter

from interfere.records import Device
from interfere.records.limits import DEFAULT_MOVE_FACTOR
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.estimates import Estimate, ToldDurations
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import GuestPlacement, Host, running_hosts

Rank = tuple[float, int]
"""Key of the order, then arrival: the smaller, the earlier."""


@dataclass(slots=True, kw_only=True)
class PreemptiveScheduler:
    """At every event, the order decides which jobs run."""

    order: Order
    backfill: bool = True  # may a later job start where an earlier one does not fit?
    sharing: GuestPlacement | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any devices
    estimate: Estimate = field(default_factory=ToldDurations)  # for what separating a pair saves
    _jumps: list[tuple[float, int, int, str]] = field(default_factory=list)  # heap of (when, arrival, version, job id)
    _rates_read: int = 0  # of `Cluster.changed_rates`

    def decide(self, cluster: Cluster) -> Decision:
        """Return the starts and stops of this moment."""
        if not cluster.waiting and (self.sharing is None or not cluster.free or not cluster.shared):
            return Decision(wake_s=self._wake_s(cluster, ()))
        draft = _DraftDecision(cluster, self.order)
        node_gpus = cluster.node_gpus if self.whole_nodes else 0
        # 1. Give devices to jobs in order, and stop later jobs where that is needed.
        blocked = draft.blocked
        while (state := draft.next_waiting()) is not None:
            if devices := draft.make_room(state, node_gpus):
                draft.start(state, devices)
                continue
            blocked.append(state)
            if not self.backfill:
                break
        # 2. Let jobs share that still wait; where none does, separate pairs onto free devices.
        if self.sharing is not None:
            considered = {*draft.starts, *(state.job.id for state in blocked)}
            blocked += [cluster.jobs[job_id] for job_id in draft.stopped if job_id not in considered]
            if blocked:
                for start in self.sharing.join(in_order(self.order, blocked, cluster), draft.hosts(), cluster):
                    draft.starts[start.job_id] = start
            elif cluster.shared and draft.free:
                self._separate_pairs(draft, node_gpus)
        wake_s = self._wake_s(cluster, draft.starts)
        return Decision(starts=list(draft.starts.values()), stops=list(draft.stopped), wake_s=wake_s)

    def _separate_pairs(self, draft: "_DraftDecision", node_gpus: int) -> None:
        """Move jobs that share to free devices of their own."""
        cluster, separated = draft.cluster, set[str]()
        paired = [state for state in cluster.running.values() if state.company]
        for state in in_order(self.order, paired, cluster):
            partner = state.company[0]
            if not separated.isdisjoint((state.job.id, partner.job.id)) or state.job.id in draft.stopped:
                continue
            if not state.job.preemptible or self._separation_saves_s(state, partner, cluster) <= 0:
                continue
            if devices := draft.free.find(state.job.gpus, state.job.pools, node_gpus):
                draft.stop(state)
                draft.start(state, devices)
                separated |= {state.job.id, partner.job.id}

    def _separation_saves_s(self, state: JobState, partner: JobState, cluster: Cluster) -> float:
        """Seconds by which the two end sooner in sum, less twice the checkpoint."""
        shared_s = min(self.estimate.remaining_s(member, cluster) * member.slowdown for member in (state, partner))
        lost_speed = (1 - 1 / state.slowdown) + (1 - 1 / partner.slowdown)
        return shared_s * lost_speed - DEFAULT_MOVE_FACTOR * state.job.checkpoint_s

    def _wake_s(self, cluster: Cluster, starting: Iterable[str]) -> float:
        """Return when the order next changes by itself.

        Where sharing slows a job the time is too early, which costs one extra decision.
        """
        if not self.order.jumps:
            return math.inf
        for state in cluster.changed_rates[self._rates_read :]:
            self._foresee_jump(state, cluster)
        self._rates_read = len(cluster.changed_rates)
        while self._jumps:
            moment_s, _, version, job_id = self._jumps[0]
            state = cluster.jobs[job_id]
            if state.devices and state.rate_version == version and moment_s > cluster.now_s:
                break
            heapq.heappop(self._jumps)
            if state.devices and state.rate_version == version:
                self._foresee_jump(state, cluster)  # rounding: it is due, and has not come yet
        first_s = self._jumps[0][0] if self._jumps else math.inf
        starts_s = (self.order.next_change_s(cluster.jobs[job_id], cluster) for job_id in starting)
        return min(first_s, min(starts_s, default=math.inf))

    def _foresee_jump(self, state: JobState, cluster: Cluster) -> None:
        if state.devices:
            moment_s = self.order.next_change_s(state, cluster)
            if cluster.now_s < moment_s < math.inf:
                heapq.heappush(self._jumps, (moment_s, state.arrival_rank, state.rate_version, state.job.id))


def _turn(victims: Sequence[JobState], device: Device) -> int:
    """Return the preference key of a device of a node: -1 for a free device, else the position of its victim."""
    return next((k for k, victim in enumerate(victims) if device.id in victim.device_ids), -1)


def _leads_pair(state: JobState) -> bool:
    """Return whether the job has no partner, or arrived before its partner."""
    return state.partner is None or state.arrival_rank < state.partner.arrival_rank


class _DraftDecision:
    """The starts and stops decided so far, and the state of the devices after them."""

    def __init__(self, cluster: Cluster, order: Order) -> None:
        self.cluster, self._order = cluster, order
        self.free = cluster.free.copy()
        self.starts: dict[str, Start] = {}
        self.stopped: dict[str, None] = {}
        self.blocked: list[JobState] = []  # waiting jobs that find no devices, in order
        waiting = list(cluster.waiting.values())
        self._waiting = [
            ((key, state.arrival_rank), state) for state, key in zip(waiting, order.keys(waiting, cluster), strict=True)
        ]
        self._waiting.sort(key=itemgetter(0), reverse=True)  # the next one last
        # (size, pools) for which all devices of later jobs were too few: still later jobs may take no others.
        self._too_large: set[tuple[int, tuple[str, ...]]] = set()
        self._last_first: list[tuple[Rank, JobState]] | None = None  # running jobs, one of each pair

    def _rank(self, state: JobState) -> Rank:
        return self._order.keys((state,), self.cluster)[0], state.arrival_rank

    def next_waiting(self) -> JobState | None:
        """Return the next waiting or stopped job that may find devices; None where there is none. Each job is returned
        once.

        Jobs that ask for more devices than are left are skipped, and added to `blocked`.
        """
        while self._waiting:
            _, state = self._waiting.pop()
            if (state.job.gpus, state.job.pools) not in self._too_large:
                return state
            self.blocked.append(state)
        return None

    def make_room(self, state: JobState, node_gpus: int) -> tuple[Device, ...]:
        """Return free devices for a job, or else devices of later jobs, which are stopped; empty where there are too
        few."""
        request = (state.job.gpus, state.job.pools)
        if devices := self.free.find(*request, node_gpus):
            return devices
        rank = self._rank(state)
        later = takewhile(lambda entry: entry[0] >= rank, self._running_after(rank))
        victims = [each for _, each in later if each.job.id not in self.stopped and self._is_preemptible(each)]

        def found_with(count: int) -> tuple[Device, ...]:
            """Return devices for the job, from free devices and those of the first `count` victims."""
            free = self.free.copy()
            free.add(device.device for victim in victims[:count] for device in victim.devices)
            return free.prefer(free.find(*request, node_gpus), partial(_turn, victims))

        if not found_with(len(victims)):
            self._too_large.add(request)
            return ()
        fewest = bisect_left(range(len(victims)), 1, key=lambda count: bool(found_with(count)))
        devices = found_with(fewest)
        self._preempt(victims[:fewest], devices)
        return devices

    def _running_after(self, first: Rank) -> list[tuple[Rank, JobState]]:
        """Return the running jobs that come after `first`, with their ranks, the last job first.

        Of each pair one job is listed, with the rank of the earlier job. Waiting jobs ask in order, so that the result
        for the first one contains all that later ones need.
        """
        if self._last_first is None:
            (first_key, first_arrival), running = first, list(self.cluster.running.values())
            if first_key >= self._order.max_key:  # by arrival alone: no keys of the others are needed
                running = [state for state in running if state.arrival_rank >= first_arrival]
            ranked = [
                ((key, state.arrival_rank), state)
                for state, key in zip(running, self._order.keys(running, self.cluster), strict=True)
                if key > first_key or (key == first_key and state.arrival_rank >= first_arrival)
            ]
            if self.cluster.shared:
                ranked = [(self._rank_of_pair(rank, state), state) for rank, state in ranked if _leads_pair(state)]
            self._last_first = sorted(ranked, key=itemgetter(0), reverse=True)
        return self._last_first

    def _rank_of_pair(self, rank: Rank, state: JobState) -> Rank:
        """The rank of a job, or of its partner where that comes earlier."""
        return rank if state.partner is None else min(rank, self._rank(state.partner))

    @staticmethod
    def _is_preemptible(state: JobState) -> bool:
        return state.job.preemptible and (state.partner is None or state.partner.job.preemptible)

    def _preempt(self, victims: Sequence[JobState], devices: Sequence[Device]) -> None:
        """Stop the victims that are on these devices, with their partners."""
        wanted = {device.id for device in devices}
        for victim in victims:
            if wanted.intersection(victim.device_ids):
                for member in (victim, victim.partner):
                    if member is not None:
                        self.stop(member)
                        self._waiting.append((self._rank(member), member))
        self._waiting.sort(key=itemgetter(0), reverse=True)

    def stop(self, state: JobState) -> None:
        """A job leaves its devices, which are free once no job keeps them."""
        self.stopped[state.job.id] = None
        if state.partner is None or state.partner.job.id in self.stopped:
            self.free.add(device.device for device in state.devices)

    def start(self, state: JobState, devices: Sequence[Device]) -> None:
        """Start a job on free devices."""
        device_ids = tuple(device.id for device in devices)
        self.starts[state.job.id] = Start(job_id=state.job.id, device_ids=device_ids)
        self.free.remove(devices)

    def hosts(self) -> list[Host]:
        """Return the jobs without a partner that run, or will run."""
        hosts = [host for host in running_hosts(self.cluster) if host.state.job.id not in self.stopped]
        for start in self.starts.values():
            device_type = self.cluster.devices[start.device_ids[0]].device.type
            state = self.cluster.jobs[start.job_id]
            hosts.append(Host(state=state, device_ids=start.device_ids, device_type=device_type))
        return hosts
