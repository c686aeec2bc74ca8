"""The greedy baseline: one job after the other takes the place that adds the least cost.

The jobs come by priority, then the heaviest first or, where remaining times are known, the shortest for its weight
first; the better of the two placements is the baseline. The search starts from it and serves it where no time is left.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.problem import NOBODY, WAITS, Floats, GroupLookup, Ints, Placement
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Job


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
        extended = self._decision.extended(formulation.problem, formulation.levels[:-1], formulation.levels[-1])
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
