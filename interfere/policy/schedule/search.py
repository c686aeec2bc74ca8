"""The best schedule found: named heuristics, list schedules in many orders, and insertions into the best order.

Law 1: the schedule is never worse in projection than a named heuristic that was projected. Law 2: work units are the
budget, so the same problem gives the same schedule, except where the safety stop (a time budget, which tells) cuts it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from interfere.policy.schedule.heuristics import (
    ALONE,
    ANY_JOINT_THROUGHPUT,
    GREEDY_JOINT_THROUGHPUT,
    ORDER_NAMES,
    JobOrder,
    heuristics_of,
    jobs_in_order,
    project,
    schedule_in_order,
    sharing_in_words,
)
from interfere.policy.schedule.problem import Schedule, ScheduleProblem, ScheduleValue, objective_value, value_of
from interfere.policy.schedule.timeline import GroupStart, resident_profiles

MIN_THROUGHPUTS = (ANY_JOINT_THROUGHPUT, GREEDY_JOINT_THROUGHPUT, 1.5, ALONE)
ORDERS = (
    JobOrder.SHORTEST,
    JobOrder.FIRST_DUE,
    JobOrder.SMALLEST_AREA,
    JobOrder.HEAVIEST,
    JobOrder.LARGEST_RATIO,
    JobOrder.FIFO,
    JobOrder.LONGEST,
)
MAX_WORK_UNITS = 1_000_000  # a third of a second of one core
UNITS_BETWEEN_CHECKS = 50_000  # of the safety stop: reading the processor's clock takes as long as hundreds of units
# Without a gain, after which the search ends. With 40 the mean completion of `tests.bench.streams gangs --first 100
# --seeds 3 --jobs 160` is 1,587 s, with 15 it is 1,586 s.
MAX_INSERTIONS = 15
MAX_GIVEN_UP = 8  # jobs with a deadline, the largest, that are tried last of all


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPlan:
    """The best schedule, where it came from, and what named heuristics would have come to."""

    schedule: Schedule
    value: ScheduleValue
    chosen_because: str  # the heuristic, or the order and the rule of sharing, that led to it, in words
    order: tuple[int, ...]  # the jobs in the order in which they start; for the next round
    heuristic_values: dict[str, float]  # the objective of each named heuristic that was projected
    work_units: int
    plans: int  # list schedules that were made

    def objective_value(self, problem: ScheduleProblem) -> float:
        """Return the objective over all jobs."""
        return objective_value(self.schedule, problem)


@dataclass(slots=True, kw_only=True)
class _Search:
    """The state of one search."""

    problem: ScheduleProblem
    expired: Callable[[], bool]
    max_units: int
    units: int = 0
    plans: int = 0
    best: tuple[ScheduleValue, tuple[float, ...], Schedule, str] | None = None
    best_list: tuple[ScheduleValue, list[int], float] | None = None  # of the list schedules
    stopped: bool = False
    units_at_check: int = 0
    tried: set[tuple[tuple[int, ...], object]] = field(default_factory=set)
    heuristic_values: dict[str, float] = field(default_factory=dict)

    def may_go_on(self) -> bool:
        """Return whether there are work units left, and no safety stop."""
        if self.best is not None and self.units - self.units_at_check >= UNITS_BETWEEN_CHECKS:
            self.units_at_check = self.units
            self.stopped = self.expired()
        return self.best is None or (not self.stopped and self.units < self.max_units)

    @property
    def best_schedule(self) -> Schedule:
        """Return the best schedule so far; at least one was considered."""
        assert self.best is not None
        return self.best[2]

    def is_new(self, order: Sequence[int], how: object) -> bool:
        """Return whether no schedule was made yet from an order in the same way."""
        key = (tuple(order), how)
        if key in self.tried:
            return False
        self.tried.add(key)
        return True

    def consider(self, schedule: Schedule, name: str) -> ScheduleValue:
        """Keep a schedule if it is better than the best so far.

        Among schedules of equal value the earlier starts decide.
        """
        self.units += schedule.work_units
        value = value_of(schedule, self.problem)
        key = (value, tuple(schedule.start_s.tolist()))
        if self.best is None or key < self.best[:2]:
            self.best = (*key, schedule, name)
        return value


def search(
    problem: ScheduleProblem,
    *,
    last_order: Sequence[int] = (),
    moment_starts: Sequence[GroupStart] = (),
    min_joint_throughput: float = 1.0,
    max_units: int = MAX_WORK_UNITS,
    expired: Callable[[], bool] = lambda: False,
) -> ScheduledPlan:
    """Return the best schedule within the work units.

    `last_order`: the jobs in the order of the last round's plan. `moment_starts`: the starts of the optimal matching of
    this moment, which is one of the candidates, with the other jobs planned after it.
    """
    state = _Search(problem=problem, expired=expired, max_units=max_units)
    profiles = resident_profiles(problem)
    thresholds = sorted({max(level, min_joint_throughput) for level in MIN_THROUGHPUTS})
    orders = [("the order of the last decision", _with_newcomers(problem, last_order))] if last_order else []
    named = (JobOrder.EARLIEST_DEADLINE, *ORDERS) if problem.deadlines.any else ORDERS
    orders += [(ORDER_NAMES[order], jobs_in_order(problem, order)) for order in named]

    def attempt(name: str, order: list[int], threshold: float) -> bool:
        """Make one list schedule; whether it is better than all list schedules before."""
        if not state.may_go_on() or not state.is_new(order, threshold):
            return False
        schedule = schedule_in_order(problem, order, threshold, profiles)
        state.plans += 1
        value = state.consider(schedule, f"{name}, {sharing_in_words(threshold)}")
        if state.best_list is None or value < state.best_list[0]:
            state.best_list = (value, order, threshold)
            return True
        return False

    # 1. One list schedule, however small the budget: last round's order where there is one.
    attempt(*orders[0], thresholds[0])
    kept_starts = [group for group in moment_starts if not _slows_resident(group, problem)]
    if kept_starts:
        shortest = jobs_in_order(problem, JobOrder.SHORTEST)
        schedule = schedule_in_order(problem, shortest, thresholds[0], profiles, kept_starts)
        state.consider(schedule, "best matching of this moment, then shortest job first")
    # 2. Project the named heuristics, in half of the budget, then every order with every threshold.
    state.max_units = max_units // 2
    for heuristic in heuristics_of(problem):
        order = jobs_in_order(problem, heuristic.order)
        protection = heuristic.protection if problem.pending > 1 else None
        if state.may_go_on() and state.is_new(order, (protection, heuristic.min_joint_throughput)):
            schedule = project(problem, heuristic, profiles)
            state.consider(schedule, heuristic.description)
            state.heuristic_values[heuristic.name] = objective_value(schedule, problem)
    state.max_units = max_units
    for name, order in orders:
        for threshold in thresholds:
            attempt(name, order, threshold)
    # 3. The best schedule's own order, which may be that of a heuristic, as a list schedule.
    for threshold in thresholds:
        attempt("the order in which the best plan starts jobs", _by_start(state.best_schedule), threshold)
    # 4. Give up the deadline of a large job for others that are missed (Moore, 1968), while that gains.
    dated = np.flatnonzero(np.isfinite(problem.deadlines.at_s[: problem.pending]))
    area_s = (problem.shortest_s * problem.gpus[: problem.pending])[dated]
    largest = dated[np.argsort(-area_s, kind="stable")[:MAX_GIVEN_UP]].tolist()
    gains = len(largest) > 0
    while gains and state.best_list is not None and any(missed for missed, _, _ in state.best_list[0].levels):
        _, order, threshold = state.best_list
        gains = any(
            attempt("an order that gives up one deadline for others", [*_without(order, job), job], threshold)
            for job in largest
        )
    # 5. Insertions into the best order while the budget lasts.
    rng, failures = random.Random(problem.pending), 0  # noqa: S311 - no secret
    while state.best_list is not None and problem.pending > 1 and failures < MAX_INSERTIONS and state.may_go_on():
        _, order, threshold = state.best_list
        trial = list(order)
        trial.insert(rng.randrange(problem.pending - 1), trial.pop(rng.randrange(problem.pending)))
        failures = 0 if attempt("an order found by local search", trial, threshold) else failures + 1
    assert state.best is not None
    value, _, schedule, name = state.best
    return ScheduledPlan(
        schedule=schedule,
        value=value,
        chosen_because=name,
        order=tuple(_by_start(schedule)),
        heuristic_values=state.heuristic_values,
        work_units=state.units,
        plans=state.plans,
    )


def _slows_resident(group: GroupStart, problem: ScheduleProblem) -> bool:
    """Return whether a start slows a resident past the cap that holds while a device is idle."""
    kind, slows = problem.kind, problem.slows_resident[group.device_class]
    return any(bool(slows[kind[job], kind[host]]) for job in group.jobs for host in group.hosts)


def _without(order: Sequence[int], job: int) -> list[int]:
    """Return an order without one job."""
    return [other for other in order if other != job]


def _by_start(schedule: Schedule) -> list[int]:
    """Return the pending jobs in the order in which a schedule starts them."""
    starts_s = schedule.start_s.tolist()
    return sorted(range(len(starts_s)), key=lambda job: (starts_s[job], job))


def _with_newcomers(problem: ScheduleProblem, last_order: Sequence[int]) -> list[int]:
    """Return the last order, with each job that it lacks inserted before the first longer job."""
    order, shortest_s = list(last_order), problem.shortest_s.tolist()
    known = set(order)
    for job in jobs_in_order(problem, JobOrder.SHORTEST):
        if job not in known:
            at = next((k for k, other in enumerate(order) if shortest_s[other] > shortest_s[job]), len(order))
            order.insert(at, job)
    return order
