"""What a decision minimises, level by level: every group of jobs that may start as a column, and what it costs.

    1. Σ start weight of the waiting jobs, of each priority from the highest;
    2. the objective: for one that weighs jobs, Σ costs of the jobs of each priority from the highest; else Σ costs of
       all; for a min-max objective the largest cost of a job, then Σ costs with no job above it.

Where the objective prices waiting, what it costs to wait is part of the objective, and the weight that waits comes
after it. A level is as small as it can be among the placements that are best at all levels before it: nothing of a
lower priority is weighed against a higher one. A resident's added cost counts at its own priority, what a group as a
whole costs, such as the price of a pair past the soft cap, at the highest priority of its members.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from interfere.matching.problem import (
    NOBODY,
    Floats,
    Ints,
    Level,
    PlacementProblem,
)
from interfere.policy.costs.candidates import Candidates, Host
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.pair_costs import PairCosts
from interfere.records import Job, LevelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProblem:
    """The groups of all sizes of jobs as one problem, and the levels to solve it by."""

    candidates: tuple[Candidates, ...]  # of each size of jobs
    first_class: tuple[int, ...]  # of the classes of all sizes, the first of each
    hosts: tuple[Host, ...]
    problem: PlacementProblem
    block_of_class: Ints  # int64[k]: the size of jobs of each class, as a place in `candidates`
    waiting: tuple[tuple[LevelKind, int], ...]
    waiting_levels: tuple[Level, ...]
    costs: tuple[tuple[LevelKind, int | None], ...]
    cost_levels: tuple[Level, ...]
    total_cost: Level
    largest: Floats  # float64[c]: the largest cost of a job in each group; -inf for waiting
    floor: float  # the largest cost of a resident as it runs now; -inf without residents
    is_min_max: bool  # is the largest cost of a job minimised, not the sum?
    _partners: dict[int, list[list[Job]]] = field(default_factory=dict, repr=False)  # by the identity of the table

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that are sums, in the order in which they are minimised."""
        return (*self.waiting_levels, *self.cost_levels)

    @property
    def names(self) -> tuple[tuple[LevelKind, int | None], ...]:
        """The kind and priority of each of `levels`."""
        return (*self.waiting, *self.costs)

    def pair_tables(self, candidates: Candidates) -> list[PairCosts]:
        """The pair tables of jobs of one size: on empty devices with several seats, then with residents."""
        empty = [table for name, table in candidates.pair_tables.items() if name.seats > 1]
        beside = (host.resident_pairs for host in candidates.hosts)
        return [*empty, *{id(table): table for table in beside if table is not None}.values()]

    def partners(self, candidates: Candidates, table: PairCosts) -> Sequence[Sequence[Job]]:
        """The jobs for which each column of a table of pairs stands, pending or running."""
        if not table.running:
            return candidates.job_classes
        if id(table) not in self._partners:
            jobs: list[list[Job]] = [[] for _ in table.columns.jobs]
            for host in candidates.hosts:
                for place in host.places if host.resident_pairs is table else ():
                    for column, resident in zip(host.residents, place.residents, strict=True):
                        jobs[column].append(resident)
            self._partners[id(table)] = jobs
        return self._partners[id(table)]

    def block(self, columns: Ints) -> Ints:
        """int64[n]: the size of jobs of some columns, as a place in `candidates`."""
        return np.asarray(self.block_of_class[self.problem.members[columns, 0]])

    def table_of(self, column: int) -> GroupTable:
        """The table that a column's group was priced with."""
        host = self.hosts[int(self.problem.host[column])]
        return host.table or self.candidates[self._block_of(column)].tables[host.device_class]

    def slowdowns_of(self, column: int) -> tuple[float, ...]:
        """The predicted median slowdown of each member of a column's group, residents last."""
        costs = self.table_of(column).evaluate(np.array([self._classes_of(column)]), self._residents_of(column))
        return tuple(costs.slowdown[:, 0].tolist())

    def interval_of(self, column: int, place: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a column's group."""
        return self.table_of(column).interval(self._classes_of(column), self._residents_of(column), place)

    def pair_of(self, column: int) -> tuple[PairCosts, int, int]:
        """The table of pairs that prices a group of two, and its row and column there."""
        table, classes, residents = self.table_of(column), self._classes_of(column), self._residents_of(column)
        if residents:
            assert table.resident_pairs is not None
            return table.resident_pairs, classes[0], residents[0]
        return table.pending_pairs, classes[0], classes[1]

    def _block_of(self, column: int) -> int:
        """The size of jobs of a column, as a place in `candidates`."""
        return int(self.block_of_class[self.problem.members[column, 0]])

    def _classes_of(self, column: int) -> list[int]:
        """Return the job classes of a column's group, numbered among the classes of that gang size."""
        first = self.first_class[self._block_of(column)]
        return [job - first for job in self.problem.members[column].tolist() if job != NOBODY]

    def _residents_of(self, column: int) -> tuple[int, ...]:
        """Return the indices, among the residents of its table, of the residents that a column's group joins."""
        return self.hosts[int(self.problem.host[column])].residents

    def extended(self, problem: PlacementProblem, levels: Sequence[Level], total_cost: Level) -> "DecisionProblem":
        """The decision with columns that were found. `levels`: the new `levels` of the decision."""
        first = len(self.waiting)
        return replace(
            self,
            problem=problem,
            waiting_levels=tuple(levels[:first]),
            cost_levels=tuple(levels[first:]),
            total_cost=total_cost,
        )
