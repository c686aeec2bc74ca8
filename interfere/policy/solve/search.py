"""The greedy baseline of a decision, and the best placement, level by level, with what is proved of each level.

The baseline takes one job after the other; each gets the place that adds the least cost. The jobs come by priority,
then the heaviest first or, where remaining times are known, the shortest for its weight first; the better of the two
placements is the baseline. The search starts from it and serves it where no time is left.

A min-max objective is minimised by bisection: among the placements that are best at the waiting levels, find the
smallest threshold such that no job costs more. Whether a threshold can be reached is again a matter of the waiting
levels, with the starts above it left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Floats,
    GroupLookup,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    is_proved,
)
from interfere.matching.search import Solution, solve_levels
from interfere.matching.verify import broken_limits, verify_levels
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Job, LevelKind, PlanLevel
from interfere.time_budget import TimeBudget


def place_greedily(decision: DecisionProblem, queue: Sequence[Job]) -> tuple[DecisionProblem, Placement]:
    """Return the better of the greedy placements, and the decision with the columns of that placement."""
    class_of = {
        job.id: first + i
        for candidates, first in zip(decision.candidates, decision.first_class, strict=True)
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    patterns, placements = decision.problem.patterns, []
    lookup = (
        GroupLookup.of_columns(decision.problem)
        if patterns is None
        else GroupLookup.of_patterns(patterns, len(decision.problem.supply))
    )
    for order in _orders(decision, queue):
        search = _GreedySearch(decision, lookup)
        for job in order:
            search.place(class_of[job.id])
        placements.append(search.placement())
    return min(placements, key=lambda placed: _values(*placed))


def _orders(decision: DecisionProblem, queue: Sequence[Job]) -> Iterator[list[Job]]:
    """Yield the jobs by priority and start weight; then by priority and remaining time a weight, where any is known.

    Ordering by time over weight is Smith's rule (Smith, Naval Research Logistics 3, 1956): on one machine the sum of
    weighted completion times is then least. Of equals the job that was submitted first comes first.
    """
    start_weight = {
        job.id: float(weight)
        for candidates in decision.candidates
        for members, weight in zip(candidates.job_classes, candidates.start_weight, strict=True)
        for job in members
    }
    heaviest_first = sorted(queue, key=lambda job: (-job.priority, -start_weight[job.id]))
    yield heaviest_first
    if any(not math.isnan(job.remaining_s) for job in queue):
        yield sorted(heaviest_first, key=lambda job: (-job.priority, _seconds_for_weight(job)))


def _seconds_for_weight(job: Job) -> float:
    """Return the remaining seconds over the weight; infinity where the remaining time is unknown."""
    return math.inf if math.isnan(job.remaining_s) else job.remaining_s / job.weight


def _values(decision: DecisionProblem, placement: Placement) -> tuple[float, ...]:
    """Return what the decision minimises, in its order: the levels; for a min-max objective the largest cost first
    after the levels of waiting."""
    values = [placement.value(level) for level in decision.levels]
    if decision.is_min_max:
        largest = float(decision.largest[placement.column].max(initial=-np.inf))
        values.insert(len(decision.waiting_levels), max(decision.floor, largest))
    return tuple(values)


def waiting_jobs(decision: DecisionProblem, placement: Placement) -> int:
    """How many jobs of a placement wait."""
    return int(placement.count[decision.problem.host[placement.column] == WAITS].sum())


AFTER_ALL = np.iinfo(np.int64).max
NO_ROW = -1


class _GreedySearch:
    """Devices on which jobs run or were started, in groups of equal ones: one entry of each array for each group.

    A job of a class takes an empty device, or joins a group; with it the group is another column, or another pattern.
    """

    def __init__(self, decision: DecisionProblem, lookup: GroupLookup) -> None:
        problem = decision.problem
        self._decision, self._problem, self._lookup = decision, problem, lookup
        self._patterns, self._cost = problem.patterns, decision.total_cost.cost
        classes = np.arange(len(problem.demand), dtype=np.int64)
        self._kind = classes if self._patterns is None else self._patterns.kind
        self._supply, self._devices = problem.supply.copy(), problem.max_devices
        self._waiting: list[int] = []
        # 1. The columns of jobs alone on empty devices, by job class.
        alone = np.flatnonzero((problem.host != WAITS) & problem.allowed & (problem.size == 1))
        alone = alone[problem.is_empty[problem.host[alone]]]
        self._alone = alone[np.argsort(problem.members[alone, 0], kind="stable")]
        self._first = np.searchsorted(problem.members[self._alone, 0], np.arange(len(problem.demand) + 1))
        # 2. The groups, at first the residents of each host: the row of its column or pattern, and its cost.
        hosts = np.flatnonzero(~problem.is_empty & (problem.supply > 0))
        width = problem.members.shape[1] if self._patterns is None else self._patterns.members.shape[1]
        self._host, self._key, self._count = hosts, lookup.host_key[hosts], problem.supply[hosts]
        self._members = np.full((len(hosts), width), NOBODY, dtype=np.int64)
        self._row, self._added = np.full(len(hosts), NO_ROW, dtype=np.int64), np.zeros(len(hosts))
        self._is_column = np.full(len(hosts), self._patterns is None)
        self._place_of: dict[tuple[int, ...], int] = {}  # in the arrays, of a host and its members

    def place(self, job: int) -> None:
        """Place one job of a class."""
        problem = self._problem
        # 1. The cheapest empty device; of equals the first.
        columns = self._alone[self._first[job] : self._first[job + 1]]
        columns = columns[problem.takes[columns] <= np.minimum(self._supply[problem.host[columns]], self._devices)]
        alone = int(columns[np.argmin(self._cost[columns])]) if len(columns) else NO_ROW
        start_cost = float(self._cost[alone]) if alone != NO_ROW else np.inf
        # 2. The cheapest place beside residents, or jobs that were started before.
        rows, costs = self._joined(job)
        more = costs - self._added
        group = int(np.argmin(more)) if len(more) else NO_ROW
        more_cost = float(more[group]) if group != NO_ROW else np.inf
        # 3. Whichever adds less.
        if not np.isfinite(min(start_cost, more_cost)):
            self._waiting.append(job)
        elif start_cost <= more_cost:
            host, takes = int(problem.host[alone]), int(problem.takes[alone])
            self._supply[host] -= takes
            self._devices -= takes
            members = [job] + [NOBODY] * (self._members.shape[1] - 1)
            self._count_one(host, members, alone, start_cost, is_column=True)
        else:
            self._count[group] -= 1
            members = self._with(np.array([group]), job)[0].tolist()
            is_column = self._patterns is None
            self._count_one(int(self._host[group]), members, int(rows[group]), float(costs[group]), is_column=is_column)

    def placement(self) -> tuple[DecisionProblem, Placement]:
        """Return the placement, and the decision with the columns of its groups."""
        counts = np.zeros(len(self._problem.host), dtype=np.int64)
        np.add.at(counts, self._waiting, 1)  # the first columns are those that wait, in the order of the classes
        taken = (self._row != NO_ROW) & (self._count > 0)
        columns, groups = np.flatnonzero(taken & self._is_column), np.flatnonzero(taken & ~self._is_column)
        np.add.at(counts, self._row[columns], self._count[columns])
        if not len(groups):
            return self._decision, Placement.of_counts(counts)
        formulation = Formulation(self._problem, (*self._decision.levels, self._decision.total_cost))
        added = formulation.add_groups(self._row[groups], self._members[groups])
        counts = np.append(counts, np.zeros(len(formulation.problem.host) - len(counts), dtype=np.int64))
        np.add.at(counts, added, self._count[groups])
        extended = replace(
            self._decision,
            problem=formulation.problem,
            levels=formulation.levels[:-1],
            total_cost=formulation.levels[-1],
        )
        return extended, Placement.of_counts(counts)

    def _joined(self, job: int) -> tuple[Ints, Floats]:
        """Return the row of each group with one more job, and its cost: infinity where that is not possible."""
        rows = self._lookup.find(self._key + self._lookup.kind_key[self._kind[job]])
        at = np.flatnonzero((rows != NO_ROW) & (self._count > 0))
        costs = np.full(len(rows), np.inf)
        if self._patterns is None:
            costs[at] = self._cost[rows[at]]
        else:
            of_patterns = self._decision.total_cost.patterns
            assert of_patterns is not None
            costs[at] = of_patterns.of_groups(self._patterns, rows[at], self._with(at, job))
        return rows, costs

    def _with(self, groups: Ints, job: int) -> Ints:
        """Return the members of some groups with one more job, by kind."""
        members = np.column_stack([self._members[groups, :-1], np.full(len(groups), job)])
        kinds = np.where(members == NOBODY, AFTER_ALL, self._kind[members])
        return np.take_along_axis(members, np.argsort(kinds, axis=1, kind="stable"), axis=1)

    def _count_one(self, host: int, members: list[int], row: int, cost: float, *, is_column: bool) -> None:
        """Count one more host with a group."""
        place = self._place_of.setdefault((host, *members), len(self._row))
        if place < len(self._row):
            self._count[place] += 1
            return
        jobs = [job for job in members if job != NOBODY]
        key = self._lookup.host_key[host] + self._lookup.kind_key[self._kind[jobs]].sum()
        self._host, self._key = np.append(self._host, host), np.append(self._key, key)
        self._members = np.vstack([self._members, members])
        self._row, self._added = np.append(self._row, row), np.append(self._added, cost)
        self._count, self._is_column = np.append(self._count, 1), np.append(self._is_column, is_column)


SAME_WEIGHT = 1e-12  # relative: sums of the same weights in another order
SHARE_OF_BISECTION = 0.6  # of the budget; the rest is for the sum below the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSolution:
    """A placement with its proved bounds, and the decision problem with all columns that the search generated."""

    decision: DecisionProblem
    placement: Placement
    levels: tuple[PlanLevel, ...]
    failed_checks: tuple[str, ...] = ()  # claims of the search that the independent check did not confirm


def solve_decision(decision: DecisionProblem, start: Placement, budget: TimeBudget) -> DecisionSolution:
    """The best placement found within the budget, with each level's value and bound; `start` is any placement."""
    if decision.is_min_max:
        return _solve_min_max(decision, start, budget)
    solution = solve_levels(decision.problem, decision.levels, start, budget=budget, guide=decision.total_cost)
    solution, failed = checked(solution, start)
    found = replace(decision, problem=solution.problem, levels=solution.levels, total_cost=solution.guide)
    proved = _plan_levels(decision.levels, solution.values, solution.lower_bounds)
    return DecisionSolution(decision=found, placement=solution.placement, levels=proved, failed_checks=failed)


