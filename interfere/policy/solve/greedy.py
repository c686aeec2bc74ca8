"""The greedy baseline in groups: each job in the order of the queue takes the cheapest place that is left."""

from collections.abc import Sequence

import numpy as np

from interfere.matching.problem import WAITS, Bools, Ints, Placement, PlacementProblem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.pattern_greedy import place_greedily_in_patterns
from interfere.records import Job


def place_greedily(decision: DecisionProblem, queue: Sequence[Job]) -> tuple[DecisionProblem, Placement]:
    """Each job takes empty devices while there are any, else the seat beside others that adds the least cost.

    Also returns the decision with the columns of the placement.
    """
    class_of = {
        job.id: first + i
        for candidates, first in zip(decision.candidates, decision.first_class, strict=True)
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    classes = [class_of[job.id] for job in queue]
    if decision.problem.patterns is not None:
        return place_greedily_in_patterns(decision, classes)
    search = _GreedySearch(decision)
    for job in classes:
        search.place(job)
    return decision, Placement.of_counts(search.counts)


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
    """What is left after the jobs so far."""

    def __init__(self, decision: DecisionProblem) -> None:
        problem = decision.problem
        self._problem, self._cost = problem, decision.total_cost.cost
        self._lookup = ColumnLookup(problem)
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
        # 1. Empty devices of the first class that allows it.
        empty = np.flatnonzero(free & problem.is_empty[host] & (takes <= self._devices))
        if len(empty):
            first = int(empty[np.argmin(host[empty])])
            self._devices -= int(takes[first])
            self._start(job, int(columns[first]))
            return
        # 2. Beside residents, or beside jobs that were started before, where it adds least.
        beside = columns[free & ~problem.is_empty[host]]
        joined = self._lookup.of_keys(self._open_key + self._lookup.job_key[job])
        before = self._cost[self._open_column]
        added = np.where((joined >= 0) & (self._open_count > 0), self._cost[np.maximum(joined, 0)] - before, np.inf)
        seat = int(np.argmin(self._cost[beside])) if len(beside) else -1
        group = int(np.argmin(added)) if len(added) else -1
        least_added = float(added[group]) if group >= 0 else np.inf
        if seat >= 0 and self._cost[beside[seat]] <= least_added:
            self._start(job, int(beside[seat]))
        elif np.isfinite(least_added):
            self._open_count[group] -= 1
            self.counts[self._open_column[group]] -= 1
            self.counts[joined[group]] += 1
            self._open(int(self._open_key[group] + self._lookup.job_key[job]), int(joined[group]))
        else:
            self.counts[job] += 1  # the first columns are those that wait, in the order of the classes

    def _start(self, job: int, column: int) -> None:
        """Start a job on a host that nobody joined so far."""
        host = int(self._problem.host[column])
        self._supply[host] -= int(self._problem.takes[column])
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
