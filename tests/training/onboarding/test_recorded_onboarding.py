"""The example's onboarding on its recorded table: the 24 pairs that twelve measured ones leave are known well."""

from pathlib import Path

import numpy as np

from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.transfer.site_belief import site_belief
from interfere.training.onboarding import measure_site, read_batches
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


def test_an_onboarding_that_goes_on_chooses_the_same_pairs(tmp_path: Path) -> None:
    table = recorded_table()
    at_once, in_two = tmp_path / "once", tmp_path / "twice"
    measure_site(replayed_config(at_once, 9), lambda _: None, lambda _: None, replay_of(table))
    for pairs in (3, 9):
        measure_site(replayed_config(in_two, pairs), lambda _: None, lambda _: None, replay_of(table))
    assert read_batches(in_two).batches == read_batches(at_once).batches
