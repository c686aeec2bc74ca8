"""Where jobs are near each other as points in a plane are, prices of odd sets prove what prices of jobs cannot."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.matching.blossom import SparseProblem
from interfere.matching.exact import match_pairs
from interfere.matching.records import OddSet, partition_cost
from interfere.matching.verify import verify
from interfere.records import SolveStatus
from tests.matching.families import plane


def dense_optimum(cost: np.ndarray, solo: np.ndarray | None, max_devices: int | None) -> float:
    """The cost that the blossom algorithm finds on all pairs."""
    n = len(cost)
    alone = np.full(n, np.inf) if solo is None else solo
    i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
    problem = SparseProblem.of(i, j, cost[i, j], alone)
    mate = problem.solve() if max_devices is None else problem.solve_within(max_devices)
    return partition_cost(mate, cost, alone)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", ["pairs", "solo", "limited"])
def test_near_ties_are_solved_and_proved(kind: str, seed: int) -> None:
    n = 510
    cost = plane(n, seed)
    solo = None if kind == "pairs" else np.random.default_rng(seed).uniform(0.0, 0.04, n)
    max_devices = 320 if kind == "limited" else None
    found = match_pairs(cost, solo, max_devices=max_devices)
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost == pytest.approx(dense_optimum(cost, solo, max_devices), rel=1e-9)
    checked = verify(cost, solo, found, max_devices=max_devices)
    assert checked.problems == ()
    if kind == "pairs":
        assert found.odd_sets
        without = verify(cost, solo, replace(found, odd_sets=()))
        assert without.bound < checked.bound  # it is these that prove it
        assert checked.bound >= found.cost * 0.99


def test_an_odd_set_that_proves_nothing_is_found() -> None:
    cost = plane(510, 0)
    found = match_pairs(cost)
    best = found.odd_sets[0]
    for wrong in (
        OddSet(members=best.members[:-1], price=best.price),
        OddSet(members=np.append(best.members[:-1], best.members[0]), price=best.price),
        OddSet(members=best.members, price=-1.0),
    ):
        problems = verify(cost, None, replace(found, odd_sets=(wrong, *found.odd_sets[1:]))).problems
        assert "proves nothing" in "; ".join(problems)


def test_a_price_too_high_is_charged_to_the_bound() -> None:
    cost = plane(510, 1)
    found = match_pairs(cost)
    raised = tuple(replace(each, price=each.price * 2) for each in found.odd_sets)
    assert verify(cost, None, replace(found, odd_sets=raised)).bound < found.cost
