"""Groups of any size against every placement: optimal values, bounds that hold, and prices that prove them."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Cutoff,
    Floats,
    Level,
    PairBound,
    Placement,
    PlacementProblem,
    is_proved,
)
from interfere.matching.programs import LinearProgram, Restriction
from interfere.matching.search import solve_levels
from interfere.matching.verify import verify_levels
from interfere.time_budget import UNLIMITED
from tests.matching.unlisted_groups import underpriced_groups


class SmallProblem:
    """A random problem of one to four job classes and one to three hosts, and all its placements."""

    def __init__(self, seed: int, *, listed_size: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        k, h = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        demand, supply = rng.integers(1, 3, k), rng.integers(1, 4, h)
        is_empty = rng.random(h) < 0.7
        sizes = rng.integers(1, 5, h)
        priority, weight = rng.integers(0, 2, k), rng.choice([1.0, 2.0, 0.3], k)
        excess, alone = rng.gamma(1.0, 0.5, (k, k)), rng.random((h, k))
        added = rng.random((h, k))  # to those that run on the host
        forbidden = rng.random((h, k, k)) < 0.1
        forbidden |= forbidden.transpose(0, 2, 1)
        members, host, own, cost, listed = [], [], [], [], []
        for where in range(h):
            for size in range(1, int(sizes[where]) + 1):
                for group in itertools.combinations_with_replacement(range(k), size):
                    if any(group.count(i) > demand[i] for i in group):
                        continue
                    if any(forbidden[where, i, j] for i, j in itertools.combinations(group, 2)):
                        continue
                    members.append(group)
                    host.append(where)
                    own.append(sum(alone[where, i] + weight[i] * sum(excess[i, j] for j in group) for i in group))
                    cost.append(own[-1] + (0.0 if is_empty[where] else sum(added[where, i] for i in group)))
                    listed.append(listed_size is None or size <= listed_size or rng.random() < 0.3)
        members += [(i,) for i in range(k)]
        host += [WAITS] * k
        own, cost, listed = ([*own, *[0.0] * k], [*cost, *[0.0] * k], [*listed, *[True] * k])
        width = max(map(len, members))
        self.all = PlacementProblem(
            demand=demand,
            supply=supply,
            is_empty=is_empty,
            max_devices=int(rng.integers(0, supply.sum() + 1)),
            members=np.array([(*group, *[NOBODY] * (width - len(group))) for group in members]),
            host=np.array(host),
            takes=np.ones(len(host), dtype=np.int64),
            allowed=np.ones(len(host), dtype=bool),
        )
        self.largest = sizes.tolist()
        self.cutoffs = tuple(
            Cutoff(host=where, takes=1, listed_size=listed_size, largest_size=largest)
            for where, largest in enumerate(self.largest)
            if listed_size is not None and largest > listed_size
        )
        waits = self.all.host == WAITS
        self.levels = [
            Level(
                cost=np.where(waits & (priority[self.all.members[:, 0]] == p), weight[self.all.members[:, 0]], 0.0),
                bounds=self._bounds(np.zeros(k), np.zeros((k, k)), forbidden),
                floor=0.0,
                is_waiting=True,
            )
            for p in (1, 0)
            if (priority == p).any()
        ]
        shared = weight[:, None] * excess
        bounds = self._bounds(alone + np.diagonal(shared), shared + shared.T, forbidden)
        self.levels.append(Level(cost=np.array(cost), bounds=bounds, floor=0.0))
        self.listed = np.flatnonzero(listed)
        self.problem = self.all if listed_size is None else self._cut(listed_size)
        self.solver_levels = [
            Level(
                cost=level.cost[self.listed],
                bounds=level.bounds,
                floor=level.floor,
                is_waiting=level.is_waiting,
            )
            for level in self.levels
        ]

    def _bounds(self, alone: Floats, pair: Floats, forbidden: NDArray[np.bool_]) -> tuple[PairBound, ...]:
        """What groups of each cutoff cost at least."""
        return tuple(
            PairBound(
                classes=np.arange(len(pair)),
                alone=np.broadcast_to(alone, (len(self.largest), len(pair)))[cut.host],
                pair=np.where(forbidden[cut.host], np.inf, pair),
            )
            for cut in self.cutoffs
        )

    def _cut(self, listed_size: int) -> PlacementProblem:
        """Only some of the groups above a size are columns."""
        every, at = self.all, self.listed
        return PlacementProblem(
            demand=every.demand,
            supply=every.supply,
            is_empty=every.is_empty,
            max_devices=every.max_devices,
            members=every.members[at],
            host=every.host[at],
            takes=every.takes[at],
            allowed=every.allowed[at],
            cutoffs=self.cutoffs,
        )

    def placements(self) -> Iterator[tuple[float, ...]]:
        """The levels of every placement, of groups that are no columns too."""
        problem = self.all
        groups = [[j for j in row if j != NOBODY] for row in problem.members.tolist()]

        def place(
            c: int, left: list[int], free: list[int], devices: int, values: tuple[float, ...]
        ) -> Iterator[tuple[float, ...]]:
            if not any(left):
                yield values
                return
            if c == len(groups):
                return
            yield from place(c + 1, left, free, devices, values)
            group, host = groups[c], int(problem.host[c])
            left = [n - group.count(i) for i, n in enumerate(left)]
            if host != WAITS:
                free = [n - (k == host) for k, n in enumerate(free)]
                devices -= int(problem.is_empty[host])
            if min(left) >= 0 and min(free) >= 0 and devices >= 0:
                values = tuple(v + float(level.cost[c]) for v, level in zip(values, self.levels, strict=True))
                yield from place(c, left, free, devices, values)

        start = (0.0,) * len(self.levels)
        yield from place(0, problem.demand.tolist(), problem.supply.tolist(), problem.max_devices, start)

    def waiting(self) -> Placement:
        """Every job waits."""
        return Placement(column=np.flatnonzero(self.problem.host == WAITS), count=self.problem.demand)


@pytest.mark.parametrize("listed_size", [None, 1, 2])
def test_levels_are_best_and_bounds_hold(listed_size: int | None) -> None:
    optimal = 0
    for seed in range(80):
        small = SmallProblem(seed, listed_size=listed_size)
        if small.all.demand.sum() > 5:
            continue
        solution = solve_levels(small.problem, small.solver_levels, small.waiting(), budget=UNLIMITED)
        checked = verify_levels(small.problem, small.solver_levels, solution.placement, solution.certificates)
        assert checked.problems == ()
        assert underpriced_groups(small.problem, small.solver_levels, solution.certificates) == []
        every = list(small.placements())
        proved = True
        for k, (value, bound) in enumerate(zip(solution.values, solution.lower_bounds, strict=True)):
            as_good = [
                other[k]
                for other in every
                if all(a <= b + 1e-9 for a, b in zip(other[:k], solution.values[:k], strict=True))
            ]
            assert bound <= min(as_good) + 1e-9
            assert min(as_good) <= value + 1e-9
            proved &= is_proved(value, bound)
        best = min(tuple(round(v, 9) for v in values) for values in every)
        if proved:
            optimal += 1
            assert solution.values == pytest.approx(best, abs=1e-7)
        if listed_size is None:
            assert proved
    assert optimal > (40 if listed_size is None else 5)


def test_a_bound_of_wrong_prices_is_found_out() -> None:
    small = SmallProblem(3)
    solution = solve_levels(small.problem, small.solver_levels, small.waiting(), budget=UNLIMITED)
    priced = [c for c in solution.certificates if c.prices is not None]
    assert priced
    lied = [replace(c, linear_bound=c.linear_bound + 1.0) for c in solution.certificates]
    assert verify_levels(small.problem, small.solver_levels, solution.placement, lied).problems
    assert math.isfinite(priced[-1].linear_bound)


def test_a_linear_solution_keeps_its_own_columns_when_further_ones_are_added() -> None:
    small = SmallProblem(3)
    problem, level = small.problem, small.solver_levels[-1]
    restriction = Restriction.none(problem)
    program = LinearProgram(problem, level, restriction, scale=1.0)
    program.add(np.flatnonzero(problem.host == WAITS))
    answer = program.solve(UNLIMITED)
    assert answer is not None
    assert program.add(np.arange(len(problem.host))) > 0  # as where the budget ends before they are solved
    assert len(answer.columns) == len(answer.x)
    placed = np.zeros(len(problem.demand))
    np.add.at(placed, problem.members[answer.columns, 0], answer.x)
    assert placed == pytest.approx(problem.demand)
