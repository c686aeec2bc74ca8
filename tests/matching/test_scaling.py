"""Costs over many decades: what is called optimal is, and where rounding hides something the bound says so."""

import numpy as np
import pytest

from interfere.matching.blossom import SparseProblem
from interfere.matching.exact import match_pairs
from interfere.matching.records import partition_cost
from interfere.matching.verify import verify
from interfere.records import SolveStatus
from tests.matching.families import any_costs, real


def optimum(cost: np.ndarray) -> float:
    """Without the cells above a thousand, which no best partition of these costs contains."""
    i, j = np.nonzero(np.triu(cost < 1e3, 1))
    return partition_cost(
        SparseProblem.of(i, j, cost[i, j], np.full(len(cost), np.inf)).solve(), cost, np.zeros(len(cost))
    )


@pytest.mark.parametrize("outlier", [1e12, 1e15, 1e18, 1e100])
def test_outliers_of_any_size_change_nothing(outlier: float) -> None:
    cost = real(320, 14) * 0.1
    rng = np.random.default_rng(3)
    i, j = rng.integers(0, 320, (2, 2000))
    i, j = i[i != j], j[i != j]
    cost[i, j] = cost[j, i] = outlier
    found = match_pairs(cost)
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost == pytest.approx(optimum(cost), rel=1e-9)
    assert verify(cost, None, found).problems == ()


def test_solo_costs_of_any_size_change_nothing() -> None:
    cost = any_costs(200, 1)
    solo = np.where(np.arange(200) % 2, 1e18, 0.5)
    found = match_pairs(cost, solo)
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost == pytest.approx(match_pairs(cost, np.where(solo > 1, np.inf, solo)).cost, rel=1e-9)


def test_what_rounding_hides_is_not_called_optimal() -> None:
    """A pair that has to be at 1e12: beside it, costs below 20 are hardly a unit."""
    cost = any_costs(400, 2) * 20
    cost[:2], cost[:, :2] = np.inf, np.inf
    cost[0, 1] = cost[1, 0] = 1e12
    rest = match_pairs(cost[2:, 2:])
    found = match_pairs(cost)
    assert found.status is SolveStatus.BOUNDED
    assert found.lower_bound <= 1e12 + rest.cost
    assert found.gap < 1e-8
    assert verify(cost, None, found).problems == ()
