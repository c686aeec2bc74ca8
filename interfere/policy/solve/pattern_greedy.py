"""The greedy baseline where groups are patterns: the cost of every group that a job could join is worked out anew."""

from collections.abc import Sequence

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.insertion import PatternLookup
from interfere.matching.problem import NOBODY, WAITS, Floats, Ints, Placement
from interfere.policy.solve.decision_problem import DecisionProblem

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
        # 1. Empty devices of the first class that allows it.
        for host in np.flatnonzero(problem.is_empty & (self._supply > 0)).tolist():
            column = self._solo.get((host, job), -1)
            takes = int(problem.takes[column])
            if column >= 0 and takes <= min(int(self._supply[host]), self._devices):
                self._supply[host] -= takes
                self._devices -= takes
                self._open(host, job, column)
                return
        # 2. Beside others, where it adds least.
        row, members, cost = self._joined(job)
        added = np.where(row >= 0, cost - self._cost, np.inf)
        best = int(np.argmin(added)) if len(added) else -1
        if best < 0 or not np.isfinite(added[best]):
            self._waiting.append(job)
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
