"""Laws of `match_pairs`: as cheap as brute force, whatever is forbidden, solo, odd, negative, tied or capped."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.matching.blossom import SparseProblem, count_devices
from interfere.matching.exact import match_pairs
from interfere.matching.heuristic import reduce_devices
from interfere.matching.records import partition_cost
from interfere.matching.verify import verify
from interfere.records import SolveStatus
from tests.matching.families import any_costs, real, some_changed


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
        assert found.lower_bound == found.cost
        assert verify(cost, solo, found, max_devices=devices).problems == (), seed
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


# --- large problems ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (real, 301),
        (real, 500),
        pytest.param(any_costs, 501, marks=pytest.mark.journey),
        (real, 900),
        (any_costs, 700),
    ],
)
def test_large_problems_cost_what_the_dense_blossom_algorithm_finds(make: object, n: int) -> None:
    cost = make(n, 3)
    solo = np.full(n, float(np.median(cost[np.isfinite(cost)]))) if n % 2 else None
    found = match_pairs(cost, solo)
    assert found.status is SolveStatus.OPTIMAL
    assert verify(cost, solo, found).problems == ()
    if n <= 500:
        i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
        mate = SparseProblem.of(i, j, cost[i, j], np.full(n, np.inf) if solo is None else solo).solve()
        assert found.cost == pytest.approx(partition_cost(mate, cost, np.zeros(n) if solo is None else solo), rel=1e-9)


@pytest.mark.parametrize("most", [260, 300, 390])
def test_a_limit_of_devices_on_a_large_problem_is_met_and_proved(most: int) -> None:
    cost = real(500, 4)
    solo = np.zeros(500)
    found = match_pairs(cost, solo, max_devices=most)
    assert found.status is SolveStatus.OPTIMAL
    assert count_devices(found.mate) == most
    checked = verify(cost, solo, found, max_devices=most)
    assert checked.problems == ()
    assert checked.bound >= found.cost * (1 - 1e-3)
    tied = match_pairs(np.ones((400, 400)), np.zeros(400), max_devices=301)
    assert (count_devices(tied.mate), tied.cost) == (301, pytest.approx(99.0))


def queue_and_residents(n: int, seats: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n jobs that wait and residents that nobody asks to share with each other, all different; alone costs nothing."""
    cost = real(n + seats, seed) * np.random.default_rng(seed).lognormal(0, 0.3, (n + seats, n + seats))
    cost = np.tril(cost, -1) + np.tril(cost, -1).T
    cost[n:, n:] = np.inf
    return cost, np.zeros(n + seats)


@pytest.mark.parametrize("take", [150, 60])
def test_jobs_that_all_differ_beside_residents_on_few_devices(take: int) -> None:
    cost, solo = queue_and_residents(400, 300, 7)
    found = match_pairs(cost, solo, max_devices=take + 300)
    assert found.status is SolveStatus.OPTIMAL
    assert count_devices(found.mate) == take + 300
    assert verify(cost, solo, found, max_devices=take + 300).problems == ()
    if take > 100:
        i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
        mate = SparseProblem.of(i, j, cost[i, j], solo).solve_within(take + 300)
        assert found.cost == pytest.approx(partition_cost(mate, cost, solo), rel=1e-9)


@pytest.mark.parametrize("limit_s", [0.0001, 0.05, 0.3])
def test_a_short_budget_keeps_the_limit_of_devices(limit_s: float) -> None:
    cost, solo = queue_and_residents(700, 500, 3)
    best = match_pairs(cost, solo, max_devices=700)
    found = match_pairs(cost, solo, max_devices=700, time_limit_s=limit_s)
    assert count_devices(found.mate) <= 700
    assert found.status in (SolveStatus.BOUNDED, SolveStatus.OPTIMAL)
    assert found.lower_bound <= best.cost * (1 + 1e-9) <= found.cost * (1 + 2e-9)
    assert found.gap > 0 or limit_s > 0.001
    assert verify(cost, solo, found, max_devices=700).problems == ()


