"""The greedy baseline: one job after the other takes the place that adds the least cost.

The jobs come by priority, then the heaviest first or, where remaining times are known, the shortest for its weight
first; the better of the two placements is the baseline. The search starts from it and serves it where no time is left.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.insertion import PatternLookup
from interfere.matching.problem import NOBODY, WAITS, Bools, Floats, Ints, Placement, PlacementProblem
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
    orders = ([class_of[job.id] for job in order] for order in _orders(decision, queue))
    if decision.problem.patterns is not None:
        placements = [place_greedily_in_patterns(decision, classes) for classes in orders]
    else:
        lookup = ColumnLookup(decision.problem)
        placements = [(decision, _place_in_columns(decision, classes, lookup)) for classes in orders]
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


def _place_in_columns(decision: DecisionProblem, classes: Sequence[int], lookup: "ColumnLookup") -> Placement:
    """Return the greedy placement of jobs, given as their classes in the order in which they are placed."""
    search = _GreedySearch(decision, lookup)
    for job in classes:
        search.place(job)
    return Placement.of_counts(search.counts)


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


class ColumnLookup:
    """Finds the listed column of some jobs on a host by a sum of random numbers, one for each job class and host."""

    def __init__(self, problem: PlacementProblem) -> None:
        rng = np.random.default_rng(0)
        self.job_key, self.host_key = (
            rng.integers(-(2**40), 2**40, n) for n in (len(problem.demand), len(problem.supply))
        )
        placed = np.flatnonzero((problem.host != WAITS) & problem.allowed)
        padded, keys = np.append(self.job_key, 0), self.host_key[problem.host[placed]]
        for column in problem.members.T:
            keys = keys + padded[column[placed]]
        order = np.argsort(keys)
        self._keys, self._columns = keys[order], placed[order]

    def find(self, host: int, jobs: Sequence[int]) -> int:
        """The column of some jobs on a host; -1 where there is none."""
        return int(self.of_keys(self.host_key[[host]] + self.job_key[list(jobs)].sum())[0])

    def of_keys(self, keys: Ints) -> Ints:
        """int64[n]: the column of each sum of keys; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Bools = self._keys[at] == keys
        return np.where(found, self._columns[at], -1)


class _GreedySearch:
    """The state of the greedy search: the devices and columns that remain after the jobs placed so far."""

    def __init__(self, decision: DecisionProblem, lookup: ColumnLookup) -> None:
        problem = decision.problem
        self._problem, self._cost = problem, decision.total_cost.cost
        self._lookup = lookup
        self.counts = np.zeros(len(problem.host), dtype=np.int64)
        self._supply, self._devices = problem.supply.copy(), problem.max_devices
        # The columns of single jobs, by job class.
        single = np.flatnonzero((problem.host != WAITS) & problem.allowed & (problem.size == 1))
        self._single = single[np.argsort(problem.members[single, 0], kind="stable")]
        self._first = np.searchsorted(problem.members[self._single, 0], np.arange(len(problem.demand) + 1))
        # Groups that were opened: the key of each, its column, and how many such there are.
        self._open_key, self._open_column, self._open_count = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def place(self, job: int) -> None:
        """Place one job of a class."""
        problem = self._problem
        columns = self._single[self._first[job] : self._first[job + 1]]
        host, takes = problem.host[columns], problem.takes[columns]
        free = takes <= self._supply[host]
        # 1. The cheapest empty device or seat beside residents; of equals the first.
        open_columns = columns[free & (~problem.is_empty[host] | (takes <= self._devices))]
        start = int(np.argmin(self._cost[open_columns])) if len(open_columns) else -1
        start_cost = float(self._cost[open_columns[start]]) if start >= 0 else np.inf
        # 2. The cheapest place beside jobs that were started before.
        joined = self._lookup.of_keys(self._open_key + self._lookup.job_key[job])
        before = self._cost[self._open_column]
        added = np.where((joined >= 0) & (self._open_count > 0), self._cost[np.maximum(joined, 0)] - before, np.inf)
        group = int(np.argmin(added)) if len(added) else -1
        added_cost = float(added[group]) if group >= 0 else np.inf
        # 3. Whichever adds less.
        if not np.isfinite(min(start_cost, added_cost)):
            self.counts[job] += 1  # the first columns are those that wait, in the order of the classes
        elif start_cost <= added_cost:
            self._start(job, int(open_columns[start]))
        else:
            self._open_count[group] -= 1
            self.counts[self._open_column[group]] -= 1
            self.counts[joined[group]] += 1
            self._open(int(self._open_key[group] + self._lookup.job_key[job]), int(joined[group]))

    def _start(self, job: int, column: int) -> None:
        """Start a job on a host that nobody joined so far."""
        host = int(self._problem.host[column])
        takes = int(self._problem.takes[column])
        self._supply[host] -= takes
        self._devices -= takes if self._problem.is_empty[host] else 0
        self.counts[column] += 1
        self._open(int(self._lookup.host_key[host] + self._lookup.job_key[job]), column)

    def _open(self, key: int, column: int) -> None:
        """Count one more host with this group."""
        at = np.flatnonzero(self._open_key == key)
        if len(at):
            self._open_count[at[0]] += 1
            return
        self._open_key = np.append(self._open_key, key)
        self._open_column = np.append(self._open_column, column)
        self._open_count = np.append(self._open_count, 1)


AFTER_ALL = np.iinfo(np.int64).max


