"""Laws of `match_pairs`: as cheap as brute force, whatever is forbidden, alone, odd, negative, tied or capped."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.matching.pairs import match_pairs
from interfere.records import SolveStatus


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


@pytest.mark.parametrize("block", range(4))
def test_as_cheap_as_brute_force(block: int) -> None:
    for seed in range(500 * block, 500 * (block + 1)):
        cost, solo, devices = instance(seed)
        best = brute_force(cost, np.full(len(cost), np.inf) if solo is None else solo, devices)
        found = match_pairs(cost, solo, max_devices=devices)
        if np.isinf(best):
            assert found.status is SolveStatus.INFEASIBLE, seed
            continue
        assert found.status is SolveStatus.OPTIMAL, seed
        assert found.cost == pytest.approx(best, abs=1e-9), seed
        assert found.gap == 0.0
        me = np.arange(len(cost))
        assert (found.mate[found.mate] == me).all()
        assert devices is None or len(cost) - int((found.mate > me).sum()) <= devices


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_relabelling_jobs_changes_no_cost(seed: int, random: object) -> None:
    cost, solo, devices = instance(seed)
    order = list(range(len(cost)))
    random.shuffle(order)
    moved = match_pairs(cost[np.ix_(order, order)], None if solo is None else solo[order], max_devices=devices)
    assert moved.cost == pytest.approx(match_pairs(cost, solo, max_devices=devices).cost, abs=1e-9)


@pytest.mark.parametrize(
    ("cost", "solo", "message"),
    [
        (np.zeros((2, 3)), None, "square"),
        (np.array([[0, np.nan], [np.nan, 0]]), None, "NaN"),
        (np.array([[0, 1.0], [2.0, 0]]), None, "symmetric"),
        (np.zeros((2, 2)), np.zeros(3), "solo"),
        (np.zeros((2, 2)), np.array([0, np.nan]), "solo"),
    ],
)
def test_bad_input_names_what_is_wrong(cost: np.ndarray, solo: np.ndarray | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        match_pairs(cost, solo)


def test_a_device_more_never_costs_more() -> None:
    rng = np.random.default_rng(5)
    cost = rng.random((11, 11)) * 3
    cost = cost + cost.T
    costs = [match_pairs(cost, np.zeros(11), max_devices=m).cost for m in range(6, 12)]
    assert all(a >= b for a, b in itertools.pairwise(costs))
    assert costs[-1] == 0.0
