"""What a decision minimises, level by level: the weight that waits, priority by priority, then the objective.

    1. Σ start weight of the waiting jobs, of each priority from the highest;
    2. the objective: for one that weighs jobs, Σ costs of the jobs of each priority from the highest; else Σ costs of
       all; for a min-max objective the largest cost of a job, then Σ costs with no job above it.

Where the objective prices waiting, what it costs to wait is part of the objective, and the weight that waits comes
after it. A level is as small as it can be among the placements that are best at all levels before it: nothing of a
lower priority is weighed against a higher one. A resident's added cost counts at its own priority, the price of a pair
past the soft cap at the higher one of its two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.master.problem import Block, BlockCosts, Level, PlacementProblem
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.records import LevelKind

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
PairValues = Callable[[PairCosts], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProblem:
    """The candidates of all sizes as one placement problem, and the levels to solve it by."""

    candidates: tuple[Candidates, ...]  # of each size, a block each
    device_classes: tuple[DeviceClass, ...]
    problem: PlacementProblem
    prices_waiting: bool  # do the cost levels come before the waiting levels?
    waiting: tuple[tuple[LevelKind, int], ...]  # kind and priority of each waiting level
    waiting_levels: tuple[Level, ...]
    costs: tuple[tuple[LevelKind, int | None], ...]  # of each cost level; no priority where all jobs count alike
    cost_levels: tuple[Level, ...]
    total_cost: Level  # of all jobs: the sum of the cost levels
    max_job_costs: tuple[BlockCosts, ...]  # of each block, the largest cost of a job in each start; waiting costs none
    resident_floor: float  # largest cost of a resident without neighbour; -inf without residents


def decision_problem(candidates: Sequence[Candidates]) -> DecisionProblem:
    """The candidates of all sizes of one decision as one placement problem."""
    classes = tuple(dict.fromkeys(name for each in candidates for name in each.empty_devices))
    capacity = [max(len(each.empty_devices.get(name, ())) for each in candidates) for name in classes]
    tables = [_BlockTables(each, classes) for each in candidates]
    problem = PlacementProblem(
        blocks=tuple(table.block for table in tables),
        capacity=np.array(capacity, dtype=np.int64),
        max_devices=max((each.max_new_devices for each in candidates), default=0),
    )
    # 1. Levels of waiting.
    pending = [job for each in candidates for job in each.pending]
    priorities = sorted({job.priority for job in pending}, reverse=True)
    waiting_levels = tuple(
        Level(costs=tuple(table.waiting_costs(priority) for table in tables), floor=0.0, is_waiting=True)
        for priority in priorities
    )
    # 2. Levels of cost.
    groups: tuple[int | None, ...] = (None,)
    if any(each.by_priority for each in candidates):
        residents = [members[0].resident for each in candidates for members in each.seat_classes]
        groups = tuple(sorted({job.priority for job in (*pending, *residents)}, reverse=True))
    cost_levels = tuple(_cost_level(tables, group, n_groups=len(groups)) for group in groups)
    return DecisionProblem(
        candidates=tuple(candidates),
        device_classes=classes,
        problem=problem,
        prices_waiting=any(each.prices_waiting for each in candidates),
        waiting=tuple((LevelKind.WAITING_WEIGHT, priority) for priority in priorities),
        waiting_levels=waiting_levels,
        costs=tuple((LevelKind.COST, group) for group in groups),
        cost_levels=cost_levels,
        total_cost=cost_levels[0] if len(groups) == 1 else _cost_level(tables, None, n_groups=1),
        max_job_costs=tuple(table.max_job_costs() for table in tables),
        resident_floor=max((each.resident_floor for each in candidates), default=-np.inf),
    )


def _cost_level(tables: "Sequence[_BlockTables]", group: int | None, *, n_groups: int) -> Level:
    """The costs of the jobs of one priority; of all jobs where there is one group."""
    costs = tuple(table.costs(group if n_groups > 1 else None) for table in tables)
    least = min((table.least(cost) for table, cost in zip(tables, costs, strict=True)), default=0.0)
    return Level(costs=costs, floor=0.0 if least >= 0.0 else -np.inf)


class _BlockTables:
    """The tables of one size as arrays over all device classes; a start that a rule forbids costs nothing there."""

    def __init__(self, candidates: Candidates, classes: Sequence[DeviceClass]) -> None:
        self._candidates = candidates
        self._classes = classes
        counts, seats = candidates.counts, candidates.seats
        k, t = len(counts), len(classes)
        self._solo = np.full((t, k), np.inf)
        for index, name in enumerate(classes):
            if name in candidates.solo_cost:
                self._solo[index] = candidates.solo_cost[name]
        self._seat = candidates.seat_cost()
        pair_allowed = np.zeros((t, k, k), dtype=bool)
        several = np.outer(counts, counts) > 0
        np.fill_diagonal(several, counts >= 2)
        for index, name in enumerate(classes):
            if name in candidates.pair_tables:
                pair_allowed[index] = np.isfinite(candidates.pair_tables[name].cost) & several
        self.block = Block(
            size=candidates.size,
            demand=counts,
            seats=seats,
            wait_allowed=np.ones(k, dtype=bool),
            solo_allowed=np.isfinite(self._solo),
            pair_allowed=pair_allowed,
            seat_allowed=np.isfinite(self._seat),
        )
        self._priority = np.array([job.priority for job in candidates.pending], dtype=np.int64)
        self._seat_priority = np.array([members[0].resident.priority for members in candidates.seat_classes], np.int64)

    def waiting_costs(self, priority: int) -> BlockCosts:
        """The start weight of waiting jobs of one priority."""
        weight = np.where(self._priority == priority, self._candidates.start_weight, 0.0)
        return BlockCosts.of_waiting(self.block, weight)

    def costs(self, priority: int | None) -> BlockCosts:
        """What starts cost the jobs of one priority; all jobs without one."""
        return BlockCosts(
            wait=np.where(self._counts(self._priority, priority), self._candidates.wait_cost, 0.0),
            solo=np.where(
                self.block.solo_allowed & self._counts(self._priority, priority), self._finite(self._solo), 0.0
            ),
            pair=self._stacked(lambda table: self._pair_cost(table, priority)),
            seat=self._seat_costs(priority),
        )

    def max_job_costs(self) -> BlockCosts:
        """The largest cost of a job in each start."""
        seat = np.full(self._seat.shape, -np.inf)
        for table, columns in self._candidates.resident_tables.values():
            seat[:, columns] = table.max_job_cost
        return BlockCosts(
            wait=np.full(len(self._priority), -np.inf),
            solo=self._finite(self._solo),
            pair=self._stacked(lambda table: table.max_job_cost),
            seat=np.where(self.block.seat_allowed, seat, 0.0),
        )

    def least(self, costs: BlockCosts) -> float:
        """The least cost of an allowed start."""
        block = self.block
        return min(
            float(np.min(values, where=allowed, initial=0.0))
            for values, allowed in (
                (costs.solo, block.solo_allowed),
                (costs.pair, block.pair_allowed),
                (costs.seat, block.seat_allowed),
            )
        )

    def _stacked(self, values_of: PairValues) -> Floats:
        """float64[t, k, k] of values of the pair tables; 0 where a pair is not allowed."""
        k = len(self._priority)
        stacked = np.zeros((len(self._classes), k, k))
        for index, name in enumerate(self._classes):
            table = self._candidates.pair_tables.get(name)
            if table is not None:
                stacked[index] = np.where(self.block.pair_allowed[index], values_of(table), 0.0)
        return stacked

    def _pair_cost(self, table: PairCosts, priority: int | None) -> Floats:
        if priority is None:
            return table.cost
        mine = self._priority == priority
        return self._share(table, mine, mine, self._priority, self._priority, priority)

    def _seat_costs(self, priority: int | None) -> Floats:
        cost = np.zeros(self._seat.shape)
        for table, columns in self._candidates.resident_tables.values():
            if priority is None:
                cost[:, columns] = table.cost
                continue
            theirs = self._seat_priority[columns]
            cost[:, columns] = self._share(
                table, self._priority == priority, theirs == priority, self._priority, theirs, priority
            )
        return np.where(self.block.seat_allowed, cost, 0.0)

    @staticmethod
    def _share(
        table: PairCosts,
        rows: Bools,
        columns: Bools,
        row_priority: NDArray[np.int64],
        column_priority: NDArray[np.int64],
        priority: int,
    ) -> Floats:
        """float64[r, c]: of the cost of each pair what belongs to the jobs of one priority."""
        share = np.where(rows[:, None], table.row_cost, 0.0) + np.where(columns, table.column_cost, 0.0)
        of_pair = table.cost - (table.row_cost + table.column_cost)
        higher = np.maximum(row_priority[:, None], column_priority) == priority
        both = rows[:, None] & columns
        share = np.where(higher, share + np.where(np.isfinite(of_pair), of_pair, 0.0), share)
        return np.where(both, table.cost, share)

    @staticmethod
    def _counts(of: NDArray[np.int64], priority: int | None) -> Bools:
        return np.ones(len(of), dtype=bool) if priority is None else of == priority

    @staticmethod
    def _finite(values: Floats) -> Floats:
        return np.where(np.isfinite(values), values, 0.0)
