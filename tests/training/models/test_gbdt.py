"""The exported trees take the same branch on every row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import open_session
from interfere.training.dataset import Dataset
from interfere.training.models.completed import export_pair_graph
from interfere.training.models.gbdt import FittedGbdt, GbdtModel, floor32, round_thresholds
from interfere.training.models.onnx_graph import run_pair_graph


@pytest.fixture(scope="module")
def fitted(dataset: Dataset) -> FittedGbdt:
    return GbdtModel().fit(dataset, 0)


@given(st.floats(allow_nan=False, min_value=-1e30, max_value=1e30))
def test_floor32_is_the_largest_float32_not_above(value: float) -> None:
    down = floor32(np.array([value]))[0]
    assert float(down) <= value < float(np.nextafter(down, np.float32(np.inf)))


def test_rounded_thresholds_predict_the_same_on_every_float32_row(fitted: FittedGbdt, dataset: Dataset) -> None:
    rounded = FittedGbdt(name="gbdt", model_text=round_thresholds(fitted.model_text), columns=fitted.columns)
    for rows in (dataset.rows, fitted.threshold_rows(dataset.rows)):
        np.testing.assert_array_equal(rounded.predict(rows), fitted.predict(rows))


def test_rows_on_thresholds_agree_only_with_rounded_thresholds(
    fitted: FittedGbdt, dataset: Dataset, encoder: FeatureEncoder
) -> None:
    assert len(fitted.threshold_rows(dataset.rows)) > 500
    assert export_pair_graph(fitted, dataset, encoder).max_error <= 1e-5
    uncured = FittedGbdt(name="gbdt", model_text=fitted.model_text, columns=fitted.columns, round_on_export=False)
    with pytest.raises(ModelError, match="disagrees with the model"):
        export_pair_graph(uncured, dataset, encoder)


def test_absent_features_take_the_same_branches_in_the_graph(fitted: FittedGbdt, dataset: Dataset) -> None:
    pairs = dataset.rows.pairs.copy()
    pairs[np.random.default_rng(0).random(pairs.shape) < 0.3] = np.nan  # also where training never saw a NaN
    rows = replace(dataset.rows, pairs=pairs)
    graph = run_pair_graph(open_session(fitted.to_onnx()), rows)
    np.testing.assert_allclose(graph, fitted.predict(rows), atol=1e-5)
    assert np.abs(graph - fitted.predict(dataset.rows)).max() > 1e-3  # absence does matter


def test_a_handful_of_rows_still_fits_and_exports(small_dataset: Dataset, encoder: FeatureEncoder) -> None:
    few = small_dataset.take(np.arange(4))
    assert export_pair_graph(GbdtModel().fit(few, 0), few, encoder).max_error <= 1e-5


def test_equal_slowdowns_give_one_leaf_that_exports(small_dataset: Dataset, encoder: FeatureEncoder) -> None:
    from dataclasses import replace

    flat = replace(small_dataset, log_slowdown=np.full(len(small_dataset), 0.25))
    fitted = GbdtModel(rounds=3).fit(flat, 0)
    assert export_pair_graph(fitted, flat, encoder).max_error <= 1e-5
    assert len(fitted.threshold_rows(flat.rows)) == 0
    np.testing.assert_allclose(fitted.predict(flat.rows), 0.25, atol=1e-6)


def test_equal_seeds_give_equal_trees(small_dataset: Dataset) -> None:
    texts = [GbdtModel(rounds=20).fit(small_dataset, seed).model_text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
