"""Ties are broken by submission: of jobs that could take each other's place at the same cost, the earlier starts.

Law: no level's value changes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from interfere.matching.problem import NOBODY, WAITS, GroupLookup, Placement
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Job

EQUAL = 1e-12  # relative: the same sum in another order


def in_queue_order(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> Placement:
    """The placement in which no job waits that could take the place of a later one for nothing."""
    if not (decision.problem.host[placement.column] == WAITS).any():
        return placement
    exchange = _Exchange(decision, placement, queue)
    while exchange.exchange_one():
        pass
    return exchange.placement()


class _Exchange:
    """A placement in which waiting and started jobs change places; jobs are told by their class of the problem."""

    def __init__(self, decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> None:
        self._decision, self._problem = decision, decision.problem
        self._lookup = GroupLookup.of_columns(decision.problem)
        self._counts = Counter(dict(zip(placement.column.tolist(), placement.count.tolist(), strict=True)))
        self._position = {job.id: k for k, job in enumerate(queue)}
        self._members = [members for candidates in decision.candidates for members in candidates.job_classes]
        self._started = [len(members) for members in self._members]
        self._alike: dict[tuple[int, float], list[int]] = defaultdict(list)  # of one priority and start weight
        weights = [float(weight) for candidates in decision.candidates for weight in candidates.start_weight]
        for k, members in enumerate(self._members):
            self._alike[members[0].priority, weights[k]].append(k)
        self._columns_of: dict[int, set[int]] = defaultdict(set)
        for column, count in self._counts.items():
            if self._problem.host[column] == WAITS:
                self._started[int(self._problem.members[column, 0])] -= count
            else:
                self._register(column)
        self._waiting = {k for k, started in enumerate(self._started) if started < len(self._members[k])}

    def placement(self) -> Placement:
        """The placement after the exchanges so far."""
        kept = sorted((column, count) for column, count in self._counts.items() if count)
        column, count = np.array(kept, dtype=np.int64).reshape(-1, 2).T
        return Placement(column=column, count=count)

    def exchange_one(self) -> bool:
        """Let the earliest waiting job that can start in place of a later one; False where there is none."""
        for classes in self._alike.values():
            waiting = [k for k in classes if k in self._waiting]
            running = [(self._last_started(k), k) for k in classes if self._started[k]] if waiting else []
            running.sort(reverse=True)
            for first, early in sorted((self._first_waiting(k), k) for k in waiting):
                for last, late in running:
                    if last < first:
                        break
                    if late != early and self._exchange(late, early):
                        return True
        return False

    def _first_waiting(self, k: int) -> int:
        return self._position[self._members[k][self._started[k]].id]

    def _last_started(self, k: int) -> int:
        return self._position[self._members[k][self._started[k] - 1].id]

    def _register(self, column: int) -> None:
        """Remember that a column of several jobs is taken."""
        for job in self._jobs(column):
            self._columns_of[job].add(column)

    def _jobs(self, column: int) -> list[int]:
        return [job for job in self._problem.members[column].tolist() if job != NOBODY]

    def _exchange(self, late: int, early: int) -> bool:
        """Let a job of one class start in place of one of another where that costs nothing."""
        for column in sorted(self._columns_of[late]):
            new = self._replaced(column, late, early)
            if new is None:
                continue
            self._counts[column] -= 1
            self._counts[new] += 1
            self._counts[early] -= 1  # the first columns are those of waiting, in the order of the classes
            self._counts[late] += 1
            if not self._counts[column]:
                for job in self._jobs(column):
                    self._columns_of[job].discard(column)
            self._register(new)
            self._started[early] += 1
            self._started[late] -= 1
            self._waiting.add(late)
            if self._started[early] == len(self._members[early]):
                self._waiting.discard(early)
            return True
        return False

    def _replaced(self, column: int, late: int, early: int) -> int | None:
        """The column with one job of another class in it; None where that is not allowed or costs more."""
        problem, jobs = self._problem, self._jobs(column)
        jobs.remove(late)
        new = self._lookup.find_group(int(problem.host[column]), [*jobs, early])
        if new < 0 or problem.takes[new] > problem.takes[column]:
            return None
        pairs = zip(self._costs(new), self._costs(column), strict=True)
        return new if all(cost <= old + EQUAL * abs(old) for cost, old in pairs) else None

    def _costs(self, column: int) -> Iterator[float]:
        """Yield the cost of a column at each cost level, and for min-max the largest cost of a job in it."""
        for level in self._decision.cost_levels:
            yield float(level.cost[column])
        if self._decision.is_min_max:
            yield float(self._decision.largest[column])
