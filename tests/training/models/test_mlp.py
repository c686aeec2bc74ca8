"""The two-tower network learns interactions, and treats unknown jobs as documented."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.mlp import FittedMlp, MlpModel
from tests.training.worlds import crossed, world

QUICK = MlpModel(members=2, epochs=60)


@pytest.fixture(scope="module")
def interacting(encoder: FeatureEncoder) -> Dataset:
    return build_dataset([world(crossed, 8)], encoder)


@pytest.fixture(scope="module")
def fitted(interacting: Dataset) -> FittedMlp:
    return MlpModel().fit(interacting, 0)


def error(model: object, dataset: Dataset) -> float:
    return float(np.abs(model.predict(dataset.rows) - dataset.log_slowdown).mean())


def test_an_interaction_is_learned_that_a_sum_of_effects_misses(fitted: FittedMlp, interacting: Dataset) -> None:
    assert error(fitted, interacting) < 0.5 * error(AdditiveModel().fit(interacting, 0), interacting)
    assert error(fitted, interacting) < 0.2 * error(MeanModel().fit(interacting, 0), interacting)


def test_victim_and_neighbour_are_different_roles(fitted: FittedMlp, interacting: Dataset) -> None:
    there = interacting.take((interacting.rows.victim == 1) & (interacting.rows.neighbour == 8))
    back = interacting.take((interacting.rows.victim == 8) & (interacting.rows.neighbour == 1))
    truth = there.log_slowdown[0] - back.log_slowdown[0]
    assert np.sign(fitted.predict(there.rows)[0] - fitted.predict(back.rows)[0]) == np.sign(truth)


def test_an_identity_never_trained_is_the_unknown_one(interacting: Dataset) -> None:
    seen = interacting.take((interacting.rows.victim != 3) & (interacting.rows.neighbour != 3))
    fitted = QUICK.fit(seen, 0)
    new = interacting.rows.take(interacting.rows.victim == 3)
    unknown = replace(new, victim=np.zeros_like(new.victim), neighbour=np.where(new.neighbour == 3, 0, new.neighbour))
    np.testing.assert_array_equal(fitted.predict(new), fitted.predict(unknown))


def test_a_column_constant_in_training_has_no_effect(fitted: FittedMlp, interacting: Dataset) -> None:
    width = len(interacting.job_columns)
    constant = interacting.job_columns.index("mode_timeslice")
    moved = interacting.rows.pairs.copy()
    moved[:, [constant, width + constant]] = 7.0
    rows = replace(interacting.rows, pairs=moved)
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(interacting.rows))


def test_absent_and_extreme_features_give_finite_predictions(fitted: FittedMlp, interacting: Dataset) -> None:
    for value in (np.nan, 1e9, -1e9):
        pairs = np.full_like(interacting.rows.pairs, value)
        rows = replace(interacting.rows, pairs=pairs)
        assert np.all(np.abs(fitted.predict(rows)) < 10)


def test_equal_seeds_give_equal_predictions(interacting: Dataset) -> None:
    first, again, other = (QUICK.fit(interacting, seed).predict(interacting.rows) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
