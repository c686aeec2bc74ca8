"""Certificates of the master problem hold when an independent check computes them again, and wrong ones do not."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.matching.master.first_columns import all_waiting
from interfere.matching.master.lexicographic import Solution, solve_levels
from interfere.matching.master.problem import Block, BlockCosts, Level, PlacementProblem
from interfere.matching.verify_levels import LevelsVerification, verify_levels
from interfere.time_budget import UNLIMITED, TimeBudget


def drawn(seed: int, jobs: int = 12) -> tuple[PlacementProblem, list[Level]]:
    """Jobs of one and of two devices on two device classes; waiting weights of two priorities, then costs."""
    rng = np.random.default_rng(seed)
    blocks, costs, waiting = [], [], []
    for size in (1, 2):
        k, r, t = int(rng.integers(2, jobs)), int(rng.integers(0, 4)), 2
        demand, seats = rng.integers(1, 4, k), rng.integers(1, 3, r)
        pair = rng.random((t, k, k)) < 0.7
        pair |= pair.transpose(0, 2, 1)
        pair[:, np.arange(k), np.arange(k)] &= demand >= 2
        block = Block(
            size=size,
            demand=demand.astype(np.int64),
            seats=seats.astype(np.int64),
            wait_allowed=np.ones(k, dtype=bool),
            solo_allowed=rng.random((t, k)) < 0.8,
            pair_allowed=pair,
            seat_allowed=rng.random((k, r)) < 0.6,
        )
        own = rng.gamma(1.0, 1.0, (t, k, k))
        blocks.append(block)
        costs.append(
            BlockCosts(
                wait=np.zeros(k),
                solo=rng.random((t, k)),
                pair=own + own.transpose(0, 2, 1),
                seat=rng.gamma(1.0, 1.0, (k, r)),
            )
        )
        weight, urgent = rng.choice([1.0, 2.5, 4.0], k), rng.random(k) < 0.3
        waiting.append([np.where(urgent, weight, 0.0), np.where(urgent, 0.0, weight)])
    problem = PlacementProblem(
        blocks=tuple(blocks), capacity=rng.integers(0, 6, 2).astype(np.int64), max_devices=int(rng.integers(2, 10))
    )
    levels = [
        Level(
            costs=tuple(BlockCosts.of_waiting(b, w[p]) for b, w in zip(blocks, waiting, strict=True)),
            floor=0.0,
            is_waiting=True,
        )
        for p in (0, 1)
    ]
    return problem, [*levels, Level(costs=tuple(costs), floor=0.0)]


def solved(problem: PlacementProblem, levels: list[Level], budget: TimeBudget = UNLIMITED) -> Solution:
    return solve_levels(problem, levels, all_waiting(problem), budget=budget)


def checked(problem: PlacementProblem, levels: list[Level], solution: Solution) -> LevelsVerification:
    return verify_levels(problem, levels, solution.placement, solution.certificates)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_claimed_is_found_again(seed: int) -> None:
    problem, levels = drawn(seed)
    solution = solved(problem, levels)
    found = checked(problem, levels, solution)
    assert found.problems == ()
    for result, value, bound in zip(solution.results, found.values, found.bounds, strict=True):
        assert result.value == pytest.approx(value)
        assert bound <= result.lower_bound + 1e-9 * abs(value) + 1e-12  # an integer program may prove more


@pytest.mark.parametrize("seed", range(20))
def test_out_of_time_the_placement_is_still_allowed_and_the_bounds_hold(seed: int) -> None:
    problem, levels = drawn(seed, jobs=20)
    hurried, whole = solved(problem, levels, TimeBudget(1e-4)), solved(problem, levels)
    assert checked(problem, levels, hurried).problems == ()
    assert hurried.results[0].lower_bound <= whole.results[0].value * (1 + 1e-7) + 1e-12


class ReadsLeft(TimeBudget):
    """A budget that expires when it was read so many times."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    @property
    def expired(self) -> bool:
        self.left -= 1
        return self.left < 0

    @property
    def remaining_s(self) -> float:
        return 60.0 if self.left > 0 else 0.0

    def share(self, part: float) -> TimeBudget:
        return self


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_search_is_stopped_what_it_claims_is_proved(seed: int) -> None:
    problem, levels = drawn(seed, jobs=12)
    best = solved(problem, levels)
    for reads in range(1, 40, 2):
        stopped = solved(problem, levels, ReadsLeft(reads))
        assert checked(problem, levels, stopped).problems == ()
        for found, whole in zip(stopped.results, best.results, strict=True):
            assert found.lower_bound <= whole.value * (1 + 1e-7) + 1e-9
            if found.value > whole.value * (1 + 1e-7) + 1e-9:
                break  # the levels below are about other placements


def test_many_optima_are_proved_by_prices_alone() -> None:
    proved = 0
    for seed in range(60):
        problem, levels = drawn(seed)
        found = checked(problem, levels, solved(problem, levels))
        proved += all(v - b <= 1e-7 * abs(v) for v, b in zip(found.values, found.bounds, strict=True))
    print(f"{proved} of 60 by prices alone, the others by an integer program")
    assert proved >= 10


def test_wrong_claims_are_found() -> None:
    problem, levels = drawn(3)
    solution = solved(problem, levels)
    last = solution.certificates[-1]
    assert last.prices is not None
    too_high = replace(last, linear_bound=last.linear_bound + 1.0)
    cheaper = replace(last, value=last.value - 1.0)
    twice = replace(solution.placement, count=solution.placement.count * 2)
    for wrong in (too_high, cheaper):
        certificates = (*solution.certificates[:-1], wrong)
        assert verify_levels(problem, levels, solution.placement, certificates).problems
    assert any("exactly once" in text for text in verify_levels(problem, levels, twice, solution.certificates).problems)
    raised = replace(last.prices, jobs=tuple(y + 100.0 * (np.arange(len(y)) == 0) for y in last.prices.jobs))
    lowered = verify_levels(
        problem, levels, solution.placement, (*solution.certificates[:-1], replace(last, prices=raised))
    )
    assert lowered.bounds[-1] < last.linear_bound  # prices that are too high are charged for it
    assert lowered.problems