def place_greedily_in_patterns(decision: DecisionProblem, queue: Sequence[int]) -> tuple[DecisionProblem, Placement]:
    """The decision with the columns of the placement. `queue`: the class of each job, in order."""
    search = _PatternSearch(decision)
    for job in queue:
        search.place(job)
    formulation = Formulation(decision.problem, (*decision.levels, decision.total_cost))
    counts = search.column_counts
    rows, classes = search.groups()
    for column in formulation.add_groups(rows, classes).tolist():
        counts[column] = counts.get(column, 0) + 1
    placement = Placement(
        column=np.array(sorted(counts), dtype=np.int64),
        count=np.array([counts[column] for column in sorted(counts)], dtype=np.int64),
    )
    extended = decision.extended(formulation.problem, formulation.levels[:-1], formulation.levels[-1])
    return extended, placement


class _PatternSearch:
    """One entry for each device that runs jobs, and for each that was empty and was taken."""

    def __init__(self, decision: DecisionProblem) -> None:
        problem, patterns, costs = decision.problem, decision.problem.patterns, decision.total_cost.patterns
        assert patterns is not None
        assert costs is not None
        self._problem, self._patterns, self._costs = problem, patterns, costs
        self._column_cost = decision.total_cost.cost
        self._lookup = PatternLookup(patterns, len(problem.supply))
        self._supply, self._devices = problem.supply.copy(), problem.max_devices
        solo = np.flatnonzero(problem.host != WAITS)
        self._solo = {(int(problem.host[c]), int(problem.members[c, 0])): int(c) for c in solo}
        beside = np.repeat(np.arange(len(problem.supply)), np.where(problem.is_empty, 0, problem.supply))
        self._host, self._key = beside, self._lookup.host_key[beside]
        self._members = np.full((len(beside), patterns.members.shape[1]), NOBODY, dtype=np.int64)
        self._row = np.full(len(beside), -1, dtype=np.int64)  # -1: nobody has joined
        self._cost, self._solo_column = np.zeros(len(beside)), np.full(len(beside), -1, dtype=np.int64)
        self._waiting: list[int] = []

    @property
    def column_counts(self) -> dict[int, int]:
        """How often each column of a job that waits, or is alone on an empty device, is taken."""
        alone = self._solo_column[(self._row < 0) & (self._solo_column >= 0)].tolist()
        counts: dict[int, int] = {}
        for column in [*self._waiting, *alone]:  # the first columns are those that wait, in the order of the classes
            counts[column] = counts.get(column, 0) + 1
        return counts

    def groups(self) -> tuple[Ints, Ints]:
        """The pattern of each group, and its job classes."""
        at = np.flatnonzero(self._row >= 0)
        return self._row[at], self._members[at]

    def place(self, job: int) -> None:
        """Place one job of a class."""
        problem = self._problem
        # 1. The cheapest empty device.
        columns = [self._solo.get((host, job), -1) for host in np.flatnonzero(problem.is_empty).tolist()]
        columns = [
            column
            for column in columns
            if column >= 0 and problem.takes[column] <= min(self._supply[problem.host[column]], self._devices)
        ]
        alone = min(columns, key=lambda column: float(self._column_cost[column]), default=-1)
        start_cost = float(self._column_cost[alone]) if alone >= 0 else np.inf
        # 2. The cheapest place beside others.
        row, members, cost = self._joined(job)
        added = np.where(row >= 0, cost - self._cost, np.inf)
        best = int(np.argmin(added)) if len(added) else -1
        added_cost = float(added[best]) if best >= 0 else np.inf
        # 3. Whichever adds less.
        if not np.isfinite(min(start_cost, added_cost)):
            self._waiting.append(job)
            return
        if start_cost <= added_cost:
            host, takes = int(problem.host[alone]), int(problem.takes[alone])
            self._supply[host] -= takes
            self._devices -= takes
            self._open(host, job, alone)
            return
        self._row[best], self._members[best], self._cost[best] = row[best], members[best], cost[best]
        self._key[best] += self._lookup.kind_key[self._patterns.kind[job]]

    def _joined(self, job: int) -> tuple[Ints, Ints, Floats]:
        """Of every entry with one more job: its pattern, -1 where there is none, its job classes, its cost."""
        patterns = self._patterns
        row = self._lookup.find(self._key + self._lookup.kind_key[patterns.kind[job]])
        members = np.column_stack([self._members[:, :-1], np.full(len(row), job)])
        members = np.where(self._members[:, -1:] == NOBODY, members, self._members)  # the full ones have no pattern
        kinds = np.where(members == NOBODY, AFTER_ALL, np.append(patterns.kind, 0)[members])
        members = np.take_along_axis(members, np.argsort(kinds, axis=1, kind="stable"), axis=1)
        cost = np.full(len(row), np.inf)
        found = np.flatnonzero(row >= 0)
        cost[found] = self._costs.of_groups(patterns, row[found], members[found])
        return row, members, cost

    def _open(self, host: int, job: int, column: int) -> None:
        """One more device, which the job takes alone."""
        members = np.full(self._members.shape[1], NOBODY, dtype=np.int64)
        members[0] = job
        key = self._lookup.host_key[host] + self._lookup.kind_key[self._patterns.kind[job]]
        self._host, self._key = np.append(self._host, host), np.append(self._key, key)
        self._members = np.vstack([self._members, members])
        self._row = np.append(self._row, -1)
        self._cost = np.append(self._cost, self._column_cost[column])
        self._solo_column = np.append(self._solo_column, column)
