"""Laws of `match_pairs`: as cheap as brute force, whatever is forbidden, solo, odd, negative, tied or capped."""

import itertools
from collections.abc import Callable, Iterator

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.matching.pairs import Matching, match_pairs
from interfere.records import SolveStatus
from tests.matching.families import any_costs, few_classes, plane, real


def partitions(jobs: list[int]) -> Iterator[list[tuple[int, ...]]]:
    """All partitions of `jobs` into pairs and singles."""
    if not jobs:
        yield []
        return
    first, rest = jobs[0], jobs[1:]
    for tail in partitions(rest):
        yield [(first,), *tail]
    for k, other in enumerate(rest):
        for tail in partitions(rest[:k] + rest[k + 1 :]):
            yield [(first, other), *tail]


def brute_force(cost: np.ndarray, solo: np.ndarray, devices: int | None) -> float:
    best = np.inf
    for groups in partitions(list(range(len(cost)))):
        if devices is None or len(groups) <= devices:
            best = min(best, sum(solo[g[0]] if len(g) == 1 else cost[g] for g in groups))
    return best


def instance(seed: int) -> tuple[np.ndarray, np.ndarray | None, int | None]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 8))
    levels = int(rng.integers(2, 6)) if rng.random() < 0.4 else 10**6  # few levels: ties
    cost = rng.integers(-levels // 4, levels, (n, n)) / levels * 10.0
    cost = np.triu(cost, 1) + np.triu(cost, 1).T
    forbidden = np.triu(rng.random((n, n)) < rng.choice([0.0, 0.3, 0.7]), 1)
    cost[forbidden | forbidden.T] = np.inf
    solo = None if rng.random() < 0.3 else rng.integers(0, levels, n) / levels * 5.0
    if solo is not None and n:
        solo[rng.random(n) < 0.2] = np.inf
    return cost, solo, None if rng.random() < 0.4 else int(rng.integers(0, n + 1))


def partition_cost(found: Matching, cost: np.ndarray, solo: np.ndarray | None) -> float:
    """What a matching costs, added up again; every job has one partner, which has it as partner."""
    jobs = np.arange(len(cost))
    assert (found.mate[found.mate] == jobs).all()
    alone = 0.0 if solo is None else float(solo[found.mate == jobs].sum())
    assert solo is not None or not (found.mate == jobs).any()
    first = found.mate > jobs
    return float(cost[jobs[first], found.mate[first]].sum()) + alone


def devices_used(found: Matching) -> int:
    return len(found.mate) - int((found.mate > np.arange(len(found.mate))).sum())


def blossom_cost(cost: np.ndarray) -> float:
    """The cost of the cheapest perfect matching, by the blossom algorithm of another library."""
    graph = networkx.Graph()
    i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
    graph.add_weighted_edges_from(zip(i.tolist(), j.tolist(), cost[i, j].tolist(), strict=True))
    return sum(cost[pair] for pair in networkx.min_weight_matching(graph))


@pytest.mark.parametrize("block", range(4))
def test_as_cheap_as_brute_force(block: int) -> None:
    for seed in range(200 * block, 200 * (block + 1)):
        cost, solo, devices = instance(seed)
        best = brute_force(cost, np.full(len(cost), np.inf) if solo is None else solo, devices)
        found = match_pairs(cost, solo, max_devices=devices)
        if np.isinf(best):
            assert found.status is SolveStatus.INFEASIBLE, seed
            continue
        assert found.status is SolveStatus.OPTIMAL, seed
        assert found.cost == pytest.approx(best, abs=1e-9), seed
        assert partition_cost(found, cost, solo) == pytest.approx(best, abs=1e-9), seed
        assert (found.gap, found.lower_bound) == (0.0, found.cost)
        assert devices is None or devices_used(found) <= devices


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_relabelling_jobs_changes_no_cost(seed: int, random: object) -> None:
    cost, solo, devices = instance(seed)
    order = list(range(len(cost)))
    random.shuffle(order)
    moved = match_pairs(cost[np.ix_(order, order)], None if solo is None else solo[order], max_devices=devices)
    assert moved.cost == pytest.approx(match_pairs(cost, solo, max_devices=devices).cost, abs=1e-9)


@pytest.mark.parametrize(
    ("cost", "solo", "devices", "message"),
    [
        (np.zeros((2, 3)), None, None, "square"),
        (np.array([[0, np.nan], [np.nan, 0]]), None, None, "NaN"),
        (np.array([[0, 1.0], [2.0, 0]]), None, None, "symmetric"),
        (np.array([[0, 1.0], [np.inf, 0]]), None, None, "symmetric"),
        (np.zeros((2, 2)), np.zeros(3), None, "solo"),
        (np.zeros((2, 2)), np.array([0, np.nan]), None, "solo"),
        (np.zeros((2, 2)), None, -1, "max_devices"),
    ],
)
def test_bad_input_names_what_is_wrong(
    cost: np.ndarray, solo: np.ndarray | None, devices: int | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        match_pairs(cost, solo, max_devices=devices)


def test_a_device_more_never_costs_more() -> None:
    cost = np.random.default_rng(5).random((11, 11)) * 3
    cost = cost + cost.T
    costs = [match_pairs(cost, np.zeros(11), max_devices=m).cost for m in range(6, 12)]
    assert all(a >= b for a, b in itertools.pairwise(costs))
    assert costs[-1] == 0.0


@pytest.mark.parametrize("make", [real, any_costs, plane, lambda n, seed: few_classes(n, 12, seed)])
def test_many_jobs_cost_what_the_blossom_algorithm_finds(make: Callable[[int, int], np.ndarray]) -> None:
    cost = make(90, 3)
    found = match_pairs(cost)
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost == pytest.approx(blossom_cost(cost), rel=1e-9)
    assert partition_cost(found, cost, None) == pytest.approx(found.cost)


@pytest.mark.parametrize("most", [105, 130, 180])
def test_a_limit_of_devices_is_met_and_proved(most: int) -> None:
    cost, solo = real(200, 4), np.zeros(200)
    found = match_pairs(cost, solo, max_devices=most)
    assert (found.status, devices_used(found)) == (SolveStatus.OPTIMAL, most)
    tied = match_pairs(np.ones((120, 120)), np.zeros(120), max_devices=91)
    assert (devices_used(tied), tied.cost) == (91, pytest.approx(29.0))


def test_forbidden_pairs_and_jobs_that_may_run_solo() -> None:
    rng = np.random.default_rng(8)
    cost = real(150, 5)
    away = rng.random((150, 150)) < 0.75
    cost[away | away.T] = np.inf
    solo = np.where(rng.random(150) < 0.5, np.inf, rng.random(150) * 20)
    assert match_pairs(cost, solo).status is SolveStatus.OPTIMAL
    cost[7], cost[:, 7], solo[7] = np.inf, np.inf, np.inf
    assert match_pairs(cost, solo).status is SolveStatus.INFEASIBLE
    assert match_pairs(real(151, 1)).status is SolveStatus.INFEASIBLE
    assert match_pairs(np.zeros((120, 120)), np.zeros(120), max_devices=59).status is SolveStatus.INFEASIBLE


def test_two_odd_classes_that_may_not_share_are_infeasible() -> None:
    both = np.full((82, 82), np.inf)
    both[:41, :41] = both[41:, 41:] = few_classes(41, 1, 0)
    assert match_pairs(both).status is SolveStatus.INFEASIBLE
    alone = match_pairs(both, np.full(82, 5.0))
    assert int((alone.mate == np.arange(82)).sum()) == 2


@pytest.mark.parametrize("outlier", [1e6, 1e9, 1e12])
def test_outliers_change_nothing(outlier: float) -> None:
    cost = real(100, 14) * 0.1
    i, j = np.random.default_rng(3).integers(0, 100, (2, 300))
    i, j = i[i != j], j[i != j]
    without = cost.copy()
    without[i, j] = without[j, i] = np.inf
    cost[i, j] = cost[j, i] = outlier
    found = match_pairs(cost)
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost == pytest.approx(match_pairs(without).cost, rel=1e-9)


@pytest.mark.parametrize("limit_s", [0.001, 0.05, 0.2])
def test_a_short_budget_still_gives_a_bound_that_holds(limit_s: float) -> None:
    cost, solo = real(300, 2), np.full(300, 50.0)
    best = match_pairs(cost, solo)
    found = match_pairs(cost, solo, time_limit_s=limit_s)
    assert found.lower_bound <= best.cost * (1 + 1e-9)
    assert found.cost >= best.cost * (1 - 1e-9)
    assert np.isfinite(found.cost)
    assert found.status is not SolveStatus.INFEASIBLE


def test_equal_input_gives_equal_output() -> None:
    cost = real(150, 13)
    assert (match_pairs(cost).mate == match_pairs(cost.copy()).mate).all()
