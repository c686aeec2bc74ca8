"""Estimates and intervals of means: what each kind of error does to them, and that they cover the truth."""

import math

import numpy as np
import pytest

from interfere.commands.quickstart.pairings import (
    USUAL,
    BetweenRuns,
    Direction,
    Evidence,
    Interval,
    Knowledge,
    Slowdown,
    all_pairs,
    difference,
    directions,
    learn_between_runs,
    measured_slowdowns,
    predicted_slowdown,
)
from tests.commands.quickstart.injected import NAMES, PAIRING, row

EVERY = directions(all_pairs(NAMES))
CHOSEN = directions(PAIRING)


def test_the_error_of_a_measurement_comes_from_its_interval() -> None:
    (found,) = measured_slowdowns([row("a", "b", 1.5, log_error=0.03)]).values()
    assert found == (1.5, pytest.approx(0.03))


def test_what_was_not_measured_is_no_estimate() -> None:
    rows = [row("a", "b", 1.5, ok=False), row("a", "a", 2.0), row("b", "a", 1.2)]
    assert list(measured_slowdowns(rows)) == [("b", "a")]


def test_a_measurement_without_an_interval_is_as_exact_as_the_others() -> None:
    rows = [row("a", "b", 1.5, log_error=0.03), row("b", "a", 1.2, log_error=math.nan)]
    assert measured_slowdowns(rows)["b", "a"].log_error == pytest.approx(0.03)
    assert measured_slowdowns(rows[1:])["b", "a"].log_error == USUAL.pair_error


def test_the_error_of_a_prediction_comes_from_its_interval_of_90_percent() -> None:
    assert predicted_slowdown(1.5, 1.5 / 1.2, 1.5 * 1.2).log_error == pytest.approx(math.log(1.2) / 1.645)


def test_a_missing_pair_widens_the_interval_and_predictions_err_together() -> None:
    exact = {pair: Slowdown(1.5, 0.01) for pair in EVERY}
    rough = {pair: Slowdown(1.5, 0.1) for pair in EVERY}

    def width(n_measured: int) -> float:
        first = {pair: exact[pair] for pair in CHOSEN[:n_measured]}
        knowledge = Knowledge(predicted=rough, first=first, again={})
        found = knowledge.interval(knowledge.mean_weights(CHOSEN, Evidence.FIRST))
        assert found.value == pytest.approx(1.5)
        return found.upper - found.lower

    widths = [width(n) for n in range(len(CHOSEN) + 1)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(2 * 2.776 * 1.5 * 0.1)  # all alike: no narrower than that of one prediction


def test_what_two_sides_share_cancels() -> None:
    estimates = {pair: Slowdown(1.5, 0.1) for pair in EVERY}
    knowledge = Knowledge(predicted=estimates, first={}, again={})
    weights = knowledge.mean_weights(CHOSEN, Evidence.FIRST)
    assert knowledge.interval(difference(weights, weights)) == Interval(0.0, 0.0, 0.0)


def test_differences_between_two_runs_are_learned() -> None:
    draw = np.random.default_rng(0)
    noise = draw.normal([[0.0], [0.04]], 0.05, (2, len(EVERY)))
    first, again = (
        {pair: Slowdown(1.5 * math.exp(e), 0.001) for pair, e in zip(EVERY, run, strict=True)} for run in noise
    )
    found = learn_between_runs(first, again)
    assert found.pair_error == pytest.approx(0.05, rel=0.2)
    assert found.shift == pytest.approx(0.022, rel=0.3)
    assert learn_between_runs(first, {}) == USUAL
    assert learn_between_runs(first, first).pair_error < USUAL.pair_error


@pytest.mark.parametrize("spread", [BetweenRuns(0.0, 0.0, 0), BetweenRuns(0.02, 0.01, 0), BetweenRuns(0.05, 0.0, 0)])
@pytest.mark.parametrize("of_jobs", [False, True])
def test_the_interval_of_chosen_minus_random_covers_the_truth(spread: BetweenRuns, of_jobs: bool) -> None:
    """The chosen pairs are those that look best in the first of two noisy runs; the second one compares them.

    `of_jobs`: what differs between two runs is common to all pairs of the job that is slowed down.
    """
    draw, own, covered, runs = np.random.default_rng(1), 0.01, 0, 300
    for _ in range(runs):
        truth = dict(zip(EVERY, 1 + draw.gamma(2.0, 0.25, len(EVERY)), strict=True))

        def measured(wanted: list[Direction], truth: dict[Direction, float] = truth) -> dict[Direction, Slowdown]:
            shift = draw.normal(0, spread.shift)
            of_job = {name: draw.normal(shift, spread.pair_error * of_jobs) for name in NAMES}
            errors = draw.normal(
                [of_job[victim] for victim, _ in wanted], math.hypot(own, spread.pair_error * (not of_jobs))
            )
            return {p: Slowdown(truth[p] * math.exp(e), own) for p, e in zip(wanted, errors, strict=True)}

        first = measured(EVERY)
        by_cost = sorted(all_pairs(NAMES), key=lambda pair: first[pair].value + first[pair[::-1]].value)
        chosen, random_pairs = directions(by_cost[:4]), directions(by_cost[9:13])
        again = measured(chosen + random_pairs)
        knowledge = Knowledge(predicted={}, first=first, again=again, between_runs=learn_between_runs(first, again))
        weights = difference(
            knowledge.mean_weights(chosen, Evidence.AGAIN), knowledge.mean_weights(EVERY, Evidence.FIRST)
        )
        value = np.mean([truth[p] for p in chosen]) - np.mean([truth[p] for p in EVERY])
        found = knowledge.interval(weights)
        covered += found.lower <= value <= found.upper
    assert covered >= 0.93 * runs
