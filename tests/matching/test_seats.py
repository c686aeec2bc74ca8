"""Laws of `assign_seats`: as cheap as trying every seating."""

import itertools

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.matching.seats import assign_seats


def brute_force(cost: np.ndarray, unseated_cost: np.ndarray) -> float:
    n, seats = cost.shape
    best = np.inf
    for choice in itertools.product(range(-1, seats), repeat=n):
        used = [s for s in choice if s >= 0]
        if len(used) == len(set(used)):
            best = min(best, sum(unseated_cost[i] if s < 0 else cost[i, s] for i, s in enumerate(choice)))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_as_cheap_as_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, seats = rng.integers(1, 5), rng.integers(1, 5)
    cost = rng.random((n, seats)) * 4
    cost[rng.random((n, seats)) < 0.3] = np.inf
    unseated_cost = rng.random(n) * 3
    found = assign_seats(cost, unseated_cost)
    assert found.cost == pytest.approx(brute_force(cost, unseated_cost))
    used = found.seat[found.seat >= 0]
    assert len(used) == len(set(used.tolist()))


def test_without_unseated_costs_as_many_jobs_as_possible_are_seated() -> None:
    cost = np.array([[1.0, 100.0], [1.0, np.inf], [2.0, np.inf]])
    found = assign_seats(cost)
    assert (found.seat >= 0).sum() == 2
    assert found.seat[0] == 1


@pytest.mark.parametrize(
    ("cost", "unseated_cost"), [(np.array([[np.nan]]), None), (np.zeros(3), None), (np.zeros((2, 2)), np.zeros(3))]
)
def test_bad_input_is_refused(cost: np.ndarray, unseated_cost: np.ndarray | None) -> None:
    with pytest.raises(InvalidInputError):
        assign_seats(cost, unseated_cost)