def checked(solution: Solution, start: Placement) -> tuple[Solution, tuple[str, ...]]:
    """Return the solution with the bounds that an independent check of its prices confirms, and the failed claims.

    An illegal placement gives way to the one that the search started from, without bounds.
    """
    broken = tuple(broken_limits(solution.problem, solution.placement))
    if broken:
        values = tuple(start.value(level) for level in solution.levels)
        floors = tuple(min(level.floor, value) for level, value in zip(solution.levels, values, strict=True))
        illegal = f"an illegal placement was replaced by the greedy one: {'; '.join(broken)}"
        return replace(solution, placement=start, values=values, lower_bounds=floors), (illegal,)
    found = verify_levels(solution.problem, solution.levels, solution.placement, solution.certificates)
    if not found.problems:
        return solution, ()
    bounds = tuple(min(own, proved) for own, proved in zip(solution.lower_bounds, found.bounds, strict=True))
    unproved = tuple(f"a certificate does not prove what it claims: {problem}" for problem in found.problems)
    return replace(solution, lower_bounds=bounds), unproved


def all_proved(levels: Sequence[PlanLevel]) -> bool:
    """Whether every level is within the tolerance of its bound."""
    return all(is_proved(level.value, level.lower_bound) for level in levels)


def largest_cost(decision: DecisionProblem, placement: Placement) -> float:
    """The largest cost of a job that starts or runs; 0 where none does."""
    largest = max(decision.floor, float(decision.largest[placement.column].max(initial=-np.inf)))
    return largest if largest > -np.inf else 0.0


