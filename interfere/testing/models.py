"""The laws of every model that stands on a board: ours, and estimators of other packages by their names."""

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.data.loading import load_table
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.models.catalogue import scored_models
from interfere.training.models.estimator import FittedEstimator
from interfere.training.models.protocols import FittedPredictor, ScoredModel

RTOL = 1e-6  # between answers to the same row in different batches


class ModelLaws:
    """Every test gets `model`: the name under which the model is scored, of an entry point or `package:Class`."""

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls) -> str:
        """Override: the name of the model."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def dataset(cls) -> Dataset:
        """The measured pairs of the shipped table."""
        return build_dataset([load_table("cpu")], FeatureEncoder())

    @pytest.fixture(scope="class")
    @classmethod
    def settings(cls, model: str) -> ScoredModel:
        """The model that the name stands for."""
        (found,) = scored_models(model)
        return found

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, settings: ScoredModel, dataset: Dataset) -> FittedPredictor:
        """The model, fitted on every other pair."""
        return settings.fit(dataset.take(dataset.group % 2 == 0), 0)

    def test_it_has_the_name_that_it_was_asked_by(self, model: str, settings: ScoredModel) -> None:
        assert settings.name == model

    def test_every_row_gets_a_finite_log_slowdown(self, fitted: FittedPredictor, dataset: Dataset) -> None:
        predicted = fitted.predict(dataset.rows)
        assert predicted.shape == (len(dataset),)
        assert predicted.dtype == np.float64
        assert np.isfinite(predicted).all()

    def test_equal_rows_and_seed_give_equal_predictions(self, settings: ScoredModel, dataset: Dataset) -> None:
        first, again = (settings.fit(dataset, 5).predict(dataset.rows) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    def test_a_row_is_answered_alike_alone_and_among_others(self, fitted: FittedPredictor, dataset: Dataset) -> None:
        predicted = fitted.predict(dataset.rows)
        order = np.random.default_rng(0).permutation(len(dataset))[:20]
        np.testing.assert_allclose(fitted.predict(dataset.rows.take(order)), predicted[order], rtol=RTOL, atol=RTOL)
        alone = dataset.rows.take(order[:1])
        np.testing.assert_allclose(fitted.predict(alone), predicted[order[:1]], rtol=RTOL, atol=RTOL)

    def test_a_workload_that_training_never_saw_is_answered(self, settings: ScoredModel, dataset: Dataset) -> None:
        hidden = (dataset.rows.victim == 1) | (dataset.rows.neighbour == 1)
        predicted = settings.fit(dataset.take(~hidden), 0).predict(dataset.rows.take(hidden))
        assert np.isfinite(predicted).all()

    def test_predicting_changes_nothing(self, fitted: FittedPredictor, dataset: Dataset) -> None:
        before: NDArray[np.float64] = fitted.predict(dataset.rows).copy()
        fitted.predict(dataset.rows.take(np.arange(3)))
        np.testing.assert_array_equal(fitted.predict(dataset.rows), before)

    def test_the_ends_of_its_own_interval_are_in_order(self, fitted: FittedPredictor, dataset: Dataset) -> None:
        ends = fitted.interval(dataset.rows, (0.05, 0.95)) if isinstance(fitted, FittedEstimator) else None
        if ends is not None:
            assert ends.shape == (len(dataset), 2)
            assert (ends[:, 0] <= ends[:, 1]).all()
