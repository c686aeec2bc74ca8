"""The example's onboarding on its recorded table: the 24 pairs that twelve measured ones leave are known well."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.transfer.pair_belief import site_belief
from interfere.training.onboarding import (
    budget_text,
    measure_site,
    pairs_in_budget,
    read_batches,
    with_time_for_pairs,
)
from tests.training.onboarding.recorded import SHIPPED_MODEL, recorded_table, replay_of, replayed_config

PAIRS, MAX_ERROR, MAX_RATIO = 12, 0.06, 1.3


def test_twelve_chosen_pairs_tell_the_others_nearly_as_well_as_all_would(tmp_path: Path) -> None:
    table, notes = recorded_table(), list[str]()
    measured = measure_site(replayed_config(tmp_path, PAIRS), lambda _: None, notes.append, replay_of(table))
    assert measured.measured_pairs == PAIRS == len(read_batches(tmp_path).pairs)
    truth = {(row.victim, row.neighbour): row.slowdown for row in table.ok_pairs}
    others = [pair for pair in truth if frozenset(pair) not in measured.known.tried]
    assert len({frozenset(pair) for pair in others}) == 36 - PAIRS
    answers = measured.known.predict(others)
    errors = [abs(1 / each.slowdown - 1 / truth[each.victim, each.neighbour]) for each in answers]
    inside = [each.lower <= truth[each.victim, each.neighbour] <= each.upper for each in answers]
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    complete = site_belief(table, model, device_type="cpu-core", mode="timeslice").hidden_pair_score()
    assert complete.pairs == 36
    assert np.mean(errors) <= min(MAX_ERROR, MAX_RATIO * complete.speed_error)
    assert np.mean(inside) >= 0.85
    assert measured.assessments[-1].expected_error < 0.5 * measured.assessments[0].expected_error


def test_a_short_budget_keeps_half_for_pairs_and_says_how_long_is_needed(tmp_path: Path) -> None:
    """Eight commands alone take 2 x 7 s each, and a pair 2 x 19 s, by what is expected before they are known."""
    whole = replayed_config(tmp_path, 3)
    cases = {math.inf: (2, "38 s for a pair"), 300.0: (2, "the budget: 5.0 min"), 200.0: (1, "the budget: 3.3 min")}
    for budget_s, (repeats, end) in cases.items():
        config = with_time_for_pairs(replace(whole, budget_s=budget_s))
        assert config.campaign.repeats == repeats
        assert budget_text(config, 0.0).endswith(end)
    short = with_time_for_pairs(replace(whole, budget_s=60.0))
    assert short.campaign.repeats == 1
    assert budget_text(short, 0.0).endswith("the budget of 60 s may end before the first pair; --budget 3m")
    assert "90 s of the budget are spent" in budget_text(short, 90.0)


def test_the_last_batch_is_as_large_as_the_budget_allows_by_what_the_others_took(tmp_path: Path) -> None:
    config = with_time_for_pairs(replace(replayed_config(tmp_path, 36), budget_s=400.0))
    batches = read_batches(tmp_path)
    batches.spent_s = 112.0  # the commands alone, as expected
    assert pairs_in_budget(config, batches) == pytest.approx((400 - 112) / 38)
    batches.spent_s = 224.0  # twice as long
    assert pairs_in_budget(config, batches) == pytest.approx((400 - 224) / 76)
    batches.spent_s = 390.0
    assert 0 < pairs_in_budget(config, batches) < 1
    table, notes = recorded_table(), list[str]()
    short = replace(replayed_config(tmp_path, 36), budget_s=60.0)
    measured = measure_site(short, lambda _: None, notes.append, replay_of(table))
    assert len(read_batches(tmp_path).batches[0]) == 1, "one pair fits into a minute, not three"
    assert measured.measured_pairs >= 1


def test_an_onboarding_that_goes_on_chooses_the_same_pairs(tmp_path: Path) -> None:
    table = recorded_table()
    at_once, in_two = tmp_path / "once", tmp_path / "twice"
    measure_site(replayed_config(at_once, 9), lambda _: None, lambda _: None, replay_of(table))
    for pairs in (3, 9):
        measure_site(replayed_config(in_two, pairs), lambda _: None, lambda _: None, replay_of(table))
    assert read_batches(in_two).batches == read_batches(at_once).batches