def _solve_min_max(decision: DecisionProblem, start: Placement, budget: TimeBudget) -> DecisionSolution:
    # 1. The least weight that can wait, without any threshold.
    share = budget.share(SHARE_OF_BISECTION)
    free = _least_waiting(decision, decision.problem, start, share)
    best = free.placement
    # 2. Bisect the thresholds: limits[high] is reached; below limits[low] is not.
    limits = thresholds(decision)
    low, high = 0, int(np.searchsorted(limits, largest_cost(decision, best)))
    proved = -1  # the largest index whose threshold was proved too low
    while low < high and not share.expired:
        middle = (low + high) // 2
        capped = _capped(decision, float(limits[middle]))
        trial = _least_waiting(decision, capped, _within(capped, best), share)
        if _as_good(trial, free):
            best = trial.placement
            high = min(middle, int(np.searchsorted(limits, largest_cost(decision, best))))
        else:
            proved = middle if _proved_worse(trial, free) else proved
            low = middle + 1
    value = largest_cost(decision, best)
    bound = float(limits[high]) if proved == high - 1 or high == 0 else float(limits[proved + 1])
    # 3. The smallest sum with no job above the threshold.
    final = solve_levels(_capped(decision, value), decision.levels, best, budget=budget, guide=decision.total_cost)
    final, failed = checked(final, best)
    value, waiting = largest_cost(decision, final.placement), len(decision.waiting_levels)
    levels_proved = (
        *_plan_levels(decision.waiting_levels, final.values[:waiting], free.lower_bounds),
        PlanLevel(kind=LevelKind.MAX_COST, value=value, lower_bound=min(bound, value)),
        *_plan_levels(decision.cost_levels, final.values[waiting:], final.lower_bounds[waiting:]),
    )
    return DecisionSolution(decision=decision, placement=final.placement, levels=levels_proved, failed_checks=failed)


