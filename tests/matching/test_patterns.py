"""Groups as patterns of kinds against the same problem with every group as a column: equal values, costs and jobs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from interfere.matching import search
from interfere.matching.formulation import Formulation
from interfere.matching.patterns import PatternCosts, PatternPricing, Patterns
from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Level,
    Placement,
    PlacementProblem,
    is_proved,
)
from interfere.matching.rounding import groups_of, placement_of_groups
from interfere.matching.search import solve_levels
from interfere.matching.verify import verify_levels
from interfere.time_budget import UNLIMITED
from tests.matching.unlisted_groups import underpriced_groups


class PatternProblem:
    """Job classes of two or three kinds on two hosts as patterns, and the same with every group as a column."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        k, kinds, h = int(rng.integers(4, 9)), int(rng.integers(2, 4)), 2
        kind = np.concatenate([np.arange(kinds), rng.integers(0, kinds, k - kinds)])
        demand = rng.integers(1, 3, k)
        slope, base = rng.uniform(0.5, 4.0, (1, k)), rng.uniform(0.0, 0.5, (1, k))
        rows, excess, host = [], [], []
        of_kind = np.bincount(kind, weights=demand)
        for where in range(h):
            for size in (1, 2, 3)[1 - where :]:
                for group in itertools.combinations_with_replacement(range(kinds), size):
                    if all(group.count(one) <= of_kind[one] for one in group) and rng.random() < 0.9:
                        pair = rng.random((kinds, kinds))
                        rows.append((*group, *[NOBODY] * (3 - size)))
                        values = [sum(pair[a, b] for b in group) - pair[a, a] + 0.1 for a in group]
                        excess.append((*values, *[0.0] * (3 - size)))
                        host.append(where)
        patterns = Patterns(
            kind=kind,
            demand=demand,
            members=np.array(rows),
            excess=np.array(excess),
            domain=np.zeros(len(rows), dtype=np.int64),
            host=np.array(host),
            takes=np.ones(len(rows), dtype=np.int64),
        )
        costs = PatternCosts(base=base, slope=slope, added=rng.uniform(0.0, 0.3, len(rows)))
        members = np.full((k, 3), NOBODY)
        members[:, 0] = np.arange(k)
        self.problem = PlacementProblem(
            demand=demand,
            supply=rng.integers(1, 4, h),
            is_empty=np.array([True, False]),
            max_devices=2,
            members=members,
            host=np.full(k, WAITS),
            takes=np.zeros(k, dtype=np.int64),
            allowed=np.ones(k, dtype=bool),
            patterns=patterns,
        )
        free = PatternCosts(base=0 * base, slope=0 * slope, added=np.zeros(len(rows)))
        weight = rng.choice([1.0, 2.0], k)
        self.levels = [
            Level(cost=weight, floor=0.0, is_waiting=True, patterns=free),
            Level(cost=np.zeros(k), floor=0.0, patterns=costs),
        ]
        self.start = Placement(column=np.arange(k), count=demand)

    def with_every_group(self) -> Formulation:
        """Every group of every pattern as a column."""
        formulation, patterns = Formulation(self.problem, self.levels), self.problem.patterns
        assert patterns is not None
        for row, kinds in enumerate(patterns.members.tolist()):
            choices = [np.flatnonzero(patterns.kind == kind) for kind in kinds if kind != NOBODY]
            for group in itertools.product(*choices):
                if all(group.count(c) <= patterns.demand[c] for c in group):
                    classes = np.array([[*group, *[NOBODY] * (3 - len(group))]])
                    formulation.add_groups(np.array([row]), classes)
        return formulation


def test_groups_of_patterns_are_found_as_if_all_were_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LINEAR_GAP", 0.0)
    proved = 0
    for seed in range(20):
        small = PatternProblem(seed)
        every = small.with_every_group()
        best = solve_levels(replace(every.problem, patterns=None), list(every.levels), small.start, budget=UNLIMITED)
        found = solve_levels(small.problem, small.levels, small.start, budget=UNLIMITED)
        checked = verify_levels(found.problem, found.levels, found.placement, found.certificates)
        assert checked.problems == ()
        assert underpriced_groups(found.problem, found.levels, found.certificates) == []
        for value, bound, optimum in zip(found.values, found.lower_bounds, best.values, strict=True):
            assert bound <= optimum + 1e-9
            if value > optimum + 1e-9:
                break
            assert value == pytest.approx(optimum, abs=1e-9)
            proved += is_proved(value, bound)
    assert proved >= 25


def test_reduced_costs_of_patterns_are_those_of_the_best_group_one_by_one() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        small = PatternProblem(seed)
        every, patterns = small.with_every_group(), small.problem.patterns
        assert patterns is not None
        jobs, device = rng.uniform(0.0, 3.0, len(small.problem.demand)), rng.uniform(-1.0, 0.0, 2)
        costs = small.levels[1].patterns
        assert costs is not None
        least = np.full(len(patterns.members), np.inf)
        columns = np.arange(len(small.problem.demand), len(every.problem.host))
        prices = np.append(jobs, 0.0)[every.problem.members[columns]].sum(axis=1)
        reduced = every.levels[1].cost[columns] - prices - device[every.problem.host[columns]]
        np.minimum.at(least, every.pattern_of_columns()[columns], reduced)
        found = PatternPricing(patterns).reduced_costs(costs, jobs, device)
        assert (found <= least + 1e-9).all()
        assert found[least < 0] == pytest.approx(least[least < 0], abs=1e-9)
        at = np.flatnonzero(least < 0)
        groups = PatternPricing(patterns).best_groups(at, costs, jobs)
        paid = np.append(jobs, 0.0)[groups].sum(axis=1) + device[patterns.host[at]]
        assert costs.of_groups(patterns, at, groups) - paid == pytest.approx(least[at], abs=1e-9)


def test_groups_that_another_search_found_are_placed_with_all_their_jobs_and_those_that_waited() -> None:
    joined = 0
    for seed in range(20):
        small = PatternProblem(seed)
        every, rng = small.with_every_group(), np.random.default_rng(seed)
        costs, k = small.levels[1].patterns, len(small.problem.demand)
        assert costs is not None
        pairs = np.flatnonzero((every.problem.members >= 0).sum(axis=1) == 2)
        counts = np.zeros(len(every.problem.host), dtype=np.int64)
        left = small.problem.demand.copy()
        for column in rng.permutation(pairs).tolist():
            jobs = every.problem.members[column, :2]
            if (np.bincount(jobs, minlength=k) <= left).all():
                left -= np.bincount(jobs, minlength=k)
                counts[column] += 1
        counts[:k] = left
        elsewhere = Formulation(every.problem, every.levels)  # knows columns, not where they came from
        groups, waiting = groups_of(elsewhere, counts)
        assert sorted(waiting) == np.repeat(np.arange(k), left).tolist()
        placement = placement_of_groups(elsewhere, costs, groups, waiting)
        if placement is None:  # no group has room
            continue
        joined += len(waiting)
        placed = np.zeros(k, dtype=np.int64)
        for column, count in zip(placement.column.tolist(), placement.count.tolist(), strict=True):
            members = elsewhere.problem.members[column]
            placed += count * np.bincount(members[members >= 0], minlength=k)
        assert placed.tolist() == small.problem.demand.tolist()
        if not waiting:
            before = float(every.levels[1].cost @ counts)
            assert placement.value(elsewhere.levels[1]) <= before + 1e-9
    assert joined > 5
