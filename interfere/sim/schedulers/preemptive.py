"""Schedulers that stop running jobs: for jobs that come earlier in the order, or to pair running jobs anew.

In order: a running job keeps its devices; a waiting job gets free ones, else those of running jobs that come after it,
the last first. Jobs that still wait may share. With sharing, a pair is separated once devices are free and no job
waits for them, if that saves more than twice the checkpoint: the rule of the server's migrations. A pair ranks as the
earlier of its two jobs. Running jobs are sorted only where a waiting job finds no free devices.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, takewhile
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from interfere.matching.problem import WAITS
from interfere.matching.rematching import (
    RematchableJobs,
    Rematching,
    RematchingProblem,
    destinations,
    rematch,
    rematching_problem,
)
from interfere.records import Device
from interfere.records.limits import DEFAULT_MOVE_FACTOR
from interfere.sim.cluster import Cluster, Decision, JobState, Scheduler, Start
from interfere.sim.schedulers.estimates import Estimate, ToldDurations
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import GuestPlacement, Host, SchedulerSettings, running_hosts

Rank = tuple[float, int]
"""Key of the order, then arrival: the smaller, the earlier."""


@dataclass(slots=True, kw_only=True)
class PreemptiveScheduler:
    """A scheduler that starts jobs in order at every event, and stops later jobs in favour of earlier jobs."""

    order: Order
    backfill: bool = True  # may a later job start where an earlier one does not fit?
    sharing: GuestPlacement | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any devices
    estimate: Estimate = field(default_factory=ToldDurations)  # for what separating a pair saves
    _jumps: list[tuple[float, int, int, str]] = field(default_factory=list)  # heap of (when, arrival, version, job id)
    _rates_read: int = 0  # of `Cluster.changed_rates`

    def decide(self, cluster: Cluster) -> Decision:
        """Return the jobs that start and stop now."""
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
        """Move jobs that share a device to free devices, where that saves more than twice the checkpoint."""
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
        """Return the seconds that two partners save in sum when they are separated, less twice the checkpoint."""
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


class _DraftDecision:
    """A decision under construction: its starts and stops so far, and the free devices after them."""

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
        victims = [
            each
            for _, each in later
            if each.job.id not in self.stopped and all(one.job.preemptible for one in (each, *each.company))
        ]

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
            running = list(self.cluster.running.values())
            ranked = [
                ((key, state.arrival_rank), state)
                for state, key in zip(running, self._order.keys(running, self.cluster), strict=True)
                if (key, state.arrival_rank) >= first
            ]
            if self.cluster.shared:
                ranked = [
                    (rank if state.partner is None else min(rank, self._rank(state.partner)), state)
                    for rank, state in ranked
                    if state.partner is None or state.arrival_rank < state.partner.arrival_rank
                ]
            self._last_first = sorted(ranked, key=itemgetter(0), reverse=True)
        return self._last_first

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
        """Stop a job. Its devices are free from now on, unless its partner stays on them."""
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


# --- re-pairing -------------------------------------------------------------------------------------------------------


Solve = Callable[[RematchingProblem], Rematching]
MAX_WAITING = 64  # jobs that one assignment considers, as many as a decision of the server in a replay
EARLIER_BONUS = 1e-3  # of its weight, for the first in the queue over the last: ties go by the order


class _Class(NamedTuple):
    """A pool and a device type: jobs may move among the devices of both."""

    pool: str
    device_type: str


@dataclass(slots=True, kw_only=True)
class RematchingScheduler:
    """A queue whose running jobs are re-paired every slice: one assignment of all that run and wait on single devices.

    At every event the inner scheduler decides: a queue starts jobs on free devices, a preemptive scheduler also
    stops them and lets them share. At most every `slice_s`, and only where a job has arrived, started or ended
    since the last time, all jobs on one device and the first waiting ones are assigned anew, but for those that the
    inner scheduler has just changed: jobs join, leave, move and swap. Moved jobs pay their checkpoint; none goes
    back to the queue for another.

    A job's expected remaining time is that of the order's estimate of durations, where it has one. For any other it
    is the service attained so far: lifetimes have heavy tails, so the longer a job has run, the longer it runs on
    (Harchol-Balter and Downey, ACM TOCS 1997). Where durations are estimated the speed of a job counts 1 / expected
    time, completions a second; else all count 1.

    Law 1: no job is moved within a slice of its last start. Law 2: jobs on several devices neither share nor move.
    Law 3: where nothing changed, nothing is solved.
    """

    inner: Scheduler
    order: Order
    settings: SchedulerSettings
    estimate: Estimate | None  # of durations; None: nobody knows them
    slice_s: float
    solve: Solve = rematch
    assignments: int = 0  # solved so far
    _due_s: float = 0.0  # the next slice
    _known: tuple[int, int] = (0, 0)  # changes of rates and arrivals that the last assignment knew
    _since_s: dict[str, float] = field(default_factory=dict)  # last start of each job

    def decide(self, cluster: Cluster) -> Decision:
        """Return the inner scheduler's decision. Where a slice is due and something has changed, add one assignment."""
        decision = self.inner.decide(cluster)
        present = (len(cluster.changed_rates), len(cluster.jobs))
        if present != self._known and cluster.now_s >= self._due_s:
            decision = self._assign(decision, cluster)
            self._due_s, self._known = cluster.now_s + self.slice_s, present
        self._since_s |= dict.fromkeys((start.job_id for start in decision.starts), cluster.now_s)
        is_due = present != self._known or decision.starts
        return replace(decision, wake_s=min(decision.wake_s, self._due_s if is_due else math.inf))

    def _assign(self, decision: Decision, cluster: Cluster) -> Decision:
        """Return the decision together with the starts and stops of one assignment for each class of devices."""
        changing = {start.job_id for start in decision.starts} | set(decision.stops)
        closed = {name for start in decision.starts for name in start.device_ids}
        closed |= {name for job_id in decision.stops for name in cluster.jobs[job_id].device_ids}
        free = [device for device in cluster.free if device.id not in closed]
        queue = [
            state
            for state in in_order(self.order, cluster.waiting.values(), cluster)
            if state.job.gpus == 1 and state.job.id not in changing
        ]
        residents_of: dict[_Class, list[JobState]] = {}
        for state in cluster.running.values():
            device = state.devices[0].device
            if (
                state.job.gpus == 1
                and device.id not in closed
                and self.settings.profile(state.job.workload, device.type)
            ):
                residents_of.setdefault(_Class(device.pool, device.type), []).append(state)
        starts, stops = list(decision.starts), list(decision.stops)
        for kind, residents in residents_of.items():
            empty = [device.id for device in free if _Class(device.pool, device.type) == kind]
            changes = self._assign_class(kind, residents, queue, empty, cluster)
            starts += changes.starts
            stops += changes.stops
            taken = {start.job_id for start in changes.starts}
            queue = [state for state in queue if state.job.id not in taken]
        return replace(decision, starts=starts, stops=stops)

    def _assign_class(
        self, kind: _Class, residents: list[JobState], queue: list[JobState], empty: list[str], cluster: Cluster
    ) -> Decision:
        """Return the stops and starts of the best assignment of jobs to the devices of one class."""
        # 1. The devices with residents, and as many waiting jobs as could start.
        homes = list(dict.fromkeys(state.device_ids[0] for state in residents))
        devices = len(homes) + len(empty)
        places = 2 * devices - len(residents)
        suitable = (state for state in queue if self._suits(state, kind))
        waiting = list(islice(suitable, min(MAX_WAITING, places)))
        states = [*residents, *waiting]
        # 2. What each arrangement is worth, and the best one.
        names = list(dict.fromkeys(state.job.workload for state in states))
        slowdown, _, allowed = self.settings.predict_pairs(names, names, kind.device_type)
        number = {name: k for k, name in enumerate(names)}
        each = np.array([number[state.job.workload] for state in states])
        problem = rematching_problem(
            self._jobs(states, homes, len(waiting), cluster),
            slowdown[np.ix_(each, each)],
            allowed[np.ix_(each, each)],
            devices=devices,
            move_factor=DEFAULT_MOVE_FACTOR,
        )
        self.assignments += 1
        arrangement = self.solve(problem).arrangement
        # 3. All that leave stop first, then everybody starts.
        leaving = problem.runs & (arrangement.place != problem.home)
        device_of = destinations(problem, arrangement, [*homes, *empty])
        return Decision(
            starts=[Start(job_id=states[i].job.id, device_ids=(device,)) for i, device in device_of.items()],
            stops=[states[i].job.id for i in np.flatnonzero(leaving)],
        )

    def _suits(self, state: JobState, kind: _Class) -> bool:
        """Return whether a waiting job itself may share on devices of this class, whoever runs there."""
        job = state.job
        has_profile = self.settings.profile(job.workload, kind.device_type) is not None
        return has_profile and (not job.pools or kind.pool in job.pools)

    def _expected_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the expected remaining time alone at speed 1; no job is expected to end within a slice."""
        if self.estimate is None:
            return max(self.slice_s, cluster.served_s(state))
        return max(self.slice_s, self.estimate.remaining_s(state, cluster))

    def _jobs(self, states: Sequence[JobState], homes: list[str], waiting: int, cluster: Cluster) -> RematchableJobs:
        number = {device_id: k for k, device_id in enumerate(homes)}
        lateness = np.concatenate([np.zeros(len(states) - waiting), np.arange(waiting) / max(1, waiting)])
        expected_s = np.array([self._expected_s(state, cluster) for state in states])
        weight = np.ones(len(states)) if self.estimate is None else 1.0 / expected_s
        held = [
            cluster.now_s - self._since_s[state.job.id] < self.slice_s if state.devices else False for state in states
        ]
        return RematchableJobs(
            home=np.array([number[state.device_ids[0]] if state.devices else WAITS for state in states]),
            weight=weight * (1 + EARLIER_BONUS * (1 - lateness)),
            expected_s=expected_s,
            checkpoint_s=np.array([state.job.checkpoint_s for state in states]),
            may_move=np.array([state.job.preemptible for state in states]) & ~np.array(held, dtype=bool),
        )