def _least_waiting(
    decision: DecisionProblem, problem: PlacementProblem, start: Placement, budget: TimeBudget
) -> Solution:
    return solve_levels(problem, decision.waiting_levels, start, budget=budget, guide=decision.total_cost)


def _as_good(trial: Solution, best: Solution) -> bool:
    """Does no more weight wait, level by level?"""
    for own, other in zip(trial.values, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return False
        if own < other * (1 - SAME_WEIGHT):
            return True
    return True


def _proved_worse(trial: Solution, best: Solution) -> bool:
    """Is it proved that more weight has to wait, at the first level that differs?"""
    for own, bound, other in zip(trial.values, trial.lower_bounds, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return bound > other * (1 + SAME_WEIGHT)
    return False


def _capped(decision: DecisionProblem, threshold: float) -> PlacementProblem:
    """The problem without groups in which a job costs more than the threshold."""
    return replace(decision.problem, allowed=decision.problem.allowed & (decision.largest <= threshold))


def _within(problem: PlacementProblem, placement: Placement) -> Placement:
    """The placement in which jobs of groups that are not allowed any more wait."""
    counts = np.zeros(len(problem.host), dtype=np.int64)
    allowed = problem.allowed[placement.column]
    counts[placement.column[allowed]] = placement.count[allowed]
    for column, count in zip(placement.column[~allowed].tolist(), placement.count[~allowed].tolist(), strict=True):
        for job in problem.members[column].tolist():
            if job >= 0:
                counts[job] += count  # the first columns are those that wait, in the order of the classes
    assert (problem.host[: len(problem.demand)] == WAITS).all()
    return Placement.of_counts(counts)


def thresholds(decision: DecisionProblem) -> np.ndarray:
    """Return the sorted distinct values that the largest cost of a job may take.

    The first is its least possible value.
    """
    placed = (decision.problem.host != WAITS) & decision.problem.allowed
    distinct = np.unique(decision.largest[placed])
    floor = decision.floor if decision.floor > -np.inf else float(distinct.min(initial=0.0))
    return np.concatenate([[floor], distinct[distinct > floor]])


def _plan_levels(levels: Sequence[Level], values: Sequence[float], bounds: Sequence[float]) -> tuple[PlanLevel, ...]:
    return tuple(
        PlanLevel(
            kind=LevelKind.WAITING_WEIGHT if level.is_waiting else LevelKind.COST,
            priority=level.priority,
            value=value,
            lower_bound=min(bound, value),
        )
        for level, value, bound in zip(levels, values, bounds, strict=True)
    )
