"""Laws of re-pairing: the best arrangement is that of an enumeration, and no greedy one is better."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.matching.problem import WAITS
from interfere.matching.rematching import ELSEWHERE, Arrangement, RematchingProblem, rematch, value_of
from tests.bench.greedy_rematching import rematch_greedily

seeds = given(st.integers(0, 1_000_000))


def drawn(seed: int, jobs: int, devices: int) -> RematchingProblem:
    """Some jobs run, some wait; of some groups, moves and stops nothing is allowed."""
    rng = np.random.default_rng(seed)
    home = np.full(jobs, WAITS)
    places = rng.permutation(np.repeat(np.arange(devices), 2))
    running = min(int(rng.integers(0, jobs + 1)), 2 * devices)
    home[:running] = places[:running]
    weight = rng.choice([0.5, 1.0, 2.0], jobs)
    speed = weight[:, None] / (1 + rng.gamma(1.0, 0.5, (jobs, jobs)))
    pair = np.where(rng.random((jobs, jobs)) < 0.2, -np.inf, speed)
    pair = pair + pair.T
    together = (home[:, None] == home) & (home >= 0)
    return RematchingProblem(
        home=home,
        alone=weight,
        pair=np.where(together, speed + speed.T, pair),
        move=np.where(rng.random(jobs) < 0.3, np.inf, rng.choice([0.0, 0.05, 0.4]))[:, None]
        * (1.0 + rng.random((jobs, jobs))),
        devices=devices,
    )


def best_by_enumeration(problem: RematchingProblem) -> float:
    """The value of the best of all ways to put each job on a device, or on none."""
    best = -np.inf
    for device_of in product(range(-1, problem.devices), repeat=problem.n):
        groups = [[i for i, device in enumerate(device_of) if device == d] for d in range(problem.devices)]
        if any(len(group) > 2 for group in groups):
            continue
        if any(device < 0 <= problem.home[i] for i, device in enumerate(device_of)):
            continue  # who runs goes on
        value = 0.0
        for d, group in enumerate(groups):
            if group:
                value += problem.alone[group[0]] if len(group) == 1 else problem.pair[group[0], group[1]]
            for i in group:
                if problem.home[i] not in (d, WAITS):
                    value -= problem.move[i, next((j for j in group if j != i), i)]
        best = max(best, value)
    return best


@seeds
@settings(max_examples=150, deadline=None)
def test_the_best_arrangement_is_that_of_an_enumeration(seed: int) -> None:
    problem = drawn(seed, jobs=1 + seed % 5, devices=1 + seed % 3)
    found = rematch(problem)
    assert found.value == pytest.approx(best_by_enumeration(problem), abs=1e-6)
    assert found.value == pytest.approx(value_of(problem, found.arrangement), abs=1e-9)
    assert found.value <= found.upper_bound <= found.value + 1e-6


@seeds
@settings(max_examples=150, deadline=None)
def test_greedy_changes_are_allowed_and_gain_but_never_more_than_the_best(seed: int) -> None:
    problem = drawn(seed, jobs=12, devices=5)
    greedy, best = rematch_greedily(problem), rematch(problem)
    for found in (greedy, best):
        assert_is_allowed(problem, found.arrangement)
        assert value_of(problem, found.arrangement) == pytest.approx(found.value, abs=1e-9)
        assert found.value >= value_of(problem, problem.current()) - 1e-9
    assert greedy.value <= best.value + 1e-9


def assert_is_allowed(problem: RematchingProblem, arrangement: Arrangement) -> None:
    """At most two on a device, no job twice, none moved that must not be, none stopped, not too many devices."""
    mate, place = arrangement.mate, arrangement.place
    groups = list(arrangement.groups())
    assert len(groups) <= problem.devices
    homes = [d for _, _, d in groups if d != ELSEWHERE]
    assert len(set(homes)) == len(homes)
    assert all(d in (ELSEWHERE, problem.home[i], problem.home[j]) for i, j, d in groups)
    for i in range(problem.n):
        if mate[i] == WAITS:
            assert not problem.runs[i]
            continue
        assert mate[mate[i]] == i
        assert place[i] == place[mate[i]]
        if problem.runs[i] and place[i] != problem.home[i]:
            assert np.isfinite(problem.move[i, mate[i]])


@pytest.mark.parametrize("solve", [rematch, rematch_greedily])
def test_nobody_moves_where_a_move_costs_more_than_the_best_company_gains(solve) -> None:  # type: ignore[no-untyped-def]
    """Two pairs that slow each other down to half: a change of partners gains 2 · (0.9 - 0.5) for each pair."""
    speed = np.full((4, 4), 0.5)
    for i, j in ((0, 2), (1, 3)):
        speed[i, j] = speed[j, i] = 0.9
    pair, home = speed + speed.T, np.array([0, 0, 1, 1])

    def problem(cost: float) -> RematchingProblem:
        return RematchingProblem(home=home, alone=np.ones(4), pair=pair, move=np.full((4, 4), cost), devices=2)

    stays, moves = solve(problem(0.81)), solve(problem(0.79))
    assert stays.arrangement.place.tolist() == home.tolist()
    assert moves.value == pytest.approx(4 * 0.9 - 2 * 0.79)
    assert sorted(np.flatnonzero(moves.arrangement.place != home).tolist()) in ([0, 3], [1, 2])


def test_one_assignment_moves_two_jobs_together_where_neither_move_alone_gains() -> None:
    """Three devices in a ring: each job goes one further, which no single join, leave or swap begins with a gain."""
    home = np.array([0, 0, 1, 1, 2, 2])
    speed = np.full((6, 6), 0.1)
    for i, j in ((0, 1), (2, 3), (4, 5)):
        speed[i, j] = speed[j, i] = 0.6
    for i, j in ((1, 2), (3, 4), (5, 0)):
        speed[i, j] = speed[j, i] = 1.0
    problem = RematchingProblem(
        home=home,
        alone=np.ones(6),
        pair=speed + speed.T,
        move=np.full((6, 6), 0.1),
        devices=3,
    )
    best, greedy = rematch(problem), rematch_greedily(problem)
    assert best.value == pytest.approx(6 * 1.0 - 3 * 0.1)
    assert greedy.value == pytest.approx(6 * 0.6)


def test_a_job_alone_joins_another_so_that_one_that_waits_gets_its_device() -> None:
    home = np.array([0, 1, WAITS])
    speed = np.full((3, 3), 0.45)
    speed[0, 1] = speed[1, 0] = 0.9
    problem = RematchingProblem(home=home, alone=np.ones(3), pair=speed + speed.T, move=np.full((3, 3), 0.1), devices=2)
    for found in (rematch(problem), rematch_greedily(problem)):
        assert found.arrangement.mate.tolist() == [1, 0, 2]
        assert found.value == pytest.approx(2 * 0.9 + 1.0 - 0.1)


def test_without_devices_or_jobs_nothing_is_arranged() -> None:
    nobody = np.zeros((0, 0))
    empty = RematchingProblem(home=np.zeros(0, dtype=np.int64), alone=np.zeros(0), pair=nobody, move=nobody, devices=0)
    assert rematch(empty).value == rematch_greedily(empty).value == 0.0
    assert rematch(empty).upper_bound == 0.0
