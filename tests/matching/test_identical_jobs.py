"""Laws of matching by job classes: it costs what the search job by job and brute force cost, and its proof holds."""

import time

import numpy as np
import pytest

from interfere.matching.blossom import SparseProblem, count_devices
from interfere.matching.exact import match_pairs
from interfere.matching.identical_jobs import job_classes, match_job_classes
from interfere.matching.records import Matching, partition_cost
from interfere.matching.verify import verify
from interfere.records import SolveStatus
from interfere.time_budget import UNLIMITED
from tests.matching.families import any_costs, few_classes, real
from tests.matching.test_exact import brute_force

LEVELS = 64.0  # costs in whole multiples of 1 / LEVELS: sums are exact


def instance(seed: int, n: int, kinds: int) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Costs of few job classes: forbidden pairs of classes, solo costs by class, odd numbers, a limit of devices."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, kinds, n)
    table = rng.integers(-20, 100, (kinds, kinds)) / LEVELS
    table[rng.random((kinds, kinds)) < rng.choice([0.0, 0.2, 0.5])] = np.inf
    cost = np.maximum(table, table.T)[np.ix_(kind, kind)]
    solo = rng.integers(0, 60, kinds) / LEVELS
    solo[rng.random(kinds) < rng.choice([0.0, 0.3, 1.0])] = np.inf
    return cost, solo[kind], None if rng.random() < 0.3 else int(rng.integers(n // 2, n + 1))


def by_classes(cost: np.ndarray, solo: np.ndarray, most: int | None) -> Matching:
    """`match_job_classes` as `match_pairs` calls it; every job is its own class where `job_classes` finds too many."""
    matrix = cost.copy()
    np.fill_diagonal(matrix, 2 * solo)
    kind = job_classes(matrix, solo)
    max_solo = None if most is None else 2 * most - len(cost)
    found = match_job_classes(
        matrix, solo, np.arange(len(cost)) if kind is None else kind, max_solo=max_solo, budget=UNLIMITED
    )
    assert found is not None
    return found


@pytest.mark.parametrize("block", range(4))
def test_both_ways_are_as_cheap_as_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        cost, solo, most = instance(seed, 6 + seed % 3, 1 + seed % 3)
        if most is not None and 2 * most < len(cost):
            continue
        best = brute_force(cost, solo, most)
        for found in (by_classes(cost, solo, most), match_pairs(cost, solo, max_devices=most)):
            if np.isinf(best):
                assert found.status is SolveStatus.INFEASIBLE, seed
                continue
            assert found.status is SolveStatus.OPTIMAL, seed
            assert found.cost == pytest.approx(best, abs=1e-9), seed
            assert found.lower_bound == found.cost, seed
            assert verify(cost, solo, found, max_devices=most).problems == (), seed


@pytest.mark.parametrize("seed", range(12))
def test_a_limit_of_devices_among_tied_jobs_is_used_to_the_last_device(seed: int) -> None:
    """At the price of a device where many numbers of devices tie, the search job by job must find the right one."""
    n = 60
    cost, solo = few_classes(n, 4, seed), np.zeros(n)
    most = 35 + 2 * seed
    one_by_one, counted = match_pairs(cost, solo, max_devices=most), by_classes(cost, solo, most)
    assert one_by_one.cost == pytest.approx(counted.cost, rel=1e-9)
    assert count_devices(one_by_one.mate) == most
    assert verify(cost, solo, one_by_one, max_devices=most).problems == ()
    assert verify(cost, solo, counted, max_devices=most).problems == ()


@pytest.mark.parametrize("most", [None, 150, 200])
def test_many_jobs_of_few_classes_cost_what_the_dense_blossom_algorithm_finds(most: int | None) -> None:
    n = 240
    cost, solo = few_classes(n, 20, 5), np.full(n, 0.3)
    found = match_pairs(cost, solo, max_devices=most)
    assert found.status is SolveStatus.OPTIMAL
    assert verify(cost, solo, found, max_devices=most).problems == ()
    i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
    dense = SparseProblem.of(i, j, cost[i, j], solo)
    mate = dense.solve() if most is None else dense.solve_within(most)
    assert found.cost == pytest.approx(partition_cost(mate, cost, solo), rel=1e-9)


def test_a_class_holds_exactly_the_jobs_that_are_interchangeable() -> None:
    rng = np.random.default_rng(3)
    kind = rng.integers(0, 5, 40)
    table = rng.random((5, 5))
    matrix = (table + table.T)[np.ix_(kind, kind)]
    np.fill_diagonal(matrix, np.inf)
    found = job_classes(matrix, np.full(40, np.inf))
    assert (np.equal.outer(found, found) == np.equal.outer(kind, kind)).all()
    matrix[7, 9] = matrix[9, 7] = 0.123  # 7 and 9 now differ from all others
    changed = job_classes(matrix, np.full(40, np.inf))
    assert np.bincount(changed)[changed[[7, 9]]].tolist() == [1, 1]
    assert job_classes(any_costs(40, 1), np.full(40, np.inf)) is None
    assert job_classes(real(200, 1), np.full(200, np.inf)) is None


def test_jobs_of_few_classes_end_in_time_and_with_a_bound_that_holds() -> None:
    cost = few_classes(1000, 90, 2)
    best = match_pairs(cost)
    assert best.status is SolveStatus.OPTIMAL
    for limit_s in (0.02, 0.06, 0.12):
        began = time.process_time()
        found = match_pairs(cost, time_limit_s=limit_s)
        took_s = time.process_time() - began
        assert took_s < 1.0, limit_s
        assert found.lower_bound <= best.cost * (1 + 1e-9)
        assert found.cost >= best.cost * (1 - 1e-9)


def test_two_odd_classes_that_may_not_share_are_infeasible() -> None:
    cost = few_classes(201, 1, 0)
    both = np.full((402, 402), np.inf)
    both[:201, :201] = both[201:, 201:] = cost
    assert match_pairs(both).status is SolveStatus.INFEASIBLE
    alone = match_pairs(both, np.full(402, 5.0))
    assert int((alone.mate == np.arange(402)).sum()) == 2
    assert match_pairs(np.full((120, 120), np.inf)).status is SolveStatus.INFEASIBLE
    assert match_pairs(np.zeros((120, 120)), np.zeros(120), max_devices=59).status is SolveStatus.INFEASIBLE
