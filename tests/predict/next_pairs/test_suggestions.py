"""Which pairs are suggested: the laws of the choice, and that it teaches more than chance does."""

import random

import numpy as np
import pytest

from interfere.predict.next_pairs.belief import PairBelief, prior_belief
from interfere.predict.next_pairs.suggestions import expected_errors, matching_frequency, suggest_pairs
from interfere.predict.online.prior import default_prior

NAMES = tuple("abcdefgh")
ALL = [(a, b) for k, a in enumerate(NAMES) for b in NAMES[k:]]


def belief() -> PairBelief:
    rng = np.random.default_rng(5)
    return prior_belief(NAMES, rng.uniform(0.1, 0.8, (8, 8)), default_prior())


def after(known: PairBelief, pairs: list[tuple[str, str]], values: np.ndarray) -> PairBelief:
    place = {name: k for k, name in enumerate(NAMES)}
    directions = {way for a, b in pairs for way in ((a, b), (b, a))}
    return known.given({(v, n): float(values[place[v], place[n]]) for v, n in sorted(directions)})


def test_no_measured_pair_is_suggested_and_none_twice() -> None:
    measured = {frozenset(pair) for pair in ALL[:20]}
    suggested = [frozenset(each.pair) for each in suggest_pairs(belief(), measured, 100)]
    assert len(suggested) == len(set(suggested)) == len(ALL) - 20
    assert not measured & set(suggested)


def test_the_same_belief_and_seed_suggest_the_same() -> None:
    assert suggest_pairs(belief(), set(), 6) == suggest_pairs(belief(), set(), 6)


def test_each_suggestion_reduces_the_expected_error_and_later_ones_less() -> None:
    suggestions = suggest_pairs(belief(), set(), 12)
    assert all(each.gain > 0 for each in suggestions)
    assert suggestions[0].gain > suggestions[-1].gain
    first_jobs = {name for each in suggestions[:4] for name in each.pair}
    assert len(first_jobs) >= 6, "the first pairs meet most jobs"


def test_after_the_suggested_pairs_less_is_unknown_than_after_random_ones() -> None:
    known, values = belief(), belief().matrix
    suggested = [each.pair for each in suggest_pairs(known, set(), 8)]
    left = expected_errors(after(known, suggested, values)).mean()
    chance = [expected_errors(after(known, random.Random(seed).sample(ALL, 8), values)).mean() for seed in range(20)]
    assert left < min(chance)


def test_a_pair_that_matchings_choose_is_preferred() -> None:
    mean = np.full((8, 8), 1.2)
    for a, b in ((0, 1), (2, 3), (4, 5), (6, 7)):
        mean[a, b] = mean[b, a] = 0.02
    known = prior_belief(NAMES, mean, default_prior())
    frequency = matching_frequency(known, np.random.default_rng(0))
    assert min(frequency[0, 1], frequency[2, 3], frequency[4, 5], frequency[6, 7]) > 0.9
    np.testing.assert_array_equal(frequency, frequency.T)
    plain = [each.pair for each in suggest_pairs(known, set(), 8)]
    assert {("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")} <= set(plain)


@pytest.mark.parametrize("n", [2, 3])
def test_few_jobs(n: int) -> None:
    known = prior_belief(NAMES[:n], np.full((n, n), 0.3), default_prior())
    assert len(suggest_pairs(known, set(), 50)) == n * (n + 1) // 2
