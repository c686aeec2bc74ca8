"""Feature contributions add up to the predictions and rank the features."""

import numpy as np

from interfere.training.dataset import Dataset
from interfere.training.evaluation.figures import (
    contributions_figure,
    mean_contributions,
    row_contributions,
)
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.gbdt import GbdtModel, trees_of
from interfere.training.models.gp.model import GpModel


def test_every_row_adds_up_to_its_prediction(small_dataset: Dataset) -> None:
    trees = GbdtModel(rounds=30).fit(small_dataset, 0)
    added = row_contributions(trees, small_dataset).sum(axis=1)
    np.testing.assert_allclose(added, trees.predict(small_dataset.rows), atol=1e-9)


def test_the_feature_that_determines_the_slowdown_comes_first(small_dataset: Dataset) -> None:
    column = small_dataset.rows.pairs[:, 0]
    taught = small_dataset.take(np.arange(len(small_dataset)))
    taught.log_slowdown[:] = np.where(column > np.median(column), 1.0, 0.0)
    trees = GbdtModel(rounds=30, column_share=1.0).fit(taught, 0)
    found = mean_contributions(trees, taught)
    assert [name for name, _ in found[:1]] == [small_dataset.pair_columns[0]]
    assert [size for _, size in found] == sorted((size for _, size in found), reverse=True)
    assert sum(size for _, size in found[1:]) < 0.1 * found[0][1]


def test_the_trees_of_an_ensemble_are_found_and_a_gaussian_process_has_none(small_dataset: Dataset) -> None:
    ensemble = EnsembleModel(gp=GpModel(steps=1), gbdt=GbdtModel(rounds=5)).fit(small_dataset, 0)
    assert trees_of(ensemble) is ensemble.gbdt
    assert trees_of(ensemble.gp) is None


def test_the_figure_names_model_unit_and_counts() -> None:
    figure = contributions_figure("gbdt", tuple((f"f{k}", 1.0 / (k + 1)) for k in range(30)))
    assert figure.title == "Largest contributions to the trees of gbdt (20 of 30 features)"
    assert "log slowdown" in figure.axis.title
    assert [row.label for row in figure.rows] == [f"f{k}" for k in range(20)]
    assert figure.rows[3].values[0][0].value == 0.25
