"""Schedules of jobs that are taken in an order: serial schedule generation, and named heuristics projected to the end.

Serially, each job of an order goes where its price is least, now or later. The price of a place is what the job's end
costs there, and for a place beside another job also what the later end of that one costs. Later jobs fill the gaps that
earlier ones leave, so that every job has a reservation, and waiting for a faster device or for a set of devices is
weighed like any other place (Kolisch and Hartmann, 1999: serial schemes).

A heuristic takes the waiting jobs in an order at every event. A job starts alone on the fastest class that has free
devices, else, where it shares, beside the job with which it gets most done. A protected job is never delayed by jobs
behind it: EASY backfilling (Lifka 1995) protects the first job of the order that cannot start, or the oldest one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from interfere.policy.deadlines.admission import CapacityProfile
from interfere.policy.schedule.problem import Floats, Schedule, ScheduleProblem
from interfere.policy.schedule.timeline import EPSILON_S, MAX_HOSTS_TRIED, GroupStart, Part, Timeline, resident_profiles


def schedule_in_order(
    problem: ScheduleProblem,
    order: Sequence[int],
    min_joint_throughput: float,
    profiles: list[CapacityProfile] | None = None,
    starts: Sequence[GroupStart] = (),
) -> Schedule:
    """Return the schedule in which the pending jobs are placed in an order; two share only above that joint throughput.

    `starts`: the groups of jobs that start now in any case, before all other jobs are placed.
    """
    timeline = Timeline(problem, profiles)
    for group in starts:
        timeline.start_group(group)
    priority, late = problem.objective.priority, list[int]()
    for job in (job for job in order if job not in timeline.kept_starts):
        if late and priority[job] < priority[late[-1]]:
            _place_all(timeline, late, min_joint_throughput)
            late = []
        if not place_cheapest(timeline, job, min_joint_throughput, may_be_late=False):
            late.append(job)
    _place_all(timeline, late, min_joint_throughput)
    return timeline.schedule()


def _place_all(timeline: Timeline, jobs: Sequence[int], min_joint_throughput: float) -> None:
    """Add jobs in an order, each at its cheapest place."""
    for job in jobs:
        place_cheapest(timeline, job, min_joint_throughput)


def place_cheapest(timeline: Timeline, job: int, min_joint_throughput: float, *, may_be_late: bool = True) -> bool:
    """Add a job at its cheapest place, and return whether it was considered to the end.

    It stays without a place where no class may ever run it. With `may_be_late` false a job that would miss its deadline
    at its cheapest place is not added.
    """
    problem = timeline.problem
    # 1. The cheapest place alone: the earliest on each class.
    best_price, best_parts = math.inf, list[Part]()
    for device_class in np.flatnonzero(problem.may_run_alone[job]).tolist():
        work_s = float(problem.work_s[job, device_class])
        if timeline.price(job, 0.0, work_s) >= best_price:
            continue
        parts = timeline.earliest_parts(job, device_class)
        if parts and (price := timeline.price(job, parts[0][1], parts[-1][2])) < best_price:
            best_price, best_parts = price, parts
    # 2. The cheapest host that has room.
    if math.isfinite(min_joint_throughput) and timeline.slots:
        prices, ends_s, host_ends_s = timeline.join_prices(job, min_joint_throughput)
        if problem.slows_resident.any() and timeline.may_start_now(job):
            prices[timeline.protected_residents(job)] = math.inf
        for _ in range(MAX_HOSTS_TRIED):
            slot = int(prices.argmin())
            if not prices[slot] < best_price:
                break
            end_s, host_end_s = float(ends_s[slot]), float(host_ends_s[slot])
            if timeline.has_room(slot, max(end_s, host_end_s)):
                if not may_be_late and timeline.is_late(job, float(timeline.slot_alone_s[slot]), end_s):
                    return False
                timeline.join(job, slot, end_s, host_end_s)
                return True
            prices[slot] = math.inf
    if best_parts:
        if not may_be_late and timeline.is_late(job, best_parts[0][1], best_parts[-1][2]):
            return False
        timeline.start_alone(job, best_parts)
    return True


NO_DEADLINE_S = 1e12  # later than every deadline
GREEDY_JOINT_THROUGHPUT = 1.3  # a greedy rule that shares above 1 lets long jobs slow each other down for little
# Where many jobs wait, each pair that gets more done than one job at a time shortens the queue.
ANY_JOINT_THROUGHPUT = 1.0
ALONE = math.inf  # joint throughput that no pair reaches: nobody shares


class JobOrder(StrEnum):
    """The order in which waiting jobs are considered."""

    FIFO = "fifo"  # submitted first
    SHORTEST = "shortest"  # on the class where it is fastest
    SMALLEST_AREA = "smallest_area"  # shortest time × devices
    HEAVIEST = "heaviest"  # largest weight ÷ area
    LARGEST_RATIO = "largest_ratio"  # time since submission ÷ own time: response ratio
    LONGEST = "longest"
    FIRST_DUE = "first_due"  # least time until it has to start for its promised end or its deadline
    EARLIEST_DEADLINE = "earliest_deadline"  # jobs without a deadline last, the shortest first


ORDER_NAMES = {
    JobOrder.FIFO: "first submitted first",
    JobOrder.SHORTEST: "shortest job first",
    JobOrder.SMALLEST_AREA: "smallest time × devices first",
    JobOrder.HEAVIEST: "largest weight ÷ (time × devices) first",
    JobOrder.LARGEST_RATIO: "longest wait ÷ own time first",
    JobOrder.LONGEST: "longest job first",
    JobOrder.FIRST_DUE: "least time until the deadline or promised end first",
    JobOrder.EARLIEST_DEADLINE: "earliest deadline first",
}


class Protection(StrEnum):
    """Which job that cannot start is not delayed by the jobs behind it."""

    NONE = "none"
    FIRST = "easy"  # the first of the order
    OLDEST = "oldest"  # the one that was submitted first


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristic:
    """One named heuristic."""

    order: JobOrder
    protection: Protection
    min_joint_throughput: float  # above which a job joins another one where no device is free

    @property
    def name(self) -> str:
        """Return the name that answers use, like `shortest+easy+sharing`."""
        parts = [self.order.value]
        parts += [self.protection.value] if self.protection is not Protection.NONE else []
        return "+".join(parts + _SHARING_NAMES[self.min_joint_throughput])

    @property
    def description(self) -> str:
        """Return the heuristic in words, like `shortest job first, EASY backfilling, no sharing`."""
        parts = [ORDER_NAMES[self.order]]
        parts += {Protection.FIRST: ["EASY backfilling"], Protection.OLDEST: ["the oldest job is not delayed"]}.get(
            self.protection, []
        )
        return ", ".join([*parts, sharing_in_words(self.min_joint_throughput)])


_SHARING_NAMES = {GREEDY_JOINT_THROUGHPUT: ["sharing"], ANY_JOINT_THROUGHPUT: ["any_sharing"], ALONE: []}


def sharing_in_words(min_joint_throughput: float) -> str:
    """Return above which joint throughput two jobs share, in words."""
    if min_joint_throughput == ALONE:
        return "no sharing"
    return f"sharing where joint throughput exceeds {min_joint_throughput:g}"


def _heuristics(*orders: JobOrder) -> tuple[Heuristic, ...]:
    """Return every heuristic of these orders, those that share wherever it is allowed last."""
    return tuple(
        Heuristic(order=order, protection=protection, min_joint_throughput=threshold)
        for thresholds in ((GREEDY_JOINT_THROUGHPUT, ALONE), (ANY_JOINT_THROUGHPUT,))
        for order in orders
        for protection in Protection
        for threshold in thresholds
    )


HEURISTICS = _heuristics(
    JobOrder.FIFO,
    JobOrder.SHORTEST,
    JobOrder.SMALLEST_AREA,
    JobOrder.HEAVIEST,
    JobOrder.LARGEST_RATIO,
    JobOrder.LONGEST,
)
DEADLINE_HEURISTICS = (*_heuristics(JobOrder.EARLIEST_DEADLINE), *HEURISTICS)


def heuristics_of(problem: ScheduleProblem) -> tuple[Heuristic, ...]:
    """Return the heuristics that a plan is compared with: earliest deadline first too where some job has a deadline."""
    return DEADLINE_HEURISTICS if problem.deadlines.any else HEURISTICS


def order_keys(problem: ScheduleProblem, order: JobOrder) -> Floats:
    """float64[n]: the jobs of the smallest key come first."""
    n, shortest_s = problem.pending, problem.shortest_s
    deadline_s = problem.deadlines.at_s[:n]
    keys = {
        JobOrder.FIFO: -problem.elapsed_s,
        JobOrder.SHORTEST: shortest_s,
        JobOrder.SMALLEST_AREA: shortest_s * problem.gpus[:n],
        JobOrder.HEAVIEST: shortest_s * problem.gpus[:n] / problem.weight,
        JobOrder.LARGEST_RATIO: -problem.elapsed_s / np.maximum(shortest_s, EPSILON_S),
        JobOrder.LONGEST: -shortest_s,
        JobOrder.FIRST_DUE: np.minimum(problem.latest_end_s, problem.deadlines.at_s)[:n] - shortest_s,
        JobOrder.EARLIEST_DEADLINE: np.where(np.isfinite(deadline_s), deadline_s, NO_DEADLINE_S + shortest_s),
    }
    return np.asarray(keys[order], dtype=np.float64)


def jobs_in_order(problem: ScheduleProblem, order: JobOrder) -> list[int]:
    """Return the pending jobs in an order, higher priorities first; equal jobs as they were numbered."""
    keys, priority = order_keys(problem, order), problem.objective.priority[: problem.pending]
    return [int(job) for job in np.lexsort((np.arange(problem.pending), keys, -priority))]


def project(problem: ScheduleProblem, heuristic: Heuristic, profiles: list[CapacityProfile] | None = None) -> Schedule:
    """Return the schedule that follows if every decision from now on is taken by one heuristic."""
    projection = _Projection(problem, heuristic, profiles or resident_profiles(problem))
    return projection.run()


class _Projection:
    """An event-driven projection of one heuristic."""

    def __init__(self, problem: ScheduleProblem, heuristic: Heuristic, profiles: list[CapacityProfile]) -> None:
        self._problem, self._heuristic = problem, heuristic
        self._timeline = Timeline(problem, profiles)
        self._waiting = jobs_in_order(problem, heuristic.order)
        n = problem.pending
        fastest = np.argsort(np.where(problem.may_run_alone, problem.work_s[:n], np.inf), axis=1, kind="stable")
        self._classes = [[c for c in row if problem.may_run_alone[job, c]] for job, row in enumerate(fastest.tolist())]
        self._oldest = {job: k for k, job in enumerate(jobs_in_order(problem, JobOrder.FIFO))}
        self._has_deadlines = problem.deadlines.any

    def run(self) -> Schedule:
        """Return the schedule; jobs that can start nowhere stay without a start."""
        timeline, now_s = self._timeline, 0.0
        hosts: list[int] | None = None  # slots whose job is alone since the last event; None: all
        while True:
            self._start_waiting(now_s, hosts)
            next_s = self._next_event_s(now_s)
            if not self._waiting or math.isinf(next_s):
                break
            last_s, now_s = now_s, next_s
            m = timeline.slots
            newly = (timeline.slot_alone_s[:m] > last_s) & (timeline.slot_alone_s[:m] <= now_s + EPSILON_S)
            hosts = np.flatnonzero(newly & (timeline.slot_end_s[:m] > now_s + EPSILON_S)).tolist()
            timeline.advance(now_s)
        return timeline.schedule()

    def _next_event_s(self, now_s: float) -> float:
        """Return the next time at which a job ends, or a class of devices opens."""
        timeline = self._timeline
        ends_s = timeline.end_s[timeline.end_s > now_s + EPSILON_S]
        next_s = float(ends_s.min(initial=math.inf))
        for intervals in self._problem.open_intervals:
            next_s = min([next_s, *(from_s for from_s, _ in intervals if from_s > now_s + EPSILON_S)])
        return next_s

    def _start_waiting(self, now_s: float, hosts: list[int] | None) -> None:
        """Start the waiting jobs that may start at an event, in order."""
        timeline, protection = self._timeline, self._heuristic.protection
        protected: list[CapacityProfile] | None = None  # the profiles with the reservation of the protected job
        oldest = min(self._waiting, key=self._oldest.__getitem__, default=-1)
        started = set()
        if hosts is None:
            m = timeline.slots
            hosts = np.flatnonzero(
                (timeline.slot_alone_s[:m] <= EPSILON_S) & (timeline.slot_end_s[:m] > EPSILON_S)
            ).tolist()
        if self._has_deadlines:  # who can no longer meet a deadline waits for all others of its priority
            priority, shortest_s = self._problem.objective.priority, self._problem.shortest_s
            self._waiting.sort(
                key=lambda job: (-priority[job], timeline.is_late(job, now_s, now_s + float(shortest_s[job])))
            )
        queue = self._waiting
        if protection is Protection.OLDEST and oldest >= 0:
            queue = [oldest, *(job for job in queue if job != oldest)]
        for job in queue:
            slots = timeline.slots
            if self._start_alone(job, now_s, protected) or self._join(job, now_s, hosts, protected):
                started.add(job)
                if timeline.slots > slots:
                    hosts.append(slots)
            elif protected is None and (protection is Protection.FIRST or self._is_protected(job, oldest)):
                protected = self._reserve(job, now_s)
        self._waiting = [job for job in self._waiting if job not in started]

    def _is_protected(self, job: int, oldest: int) -> bool:
        """Return whether a job is the one that was submitted first, where the heuristic protects that one."""
        return self._heuristic.protection is Protection.OLDEST and job == oldest

    def _start_alone(self, job: int, now_s: float, protected: list[CapacityProfile] | None) -> bool:
        """Start a job alone on the fastest class with room; whether it started."""
        timeline, problem = self._timeline, self._problem
        gpus, shortest_s = int(problem.gpus[job]), float(problem.shortest_s[job])
        for device_class in self._classes[job]:
            profiles = protected or timeline.profiles
            timeline.units += 1
            if now_s <= 0 and (
                not problem.may_start_alone[job, device_class] or timeline.new_devices + gpus > problem.max_new_devices
            ):
                continue
            work_s = float(problem.work_s[job, device_class])
            if timeline.is_late(job, now_s, now_s + work_s) and not timeline.is_late(job, now_s, now_s + shortest_s):
                continue
            if profiles[device_class].is_free(now_s, now_s + work_s, gpus):
                timeline.start_alone(job, [(device_class, now_s, now_s + work_s)])
                if protected:
                    protected[device_class].reserve(now_s, now_s + work_s, gpus)
                return True
        return False

    def _join(self, job: int, now_s: float, hosts: list[int], protected: list[CapacityProfile] | None) -> bool:
        """Start a job beside the host with which it gets most done; whether it started."""
        if self._heuristic.min_joint_throughput == ALONE or not hosts:
            return False
        timeline, problem = self._timeline, self._problem
        gpus, slots = int(problem.gpus[job]), np.array(hosts, dtype=np.int64)
        timeline.units += 1 + len(hosts) // 4
        host_kinds = problem.kind[timeline.slot_job[slots]]
        throughput = problem.joint_throughput[timeline.slot_class[slots], int(problem.kind[job]), host_kinds]
        fits = (timeline.slot_gpus[slots] == gpus) & (timeline.slot_alone_s[slots] <= now_s + EPSILON_S)
        fits &= problem.opens_s[timeline.slot_class[slots]] <= now_s
        throughput = np.where(fits, throughput, -np.inf)
        if not throughput.max() > self._heuristic.min_joint_throughput:
            return False
        best = hosts[int(throughput.argmax())]
        ends_s, host_ends_s = timeline.joined_ends_s(job, np.array([best], dtype=np.int64))
        end_s, host_end_s = float(ends_s[0]), float(host_ends_s[0])
        old_end_s, last_s = float(timeline.slot_end_s[best]), max(end_s, host_end_s)
        if self._breaks_deadline(job, end_s, now_s + float(problem.shortest_s[job])):
            return False
        if self._breaks_deadline(int(timeline.slot_job[best]), host_end_s, old_end_s):
            return False
        profile = (protected or timeline.profiles)[int(timeline.slot_class[best])]
        if last_s > old_end_s and not profile.is_free(old_end_s, last_s, gpus):
            return False
        timeline.join(job, best, end_s, host_end_s)
        if protected and last_s > old_end_s:
            profile.reserve(old_end_s, last_s, gpus)
        hosts.remove(best)
        return True

    def _breaks_deadline(self, job: int, end_s: float, end_alone_s: float) -> bool:
        """Return whether a job misses a deadline at one end that it meets at another."""
        at_s = float(self._problem.deadlines.at_s[job]) if self._has_deadlines else math.inf
        return end_alone_s <= at_s < end_s

    def _reserve(self, job: int, now_s: float) -> list[CapacityProfile]:
        """Return the profiles with the place where a job that cannot start now will end first."""
        timeline, problem = self._timeline, self._problem
        profiles = [profile.copy() for profile in timeline.profiles]
        best = (math.inf, math.inf, -1)
        for device_class in self._classes[job]:
            work_s = float(problem.work_s[job, device_class])
            start_s = profiles[device_class].earliest_start(int(problem.gpus[job]), work_s, now_s)
            best = min(best, (start_s + work_s, start_s, device_class))
        end_s, start_s, device_class = best
        if device_class >= 0 and math.isfinite(end_s):
            profiles[device_class].reserve(start_s, end_s, int(problem.gpus[job]))
        return profiles
