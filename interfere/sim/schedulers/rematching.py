"""A queue whose running jobs are re-paired every slice: one assignment of all that run and wait on single devices.

At every event the inner scheduler decides: a queue starts jobs on free devices, a preemptive scheduler also stops them
and lets them share. At most every `slice_s`, and only where a job has arrived, started or ended since the last time,
all jobs on one device and the first waiting ones are assigned anew, but for those that the inner scheduler has just
changed: jobs join, leave, move and swap. Moved jobs pay their checkpoint; none goes back to the queue for another.
A job's expected remaining time is that of the order's estimate of durations, where it has one. For any other it is the
service attained so far: lifetimes have heavy tails, so the longer a job has run, the longer it runs on (Harchol-Balter
and Downey, ACM TOCS 1997). Where durations are estimated the speed of a job counts 1 / expected time, completions a
second; else all count 1.
Law 1: no job is moved within a slice of its last start. Law 2: jobs on several devices neither share nor move. Law 3:
where nothing changed, nothing is solved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from interfere.matching.problem import WAITS
from interfere.matching.rematching import (
    ELSEWHERE,
    Arrangement,
    Floats,
    Rematching,
    RematchingProblem,
    value_of,
)
from interfere.policy.residents.rematching import RematchableJobs, destinations, rematching_problem
from interfere.records.limits import DEFAULT_MOVE_FACTOR
from interfere.sim.cluster import Cluster, Decision, JobState, Scheduler, Start
from interfere.sim.schedulers.estimates import Estimate
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import SchedulerSettings

Solve = Callable[[RematchingProblem], Rematching]
MAX_WAITING = 64  # jobs that one assignment considers, as many as a decision of the server in a replay
EARLIER_BONUS = 1e-3  # of its weight, for the first in the queue over the last: ties go by the order
MIN_GREEDY_GAIN = 1e-9  # of weighted speed: a smaller gain of one change is rounding


class _Class(NamedTuple):
    """Devices among which jobs may move."""

    pool: str
    device_type: str


@dataclass(slots=True, kw_only=True)
class RematchingScheduler:
    """Starts and stops jobs as the inner scheduler says, and re-pairs those that run."""

    inner: Scheduler
    order: Order
    solve: Solve
    settings: SchedulerSettings
    estimate: Estimate | None  # of durations; None: nobody knows them
    slice_s: float
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
        """The decision with the changes of one assignment for each class of devices."""
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
        """Stops and starts among the devices of one class."""
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


# --- greedy re-pairing ----------------------------------------------------------------------------------------------


def rematch_greedily(problem: RematchingProblem) -> Rematching:
    """The arrangement that greedy changes of the present one lead to; no bound is known.

    The single change that gains most is carried out, again and again, until none gains. A waiting job starts on a free
    device, beside a job that is alone, or in the place of a running job, which stops; a running job joins one that is
    alone, leaves its partner for a free device, or changes places with another. A job that leaves a device to itself
    counts what the best waiting job is worth there. No job changes twice.
    """
    search = _GreedySearch(problem)
    while search.take_best_change():
        pass
    arrangement = search.arrangement()
    return Rematching(arrangement=arrangement, value=value_of(problem, arrangement), upper_bound=np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gains:
    """What every single change of an arrangement gains; -inf where it is not possible."""

    start: Floats  # float64[n]: i starts on a free device, or leaves its partner for one
    join: Floats  # float64[n, n]: i joins k, which is alone
    swap: Floats  # float64[n, n]: i and k, both running, change places
    replace: Floats  # float64[n, n]: i starts in the place of k, which stops


class _GreedySearch:
    """An arrangement that changes step by step."""

    def __init__(self, problem: RematchingProblem) -> None:
        present = problem.current()
        self.mate, self.place = present.mate, present.place
        self._problem, self._jobs = problem, np.arange(problem.n)
        self._changed = np.zeros(problem.n, dtype=bool)

    def take_best_change(self) -> bool:
        """Carry out the change that gains most; False where none gains."""
        gains = self._gains()
        start = int(gains.start.argmax()) if self._problem.n else 0
        best = [("start", float(gains.start[start]), start, start)] if self._problem.n else []
        for kind in ("join", "swap", "replace"):
            table = getattr(gains, kind)
            if table.size:
                i, k = divmod(int(table.argmax()), self._problem.n)
                best.append((kind, float(table[i, k]), i, k))
        kind, gain, i, k = max(best, key=lambda change: change[1], default=("", -np.inf, 0, 0))
        if not gain > MIN_GREEDY_GAIN:
            return False
        self._carry_out(kind, i, k)
        return True

    def arrangement(self) -> Arrangement:
        """What it is now; a device that no member of its group comes from is one like any other."""
        home, partner = self._problem.home, np.where(self.mate == WAITS, self._jobs, self.mate)
        is_home = (self.place == home) | (self.place == home[partner])
        return Arrangement(mate=self.mate, place=np.where(is_home, self.place, ELSEWHERE))

    def _gains(self) -> _Gains:
        problem, mate, jobs = self._problem, self.mate, self._jobs
        runs, may_change = mate != WAITS, ~self._changed
        is_alone, shares = mate == jobs, runs & (mate != jobs)
        partner = np.where(shares, mate, jobs)
        shift = problem.relocation
        own_shift = np.diagonal(shift)
        away = runs & ((self.place != problem.home) | (self.place == ELSEWHERE))
        beside = problem.pair - shift - np.where(away[:, None], shift, 0.0).T  # i comes to k
        alone_here = problem.alone - np.where(away, own_shift, 0.0)
        group = np.where(is_alone, alone_here, 0.0)
        paid = np.where(away, shift[jobs, partner], 0.0)
        group[shares] = (problem.pair[jobs, partner] - paid - paid[partner])[shares]
        free = problem.devices - int(is_alone.sum() + shares.sum() // 2)
        waits = ~runs & may_change
        # 1. What is lost where a job leaves, and what a waiting job is worth on a device that becomes free.
        leave = np.where(shares, alone_here[partner] - group, np.where(is_alone, -group, 0.0))
        room = float(problem.alone[waits].max(initial=0.0)) if free == 0 else 0.0
        leave = leave + np.where(is_alone, room, 0.0)
        # 2. Starts and joins.
        start = np.full(problem.n, -np.inf)
        if free > 0:
            start = np.where(waits, problem.alone, np.where(shares, leave + problem.alone - own_shift, -np.inf))
        join = beside - np.where(is_alone, group, np.inf)[None, :] + leave[:, None]
        # 3. Changes of places: what a job is worth in the place of another.
        in_place = np.where(shares[None, :], beside[:, partner], (problem.alone - own_shift)[:, None])
        swap = in_place + in_place.T - group[:, None] - group[None, :]
        swap[~runs, :] = swap[:, ~runs] = -np.inf
        swap[jobs, partner] = -np.inf
        stopping = np.where(problem.runs, problem.stop, np.inf)
        replaced = in_place - (group + stopping)[None, :]
        replaced[~waits, :] = replaced[:, ~runs] = -np.inf
        for table in (join, swap, replaced):
            np.fill_diagonal(table, -np.inf)
            table[~may_change, :] = -np.inf
        swap[:, ~may_change] = replaced[:, ~may_change] = -np.inf
        return _Gains(
            start=np.where(may_change, start, -np.inf),
            join=np.nan_to_num(join, nan=-np.inf, neginf=-np.inf),
            swap=np.nan_to_num(swap, nan=-np.inf, neginf=-np.inf),
            replace=np.nan_to_num(replaced, nan=-np.inf, neginf=-np.inf),
        )

    def _carry_out(self, kind: str, i: int, k: int) -> None:
        old_partner, old_place, k_partner, k_place = self.mate[i], self.place[i], self.mate[k], self.place[k]
        self._changed[i] = True
        if kind in ("start", "join"):
            if old_partner not in (WAITS, i):
                self.mate[old_partner] = old_partner
            self.place[i] = ELSEWHERE if kind == "start" else k_place
            self.mate[i], self.mate[k] = k, i
            return
        self._changed[k] = True
        self._seat(i, k, int(k_partner), int(k_place))
        if kind == "swap":
            self._seat(k, i, int(old_partner), int(old_place))
        else:
            self.mate[k], self.place[k] = WAITS, ELSEWHERE

    def _seat(self, i: int, instead_of: int, partner: int, place: int) -> None:
        """Put i where another job was, beside its partner if it had one."""
        self.place[i] = place
        self.mate[i] = i if partner == instead_of else partner
        if partner != instead_of:
            self.mate[partner] = i
