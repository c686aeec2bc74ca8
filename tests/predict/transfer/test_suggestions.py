"""Which pairs are suggested: the laws of the choice, and that it teaches more than chance does."""

import random

import numpy as np
import pytest

from interfere.predict.transfer.pair_belief import OrderedPair, PairBelief, pair_belief, space_of_profiles
from interfere.predict.transfer.process import source_of_model
from interfere.predict.transfer.suggestions import matching_frequency
from interfere.records import JobProfile

NAMES = tuple("abcdefgh")
ALL = [(a, b) for k, a in enumerate(NAMES) for b in NAMES[k:]]
PREDICTED = np.random.default_rng(5).uniform(0.1, 0.8, (8, 8))


def belief(measured: dict[OrderedPair, float] | None = None, predicted: np.ndarray = PREDICTED) -> PairBelief:
    """What a model's log slowdowns and measured slowdowns say of as many jobs, which differ in their step times."""
    names = NAMES[: len(predicted)]
    profiles = [
        JobProfile(workload=name, device_type="cpu-core", step_time_s=0.01 * 3.0**k) for k, name in enumerate(names)
    ]
    return pair_belief(space_of_profiles(profiles, [source_of_model("model", predicted)]), measured or {})


def truth(seed: int) -> dict[OrderedPair, float]:
    """Slowdowns whose added time is the product of what a job suffers and causes."""
    suffered, caused = np.random.default_rng(seed).lognormal(-0.5, 0.5, (2, 8))
    return {(v, n): 1.0 + float(suffered[i] * caused[k]) for i, v in enumerate(NAMES) for k, n in enumerate(NAMES)}


def ways(pairs: list[tuple[str, str]]) -> list[OrderedPair]:
    return [way for pair in pairs for way in dict.fromkeys((pair, pair[::-1]))]


def error(pairs: list[tuple[str, str]], values: dict[OrderedPair, float]) -> float:
    """Of the speeds of all pairs, once these were measured."""
    answers = belief({way: values[way] for way in ways(pairs)}).predict(list(values))
    return float(np.mean([abs(1 / each.slowdown - 1 / values[each.victim, each.neighbour]) for each in answers]))


def test_no_measured_pair_is_suggested_and_none_twice() -> None:
    measured = dict.fromkeys(ways(ALL[:20]), 1.5)
    suggested = [frozenset(each.pair) for each in belief(measured).suggest(100)]
    assert len(suggested) == len(set(suggested)) == len(ALL) - 20
    assert not {frozenset(pair) for pair in ALL[:20]} & set(suggested)
    assert belief(dict.fromkeys(ways(ALL), 1.5)).suggest(3) == ()


def test_the_same_belief_and_seed_suggest_the_same() -> None:
    assert belief().suggest(6) == belief().suggest(6)


def test_each_suggestion_reduces_the_expected_error_and_later_ones_less() -> None:
    suggestions = belief().suggest(12)
    assert all(0 < each.gain < 1 for each in suggestions)
    assert sum(each.gain for each in suggestions) < 1
    assert suggestions[0].gain > suggestions[-1].gain
    assert {name for each in suggestions[:4] for name in each.pair} == set(NAMES), "every job once before any twice"


def test_suggested_pairs_teach_more_than_random_ones() -> None:
    suggested = [each.pair for each in belief().suggest(8)]
    by_chance = [error(random.Random(seed).sample(ALL, 8), truth(seed)) for seed in range(20)]
    assert np.mean([error(suggested, truth(seed)) for seed in range(20)]) < np.mean(by_chance)


def test_a_pair_that_matchings_choose_is_preferred() -> None:
    predicted = np.full((8, 8), 1.2)
    for a, b in ((0, 1), (2, 3), (4, 5), (6, 7)):
        predicted[a, b] = predicted[b, a] = 0.02
    values = {(v, n): float(np.exp(predicted[i, k])) for i, v in enumerate(NAMES) for k, n in enumerate(NAMES)}
    measured = {way: values[way] for way in ways(ALL) if set(way) not in ({"a", "b"}, {"c", "d"}, {"e", "h"})}
    known = belief(measured, predicted)
    frequency = matching_frequency(known.posterior, np.random.default_rng(0))
    assert min(frequency[0, 1], frequency[2, 3]) > 0.9
    assert frequency[4, 7] < 0.1
    np.testing.assert_array_equal(frequency, frequency.T)
    chosen = {each.pair: each.chosen for each in known.suggest(3)}
    assert chosen["a", "b"] > 0.9 > chosen["e", "h"]


@pytest.mark.parametrize("n", [2, 3])
def test_few_jobs(n: int) -> None:
    known = belief(predicted=np.full((n, n), 0.3))
    assert {frozenset(each.pair) for each in known.suggest(50)} == {
        frozenset(pair) for k, a in enumerate(NAMES[:n]) for pair in [(a, b) for b in NAMES[k:n]]
    }


def test_measuring_makes_no_pair_less_certain() -> None:
    before, after = belief(), belief({("a", "b"): 1.9, ("b", "a"): 1.2})
    every = np.arange(8).repeat(8), np.tile(np.arange(8), 8)
    variances = [np.diag(known.posterior.covariance(every, every)) for known in (before, after)]
    assert (variances[1] <= variances[0] + 1e-12).all()
    assert after.expected_errors[0, 1] < 0.5 * before.expected_errors[0, 1]


def test_a_measured_pair_left_out_is_predicted_from_the_others_alone() -> None:
    values = {pair: slowdown for pair, slowdown in truth(1).items() if "h" not in pair}
    score = belief(values).hidden_pair_score()
    assert score.pairs == 28
    assert score.speed_error < 0.05
    wrong = belief(values | {("a", "b"): 20.0, ("b", "a"): 20.0}).hidden_pair_score()
    assert wrong.speed_error > score.speed_error + 0.8 / 28