def test_a_pair_is_split_where_no_two_solo_jobs_may_share() -> None:
    # 0 and 1 share, 2 and 3 are alone and may not share; three pairs' worth of devices are there for two.
    cost = np.full((4, 4), np.inf)
    for i, j, c in ((0, 1, 1.0), (0, 2, 5.0), (1, 3, 4.0), (0, 3, 2.0), (1, 2, 9.0)):
        cost[i, j] = cost[j, i] = c
    assert reduce_devices(cost, np.zeros(4), np.array([1, 0, 2, 3]), 2).tolist() == [2, 3, 0, 1]
    assert reduce_devices(cost, np.zeros(4), np.array([1, 0, 2, 3]), 3).tolist() == [1, 0, 2, 3]


def test_forbidden_pairs_and_jobs_that_may_run_solo_on_a_large_problem() -> None:
    rng = np.random.default_rng(8)
    cost = real(450, 5)
    away = rng.random((450, 450)) < 0.75
    cost[away | away.T] = np.inf
    solo = np.where(rng.random(450) < 0.5, np.inf, rng.random(450) * 20)
    found = match_pairs(cost, solo)
    assert found.status is SolveStatus.OPTIMAL
    assert verify(cost, solo, found).problems == ()
    cost[7], cost[:, 7], solo[7] = np.inf, np.inf, np.inf
    assert match_pairs(cost, solo).status is SolveStatus.INFEASIBLE
    odd = match_pairs(real(451, 1))
    assert odd.status is SolveStatus.INFEASIBLE


def test_a_warm_start_finds_the_same_cost() -> None:
    before = real(600, 6)
    warm = match_pairs(before)
    after = some_changed(before, real(600, 107), 7)
    cold, again = match_pairs(after), match_pairs(after, warm_start=warm)
    assert again.status is SolveStatus.OPTIMAL
    assert again.cost == pytest.approx(cold.cost, rel=1e-12)
    assert verify(after, None, again).problems == ()


def test_switching_partners_must_pay_for_itself() -> None:
    before = real(400, 9)
    current = match_pairs(before).mate
    after = some_changed(before, real(400, 110), 10)
    moved = [
        int((match_pairs(after, current=current, switching_cost=c).mate != current).sum()) for c in (0.0, 0.5, 1e3)
    ]
    assert moved[0] > moved[1] > moved[2] == 0
    paid = match_pairs(after, current=current, switching_cost=0.5)
    assert paid.cost == pytest.approx(partition_cost(paid.mate, after, np.zeros(400)) + 0.5 * moved[1], rel=1e-9)


@pytest.mark.parametrize("limit_s", [0.0001, 0.02, 0.2])
def test_a_short_budget_still_gives_a_matching_and_a_bound_that_holds(limit_s: float) -> None:
    cost = real(900, 2)
    best = match_pairs(cost)
    found = match_pairs(cost, time_limit_s=limit_s)
    assert found.status in (SolveStatus.BOUNDED, SolveStatus.OPTIMAL)
    assert found.lower_bound <= best.cost * (1 + 1e-9)
    assert found.cost >= best.cost * (1 - 1e-9)
    assert found.gap < 0.6
    assert verify(cost, None, found).problems == ()
    if limit_s < 0.001:
        assert found.status is SolveStatus.BOUNDED
        assert found.gap > 0


def test_an_accepted_gap_ends_the_search_and_is_kept() -> None:
    cost = real(500, 12)
    found = match_pairs(cost, gap=0.05)
    assert found.gap <= 0.05
    assert found.cost <= match_pairs(cost).cost * 1.05


def test_equal_input_gives_equal_output() -> None:
    cost = real(400, 13)
    first, second = match_pairs(cost), match_pairs(cost.copy())
    assert (first.mate == second.mate).all()
    assert (first.y == second.y).all()


def test_outliers_do_not_spoil_the_proof() -> None:
    cost = real(320, 14)
    cost[3, 4] = cost[4, 3] = 1e9
    found = match_pairs(cost)
    assert found.status is SolveStatus.OPTIMAL
    assert verify(cost, None, found).problems == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": -1.0}, "gap"),
        ({"switching_cost": float("nan")}, "switching"),
        ({"time_limit_s": 0.0}, "time_limit_s"),
        ({"current": np.array([1, 2, 0, 3])}, "partition"),
        ({"current": np.array([0.5] * 4)}, "current"),
        ({"warm_start": match_pairs(np.ones((2, 2)))}, "another size"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        match_pairs(np.ones((4, 4)), **options)
