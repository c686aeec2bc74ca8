"""The occupation of all devices over time, to which jobs are added one after the other, alone or beside another job.

Law 1: no device class ever has more devices in use than it has open. Law 2: a set of devices is shared by two jobs at
most at any time. A job joins another at the moment from which that one is alone on its devices.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.policy.costs.objectives import Aggregate
from interfere.policy.deadlines.admission import CapacityProfile, Interval
from interfere.policy.rules.runtime import pair_ends_s
from interfere.policy.schedule.problem import (
    MEAN_SHARE,
    MISS_DIGITS,
    Bools,
    Floats,
    Ints,
    Schedule,
    ScheduleProblem,
)

EPSILON_S = 1e-6  # shorter times are rounding
# A second past a promised end costs as much as this many seconds of the job that counts most.
LATE_PRICE = 1e3
MISS_PRICE = 1e9  # seconds of the same job that a miss of a deadline costs: it comes before all seconds past promises
STEPS_OF_A_UNIT = 20  # steps of a profile that are visited in the time of one host
MAX_HOSTS_TRIED = 8  # hosts, the cheapest first, that are tried until one has room for the longer occupation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart:
    """Pending jobs that start together at this moment, alone or beside residents, with the slowdowns of all members."""

    jobs: tuple[int, ...]
    device_class: int
    gpus: int
    slowdowns: tuple[float, ...]  # of each of the jobs, then of each of the hosts
    hosts: tuple[int, ...] = ()  # residents


Part = tuple[int, float, float]
"""(device class, from, until): a stretch of time in which a job runs."""


class Timeline:
    """A partial schedule; each slot is a set of devices with the job that is the last to end on it."""

    def __init__(self, problem: ScheduleProblem, profiles: "list[CapacityProfile] | None" = None) -> None:
        """The occupation by the residents alone; `profiles` as `resident_profiles` makes them, which are copied."""
        self.problem = problem
        n, jobs = problem.pending, problem.jobs
        known = profiles if profiles is not None else resident_profiles(problem)
        self.profiles = [profile.copy() for profile in known]
        self.start_s = np.full(n, np.inf)
        self.end_s = np.full(jobs, np.inf)
        self.place = np.full(n, -1, dtype=np.int64)
        self.host = np.full(n, -1, dtype=np.int64)
        occupied = problem.occupied_slots
        self.slots = len(problem.running)
        self.slot_class, self.slot_gpus, self.slot_job = (
            np.concatenate([values, np.zeros(n, dtype=np.int64)])
            for values in (occupied.device_class, occupied.gpus, occupied.last_job)
        )
        # From when its job is alone there, when it ends, and what it then still has to do, alone.
        self.slot_alone_s, self.slot_end_s, self.slot_work_s = (
            np.concatenate([values, np.zeros(n)])
            for values in (occupied.alone_s, occupied.end_s, occupied.end_s - occupied.alone_s)
        )
        self.end_s[occupied.job] = occupied.job_end_s
        self.units = 0
        self.new_devices = 0
        self.kept_starts: set[int] = set()
        self.worst_cost = -math.inf
        self._slot_of_resident = occupied.slot_of_job
        self._has_deadline = np.isfinite(problem.deadlines.at_s).tolist()
        largest_rate = float(problem.objective.rate.max(initial=1e-12))
        self._late_price, self._miss_price = LATE_PRICE * largest_rate, MISS_PRICE * largest_rate

    def _add_slot(self, device_class: int, gpus: int, job: int, alone_s: float, end_s: float) -> None:
        """Add a set of devices whose job is alone there from one time to another."""
        k = self.slots
        self.slot_class[k], self.slot_gpus[k], self.slot_job[k] = device_class, gpus, job
        self.slot_alone_s[k], self.slot_end_s[k], self.slot_work_s[k] = alone_s, end_s, end_s - alone_s
        self.slots += 1

    def schedule(self) -> Schedule:
        """Return the schedule of all jobs that were added."""
        return Schedule(
            start_s=self.start_s,
            end_s=self.end_s,
            device_class=self.place,
            host=self.host,
            kept_starts=frozenset(self.kept_starts),
            work_units=self.units + sum(profile.visited_steps for profile in self.profiles) // STEPS_OF_A_UNIT,
        )

    # --- alone ------------------------------------------------------------------------------------------------------

    def earliest_parts(self, job: int, device_class: int) -> list[Part]:
        """Return the run of a job alone that begins on a class and ends earliest; empty where it never can.

        There are several parts only for a job that may be interrupted, where its devices close meanwhile.
        """
        problem = self.problem
        if not problem.may_run_alone[job, device_class]:
            return []
        gpus, work_s = int(problem.gpus[job]), float(problem.work_s[job, device_class])
        may_start = problem.may_start_alone[job, device_class]
        may_start_now = bool(may_start) and self.new_devices + gpus <= problem.max_new_devices
        earliest_s = 0.0 if may_start_now else EPSILON_S
        start_s = self.profiles[device_class].earliest_start(gpus, work_s, earliest_s)
        whole = [(device_class, start_s, start_s + work_s)] if math.isfinite(start_s) else []
        closings_s = {until_s for _, until_s in problem.open_intervals[device_class] if until_s < math.inf}
        if not closings_s or np.isnan(problem.checkpoint_s[job]):
            return whole
        runs = [whole, self._interrupted_parts(job, device_class, earliest_s, closings_s)]
        runs.append(self._continued_elsewhere(job, device_class, earliest_s))
        return min((run for run in runs if run), key=lambda run: (run[-1][2], len(run)), default=[])

    def _interrupted_parts(
        self, job: int, device_class: int, earliest_s: float, closings_s: Collection[float]
    ) -> list[Part]:
        """Return the run of a job on one class that is interrupted only while its devices are closed."""
        problem = self.problem
        intervals = self.profiles[device_class].earliest_intervals(
            int(problem.gpus[job]), float(problem.work_s[job, device_class]), float(problem.checkpoint_s[job])
        )
        may_run = bool(intervals) and intervals[0][0] >= earliest_s
        may_run = may_run and all(until_s in closings_s for _, until_s in intervals[:-1])
        return [(device_class, from_s, until_s) for from_s, until_s in intervals] if may_run else []

    def _continued_elsewhere(self, job: int, device_class: int, earliest_s: float) -> list[Part]:
        """Return the run of a job on a class until its devices close, and then on the class where it ends first."""
        problem, gpus, checkpoint_s = self.problem, int(self.problem.gpus[job]), float(self.problem.checkpoint_s[job])
        profile = self.profiles[device_class]
        from_s = profile.earliest_start(gpus, checkpoint_s + EPSILON_S, earliest_s)
        until_s = next((close for at_s, close in problem.open_intervals[device_class] if at_s <= from_s < close), 0.0)
        done = (until_s - from_s) / float(problem.work_s[job, device_class])
        if not 0.0 < done < 1.0 or not profile.is_free(from_s, until_s, gpus):
            return []
        ends: list[tuple[float, float, int]] = []
        for other in np.flatnonzero(problem.may_run_alone[job]).tolist():
            left_s = (1.0 - done) * float(problem.work_s[job, other]) + checkpoint_s
            again_s = self.profiles[other].earliest_start(gpus, left_s, until_s)
            ends.append((again_s + left_s, again_s, other))
        end_s, again_s, other = min(ends)
        return [(device_class, from_s, until_s), (other, again_s, end_s)] if math.isfinite(end_s) else []

    def may_start_now(self, job: int) -> bool:
        """Return whether some class has devices on which a job may start alone at this moment."""
        classes = np.flatnonzero(self.problem.may_run_alone[job]).tolist()
        return any(parts[0][1] <= 0 for each in classes if (parts := self.earliest_parts(job, each)))

    def start_alone(self, job: int, parts: Sequence[Part]) -> None:
        """Add a job on devices of its own; no other job may join one that is interrupted."""
        gpus = int(self.problem.gpus[job])
        (device_class, start_s, _), (_, _, end_s) = parts[0], parts[-1]
        for on_class, from_s, until_s in parts:
            self.profiles[on_class].reserve(from_s, until_s, gpus)
        self._add_slot(device_class, gpus, job, start_s if len(parts) == 1 else math.inf, end_s)
        self.start_s[job], self.end_s[job], self.place[job] = start_s, end_s, device_class
        if start_s <= 0:
            self.new_devices += gpus
        self._count(job)

    def start_group(self, group: GroupStart) -> None:
        """Add jobs that start together now, even where the capacity profile has no room for them.

        Two jobs run at their slowdowns until the first of them ends; larger groups are taken to keep them to the end.
        """
        members = (*group.jobs, *group.hosts)
        if len(members) == 1 and not np.isnan(self.problem.checkpoint_s[members[0]]):
            parts = self.earliest_parts(members[0], group.device_class)
            if len(parts) > 1 and parts[0][1] <= 0:  # it starts now and is interrupted
                self.start_alone(members[0], parts)
                self.kept_starts.update(members)
                return
        ends_s = self._ends_of_group(group)
        slot = self._slot_of_resident[group.hosts[0]] if group.hosts else self.slots
        last, (old_end_s, end_s) = members[ends_s.index(max(ends_s))], self.occupation_s(group)
        if end_s > old_end_s:
            self.profiles[group.device_class].reserve(old_end_s, end_s, group.gpus)
        if not group.hosts:
            self._add_slot(group.device_class, group.gpus, last, 0.0, end_s)
            self.new_devices += group.gpus
        self.slot_job[slot], self.slot_end_s[slot] = last, max(end_s, old_end_s)
        alone_s = sorted((0.0, *ends_s))[-2] if len(members) <= 2 else max(ends_s)
        self.slot_alone_s[slot], self.slot_work_s[slot] = alone_s, self.slot_end_s[slot] - alone_s
        for job, end_s in zip(members, ends_s, strict=True):
            self.end_s[job] = end_s
            self._count(job)
        for job in group.jobs:
            self.start_s[job], self.place[job] = 0.0, group.device_class
            self.host[job] = next((other for other in reversed(members) if other != job), -1)
        self.kept_starts.update(group.jobs)

    def occupation_s(self, group: GroupStart) -> Interval:
        """From when until when a group needs devices that nothing on them needs without the group."""
        old_end_s = float(self.slot_end_s[self._slot_of_resident[group.hosts[0]]]) if group.hosts else 0.0
        return old_end_s, max(self._ends_of_group(group))

    def _ends_of_group(self, group: GroupStart) -> tuple[float, ...]:
        """When each member of a group that starts now ends, hosts last."""
        alone_s = [float(self.problem.work_s[job, group.device_class]) for job in group.jobs]
        alone_s += [float(self.end_s[job]) for job in group.hosts]
        if len(alone_s) == 2:
            guest_s, host_s, guest_slowed, host_slowed = np.array([*alone_s, *group.slowdowns])
            return tuple(map(float, pair_ends_s(guest_s, host_s, guest_slowed, host_slowed)))
        return tuple(time_s * slowdown for time_s, slowdown in zip(alone_s, group.slowdowns, strict=True))

    def price(self, job: int, start_s: float, end_s: float) -> float:
        """Return what it costs that a job runs alone from one time to another."""
        objective = self.problem.objective
        late_s = max(0.0, end_s - float(self.problem.latest_end_s[job]))
        cost = float(objective.constant[job] + objective.rate[job] * end_s)
        if objective.aggregate is Aggregate.MAX:
            cost = max(cost, self.worst_cost) + MEAN_SHARE * float(objective.rate[job]) * end_s / self.problem.jobs
        else:
            cost = float(objective.rate[job]) * end_s
        if self._has_deadline[job]:
            cost += self._miss_price * float(self._misses(np.array([job]), start_s, end_s)[0])
        return cost + self._late_price * late_s

    def _misses(self, jobs: Ints, start_s: Floats | float, end_s: Floats | float) -> Floats:
        """float64[k]: expected weight of missed deadlines, in whole hundredths."""
        return np.round(self.problem.deadlines.expected_misses(jobs, start_s, end_s), MISS_DIGITS)

    def is_late(self, job: int, start_s: float, end_s: float) -> bool:
        """Return whether a job that runs from one time to another misses its deadline in nine of ten cases."""
        if not self._has_deadline[job]:
            return False
        return self.problem.deadlines.optimistic_end_s(job, start_s, end_s) > float(self.problem.deadlines.at_s[job])

    # --- beside another job -----------------------------------------------------------------------------------------

    def join_prices(self, job: int, min_joint_throughput: float) -> tuple[Floats, Floats, Floats]:
        """Return, for the host job of each slot (float64[slots]): the price of sharing with it, the end of the joining
        job, and the end of the host.

        The price is infinite where the two may not share, or get no more done than `min_joint_throughput`.
        """
        problem, m = self.problem, self.slots
        self.units += m
        classes, hosts = self.slot_class[:m], self.slot_job[:m]
        host_kind = problem.kind[hosts]
        kind = int(problem.kind[job])
        throughput = problem.joint_throughput[classes, kind, host_kind]
        allowed = (self.slot_gpus[:m] == problem.gpus[job]) & (throughput > min_joint_throughput)
        allowed &= (self.slot_work_s[:m] > EPSILON_S) & (self.slot_alone_s[:m] >= problem.opens_s[classes])
        price = np.full(m, np.inf)
        if not allowed.any():
            return price, price, price
        at = np.flatnonzero(allowed)
        hosts, old_end_s = hosts[at], self.slot_end_s[:m][at]
        guest_end_s, host_end_s = self.joined_ends_s(job, at)
        objective, latest_s = problem.objective, problem.latest_end_s
        late_s = np.maximum(0.0, guest_end_s - latest_s[job])
        late_s += np.maximum(0.0, host_end_s - latest_s[hosts]) - np.maximum(0.0, old_end_s - latest_s[hosts])
        if objective.aggregate is Aggregate.MAX:
            worst = np.maximum(
                objective.constant[job] + objective.rate[job] * guest_end_s,
                objective.constant[hosts] + objective.rate[hosts] * host_end_s,
            )
            mean = objective.rate[job] * guest_end_s + objective.rate[hosts] * (host_end_s - old_end_s)
            cost = np.maximum(worst, self.worst_cost) + MEAN_SHARE * mean / problem.jobs
        else:
            cost = objective.rate[job] * guest_end_s + objective.rate[hosts] * (host_end_s - old_end_s)
        if self.problem.deadlines.any:
            n = problem.pending
            began_s = np.where(hosts < n, self.start_s[np.minimum(hosts, n - 1)], 0.0)
            misses = self._misses(np.full(len(at), job), self.slot_alone_s[at], guest_end_s)
            misses += self._misses(hosts, began_s, host_end_s) - self._misses(hosts, began_s, old_end_s)
            cost = cost + self._miss_price * misses
        price[at] = cost + self._late_price * late_s
        guest_ends_s, host_ends_s = np.full(m, np.inf), np.full(m, np.inf)
        guest_ends_s[at], host_ends_s[at] = guest_end_s, host_end_s
        return price, guest_ends_s, host_ends_s

    def protected_residents(self, job: int) -> Bools:
        """bool[slots]: whether joining now would slow a resident past the cap that holds while a device is idle."""
        problem, m = self.problem, self.slots
        slows = problem.slows_resident[self.slot_class[:m], int(problem.kind[job]), problem.kind[self.slot_job[:m]]]
        return np.asarray(slows & (self.slot_alone_s[:m] <= 0))

    def joined_ends_s(self, job: int, slots: Ints) -> tuple[Floats, Floats]:
        """float64[k] each: when a job would end beside the job of each slot, and when that one would.

        Both run at their slowdowns until the first of them ends, then the other alone.
        """
        problem, classes = self.problem, self.slot_class[slots]
        kinds = (classes, int(problem.kind[job]), problem.kind[self.slot_job[slots]])
        guest_slowed, host_slowed = problem.guest_slowdown[kinds], problem.host_slowdown[kinds]
        begin_s, host_work_s, guest_work_s = (
            self.slot_alone_s[slots],
            self.slot_work_s[slots],
            problem.work_s[job, classes],
        )
        guest_s, host_s = pair_ends_s(guest_work_s, host_work_s, guest_slowed, host_slowed)
        return begin_s + guest_s, begin_s + host_s

    def advance(self, now_s: float) -> None:
        """Let the jobs that are alone on their devices work until a time: from then on others may join them."""
        m = self.slots
        alone_s, end_s = self.slot_alone_s[:m], self.slot_end_s[:m]
        moving = (alone_s < now_s) & (end_s > now_s)
        self.slot_work_s[:m][moving] = end_s[moving] - now_s
        alone_s[moving] = now_s

    def has_room(self, slot: int, end_s: float) -> bool:
        """Return whether the devices of a slot can stay in use until a time."""
        old_end_s = float(self.slot_end_s[slot])
        if end_s <= old_end_s:
            return True
        profile = self.profiles[int(self.slot_class[slot])]
        return profile.is_free(old_end_s, end_s, int(self.slot_gpus[slot]))

    def join(self, job: int, slot: int, end_s: float, host_end_s: float) -> None:
        """Add a job beside the job of a slot; both ends as `join_prices` gives them."""
        host, begin_s = int(self.slot_job[slot]), float(self.slot_alone_s[slot])
        old_end_s, last_s = float(self.slot_end_s[slot]), max(end_s, host_end_s)
        if last_s > old_end_s:
            self.profiles[int(self.slot_class[slot])].reserve(old_end_s, last_s, int(self.slot_gpus[slot]))
        self.start_s[job], self.end_s[job], self.end_s[host] = begin_s, end_s, host_end_s
        self.place[job], self.host[job] = self.slot_class[slot], host
        self.slot_job[slot] = job if end_s > host_end_s else host
        self.slot_alone_s[slot] = min(end_s, host_end_s)
        self.slot_end_s[slot] = last_s
        self.slot_work_s[slot] = last_s - self.slot_alone_s[slot]
        self._count(job)
        self._count(host)

    def _count(self, job: int) -> None:
        """Take the cost of a placed job into the largest cost so far, which min-max objectives are priced by."""
        objective = self.problem.objective
        self.worst_cost = max(self.worst_cost, float(objective.constant[job] + objective.rate[job] * self.end_s[job]))


def resident_profiles(problem: ScheduleProblem) -> list[CapacityProfile]:
    """Return the free devices of each class over time, with the residents on it."""
    profiles = [
        CapacityProfile(0.0, intervals, count)
        for intervals, count in zip(problem.open_intervals, problem.devices, strict=True)
    ]
    occupied = problem.occupied_slots
    for k, profile in enumerate(profiles):
        at = occupied.device_class == k
        profile.occupy_from_now(list(zip(occupied.end_s[at].tolist(), occupied.gpus[at].tolist(), strict=True)))
    return profiles
