"""What a decision about groups minimises: every group that may start as a column, and its levels.

The levels are those of `solve.decision_problem`: the weight that waits, priority by priority, then the objective. A
cost belongs to the job that has it; a resident's added cost counts at its own priority.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.group_master.problem import (
    Floats,
    GroupLevel,
    GroupProblem,
    Ints,
)
from interfere.policy.costs.candidates import Candidates
from interfere.policy.device_class import DeviceClass
from interfere.policy.groups.hosts import HostClass
from interfere.policy.groups.tables import GroupTable
from interfere.records import LevelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One row of supply: the empty devices of a class, or the places of a host class."""

    device_class: DeviceClass
    places: HostClass | None = None  # None for empty devices
    table: GroupTable | None = None  # of a host class
    residents: tuple[int, ...] = ()  # places of its residents in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    """The groups of all sizes of jobs as one problem, and the levels to solve it by."""

    candidates: tuple[Candidates, ...]  # of each size of jobs
    first_class: tuple[int, ...]  # of the classes of all sizes, the first of each
    hosts: tuple[Host, ...]
    tables: dict[tuple[int, DeviceClass], GroupTable]
    problem: GroupProblem
    block_of_class: Ints  # int64[k]: the size of jobs of each class, as a place in `candidates`
    waiting: tuple[tuple[LevelKind, int], ...]
    waiting_levels: tuple[GroupLevel, ...]
    costs: tuple[tuple[LevelKind, int | None], ...]
    cost_levels: tuple[GroupLevel, ...]
    total_cost: GroupLevel
    largest: Floats  # float64[c]: the largest cost of a job in each group; -inf for waiting
    floor: float  # the largest cost of a resident as it runs now; -inf without residents
    is_min_max: bool  # is the largest cost of a job minimised, not the sum?

    def block(self, columns: Ints) -> Ints:
        """int64[n]: the size of jobs of some columns, as a place in `candidates`."""
        return np.asarray(self.block_of_class[self.problem.members[columns, 0]])

    def table_of(self, column: int) -> GroupTable:
        """The table that a column's group was priced with."""
        host = self.hosts[int(self.problem.host[column])]
        block = int(self.block(np.array([column]))[0])
        return host.table or self.tables[self.candidates[block].size, host.device_class]

    def extended(self, problem: GroupProblem, levels: Sequence[GroupLevel], total_cost: GroupLevel) -> "GroupDecision":
        """The decision with columns that were found. `levels`: those of waiting, then those of costs."""
        waiting = len(self.waiting)
        return replace(
            self,
            problem=problem,
            waiting_levels=tuple(levels[:waiting]),
            cost_levels=tuple(levels[waiting:]),
            total_cost=total_cost,
        )
