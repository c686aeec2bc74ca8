"""A scheduling problem over time: which jobs wait and run, where each may run, and how long it takes there.

Times are seconds from now. Jobs are numbered: the pending jobs first, then the residents. Device classes hold
exchangeable devices. Two jobs at most share a set of devices; how much they slow each other down depends on their
kinds, which group the jobs that no rule and no prediction tells apart. Pure arrays; no prediction and no clock here.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.objectives import Aggregate
from interfere.policy.deadlines.admission import Interval
from interfere.policy.rules.runtime import P90_Z, TICK_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# A schedule for a min-max objective is also judged by this share of the mean, so that not only its worst job counts.
MEAN_SHARE = 0.01
# Scale at which the logistic distribution is within .01 of the normal one (Bowling et al., 2009).
LOGISTIC_SCALE = 1.702
MISS_DIGITS = 2  # of expected misses: a hundredth of a job is within the error of the approximation


class RunningJobs(NamedTuple):
    """Jobs that run on the same set of devices of one class."""

    device_class: int
    gpus: int
    jobs: tuple[int, ...]
    ends_s: tuple[float, ...]  # when each ends if no other job joins
    may_be_joined: bool = True  # whether a pending job may share the devices once one job is left on them


@dataclass(frozen=True, slots=True, kw_only=True)
class OccupiedSlots:
    """The sets of devices with running jobs as arrays, one entry for each group of `ScheduleProblem.running`."""

    device_class: Ints  # int64[g]
    gpus: Ints
    last_job: Ints  # that ends last
    alone_s: Floats  # from when that job is alone there; inf where no job may join
    end_s: Floats
    job: Ints  # int64[m]: every member of every group
    job_end_s: Floats  # float64[m]: when it ends
    slot_of_job: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleObjective:
    """What ends are worth: job i that ends at time e costs constant[i] + rate[i] · e."""

    constant: Floats  # float64[n + r]
    rate: Floats  # float64[n + r], positive
    aggregate: Aggregate
    priority: Ints  # int64[n + r]; nothing of a lower priority is weighed against a higher one
    counts_misses: bool = False  # whether the value that is told counts missed deadlines


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """The deadlines of jobs, and how uncertain their run times are: log-normal, with `spread` of the logarithm."""

    at_s: Floats  # float64[n + r]; inf without a deadline
    spread: Floats  # float64[n + r]: standard deviation of the logarithm of the time that the job takes; 0: exact
    weight: Floats  # float64[n + r]: what a miss costs

    @classmethod
    def none(cls, jobs: int) -> "Deadlines":
        """Return the deadlines of jobs that have none."""
        return cls(at_s=np.full(jobs, np.inf), spread=np.zeros(jobs), weight=np.ones(jobs))

    @cached_property
    def any(self) -> bool:
        """Return whether some job has a deadline."""
        return bool(np.isfinite(self.at_s).any())

    def expected_misses(self, jobs: Ints, start_s: Floats | float, end_s: Floats | float) -> Floats:
        """float64[k]: weight × probability that each job misses its deadline, with its planned start and median end.

        Only the job's own time is uncertain, not its start. The normal distribution is taken as logistic.
        """
        at_s, spread = self.at_s[jobs], self.spread[jobs]
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed_s = np.maximum(0.0, at_s - start_s)
            margin = np.log(allowed_s) - np.log(end_s - start_s)
            chance = 1.0 / (1.0 + np.exp(np.clip(LOGISTIC_SCALE * margin / spread, -50.0, 50.0)))
        chance = np.where(spread > 0, chance, end_s > at_s + TICK_S)
        return np.asarray(self.weight[jobs] * np.where(np.isinf(at_s), 0.0, chance))

    def optimistic_end_s(self, job: int, start_s: float, end_s: float) -> float:
        """Return the end of a job that it undercuts in one of ten cases."""
        return start_s + (end_s - start_s) * math.exp(-P90_Z * float(self.spread[job]))


@dataclass(frozen=True, kw_only=True)
class ScheduleProblem:
    """n pending jobs, r residents, c device classes and k kinds of jobs."""

    pending: int  # n
    work_s: Floats  # float64[n + r, c]: seconds that each job takes alone on a device of the class
    may_run_alone: Bools  # bool[n, c]
    may_start_alone: Bools  # bool[n, c]: the same at this moment, by windows and deadlines
    gpus: Ints  # int64[n + r]: devices that each job takes at once
    kind: Ints  # int64[n + r]
    guest_slowdown: Floats  # float64[c, k, k]: of a job of the first kind that joins one of the second; NaN: forbidden
    host_slowdown: Floats  # float64[c, k, k]: of the job of the second kind meanwhile
    # bool[c, k, k]: joining slows a resident past the cap that holds while a device that can take the job is idle.
    slows_resident: Bools
    joint_throughput: Floats  # float64[c, k, k]: 1 / guest slowdown + 1 / host slowdown; -inf where it is forbidden
    open_intervals: tuple[tuple[Interval, ...], ...]  # of each class: when its devices are available
    devices: tuple[int, ...]  # of each class: how many
    running: tuple[RunningJobs, ...]
    objective: ScheduleObjective
    latest_end_s: Floats  # float64[n + r]: bound that was promised; inf without one
    elapsed_s: Floats  # float64[n]: since submission
    weight: Floats  # float64[n]
    checkpoint_s: Floats  # float64[n]: that each interruption adds; NaN for a job that must run in one piece
    deadlines: Deadlines
    max_new_devices: float = math.inf  # empty devices that may be taken now

    @property
    def jobs(self) -> int:
        """Return how many jobs wait or run."""
        return len(self.gpus)

    @cached_property
    def occupied_slots(self) -> OccupiedSlots:
        """Return what runs as arrays, which every schedule begins with."""
        last_jobs, alone_s, last_ends_s = [], [], []
        jobs, ends_s = list[int](), list[float]()
        for group in self.running:
            jobs += group.jobs
            ends_s += group.ends_s
            by_end = sorted(group.ends_s)
            last_ends_s.append(by_end[-1])
            last_jobs.append(group.jobs[group.ends_s.index(by_end[-1])])
            alone_s.append(math.inf if not group.may_be_joined else by_end[-2] if len(by_end) > 1 else 0.0)
        return OccupiedSlots(
            device_class=np.array([group.device_class for group in self.running], dtype=np.int64),
            gpus=np.array([group.gpus for group in self.running], dtype=np.int64),
            last_job=np.array(last_jobs, dtype=np.int64),
            alone_s=np.array(alone_s, dtype=np.float64),
            end_s=np.array(last_ends_s, dtype=np.float64),
            job=np.array(jobs, dtype=np.int64),
            job_end_s=np.array(ends_s, dtype=np.float64),
            slot_of_job={job: k for k, group in enumerate(self.running) for job in group.jobs},
        )

    @cached_property
    def opens_s(self) -> Floats:
        """float64[c]: from when on the devices of each class are available; 0 where they are now."""
        return np.array([min((max(0.0, at_s) for at_s, _ in each), default=np.inf) for each in self.open_intervals])

    def bounded_by(self, latest_end_s: Floats, deadlines: Deadlines | None = None) -> "ScheduleProblem":
        """Return the problem with other bounds of ends, and with other deadlines where they are given."""
        bounded = replace(self, latest_end_s=latest_end_s, deadlines=deadlines or self.deadlines)
        bounded.__dict__["occupied_slots"] = self.occupied_slots
        return bounded

    @cached_property
    def priority_members(self) -> tuple[Bools, ...]:
        """bool[n + r] each: the jobs of each priority, the highest first."""
        priority = self.objective.priority
        return tuple(priority == level for level in np.unique(priority)[::-1])

    @cached_property
    def shortest_s(self) -> Floats:
        """The seconds (float64[n]) that each pending job takes on its fastest class."""
        allowed = np.where(self.may_run_alone, self.work_s[: self.pending], np.inf)
        fastest = allowed.min(axis=1, initial=np.inf)
        anywhere = self.work_s[: self.pending].min(axis=1, initial=np.inf)
        return np.asarray(np.where(np.isfinite(fastest), fastest, anywhere))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When each job starts and ends, and where. A job that can start nowhere has an infinite start and end."""

    start_s: Floats  # float64[n]
    end_s: Floats  # float64[n + r]
    device_class: Ints  # int64[n]; -1 for a job that can start nowhere
    host: Ints  # int64[n]: the job that it joins when it starts; -1 where it starts alone
    kept_starts: frozenset[int]  # jobs that start now where the optimal matching of this moment starts them
    work_units: int  # hosts and breakpoints that were visited to make it


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ScheduleValue:
    """The value of a schedule; a smaller one is better, compared field by field."""

    unplaced: int  # jobs that can start nowhere
    # Of each priority from the highest: expected weight of missed deadlines, Σ seconds past promised ends, objective.
    levels: tuple[tuple[float, float, float], ...]
    mean_end_s: float


def value_of(schedule: Schedule, problem: ScheduleProblem) -> ScheduleValue:
    """Return the value of a schedule, rounded to a billionth so that sums in another order are equal."""
    ends_s, objective = schedule.end_s, problem.objective
    placed = np.isfinite(ends_s)
    late_s = np.where(placed, np.maximum(0.0, np.where(placed, ends_s, 0.0) - problem.latest_end_s), 0.0)
    costs = objective.constant + objective.rate * np.where(placed, ends_s, 0.0)
    misses = _expected_misses(schedule, problem)
    levels = [
        (
            round(math.fsum(misses[members].tolist()), MISS_DIGITS),
            _rounded(math.fsum(late_s[members].tolist())),
            _rounded(_aggregated(costs[placed & members], objective.aggregate)),
        )
        for members in problem.priority_members
    ]
    return ScheduleValue(
        unplaced=int((~placed).sum()),
        levels=tuple(levels),
        mean_end_s=_rounded(math.fsum(ends_s[placed].tolist()) / max(1, int(placed.sum()))),
    )


def _expected_misses(schedule: Schedule, problem: ScheduleProblem) -> Floats:
    """float64[n + r]: what each job is expected to cost by missing its deadline; a job without a place misses it."""
    deadlines = problem.deadlines
    if not deadlines.any:
        return np.zeros(problem.jobs)
    start_s = np.concatenate([schedule.start_s, np.zeros(problem.jobs - problem.pending)])
    placed = np.isfinite(schedule.end_s)
    start_s, end_s = np.where(placed, start_s, 0.0), np.where(placed, schedule.end_s, 1.0)
    expected = deadlines.expected_misses(np.arange(problem.jobs), start_s, end_s)
    return np.where(placed | np.isinf(deadlines.at_s), expected, deadlines.weight)


def objective_value(schedule: Schedule, problem: ScheduleProblem) -> float:
    """Return the objective over all jobs that are placed: a mean, or the largest cost for a min-max objective."""
    placed = np.isfinite(schedule.end_s)
    costs = problem.objective.constant + problem.objective.rate * np.where(placed, schedule.end_s, 0.0)
    if problem.objective.counts_misses:
        costs = costs + _expected_misses(schedule, problem)
    costs = costs[placed]
    if not len(costs):
        return 0.0
    if problem.objective.aggregate is Aggregate.MAX:
        return float(costs.max())
    return math.fsum(costs.tolist()) / len(costs)


def _aggregated(costs: Floats, aggregate: Aggregate) -> float:
    """Return the sum of costs; for a min-max objective the largest of them and a small share of their mean."""
    if not len(costs):
        return 0.0
    total = math.fsum(costs.tolist())
    return total if aggregate is Aggregate.SUM else float(costs.max()) + MEAN_SHARE * total / len(costs)


def _rounded(value: float) -> float:
    """Return the value with ten significant digits."""
    return float(f"{value:.10g}")
