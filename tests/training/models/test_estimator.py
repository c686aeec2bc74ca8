"""Estimators of other packages: scikit-learn's and any other with fit and predict, on a DataFrame with names."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression

from interfere.errors import InvalidInputError
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import MODELS, scored_models, select_models
from interfere.training.models.estimator import INDEX, FittedEstimator, estimator_model, pair_frame
from tests.training.evaluation.published_splits import public_dataset

PACKAGE = '''
from sklearn.ensemble import HistGradientBoostingRegressor


def same_kind(frame):
    """Are both jobs of one kind?"""
    first, second = (frame.index.get_level_values(side).str.split("-").str[-1] for side in ("victim", "neighbour"))
    return first == second


def short(frame):
    return [1.0]


class Quantiles:
    """Knows the mean, and an interval around it."""

    def fit(self, X, y):
        self.columns, self.mean = list(X.columns), float(y.mean())
        return self

    def predict(self, X):
        assert list(X.columns) == self.columns
        return [self.mean] * len(X)

    def predict_quantiles(self, X, quantiles):
        return [[self.mean * (1 + q) for q in reversed(quantiles)]] * len(X)


class NotAModel:
    pass


class Negative(Quantiles):
    def predict(self, X):
        return [-1.0] * len(X)


class Failing(Quantiles):
    def fit(self, X, y):
        raise RuntimeError("out of luck")


configured = HistGradientBoostingRegressor(max_iter=7)


def made():
    return HistGradientBoostingRegressor(max_iter=5)
'''


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return public_dataset("cpu")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_models_{tmp_path.name.replace('-', '_')}"  # modules stay imported
    (tmp_path / f"{name}.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_the_frame_names_pairs_and_numbers(dataset: Dataset) -> None:
    frame = pair_frame(dataset)
    assert tuple(frame.index.names) == INDEX
    has_number = np.isfinite(dataset.rows.pairs).any(axis=0)
    assert 0 < len(frame.columns) < len(dataset.pair_columns)
    assert list(frame.columns) == np.array(dataset.pair_columns)[has_number].tolist()
    victim, neighbour = (dataset.workloads[side[0] - 1] for side in (dataset.rows.victim, dataset.rows.neighbour))
    assert frame.index[0] == (victim, neighbour, "cpu-core", "timeslice")
    assert frame["victim_log_step_time_s"].iloc[0] == pytest.approx(
        float(dataset.rows.pairs[0, dataset.pair_columns.index("victim_log_step_time_s")])
    )
    assert frame.to_numpy() == pytest.approx(dataset.rows.pairs[:, has_number].astype(float), nan_ok=True)


def test_an_estimator_predicts_what_it_predicts_by_itself(dataset: Dataset) -> None:
    slowdown = np.exp(dataset.log_slowdown)
    by_hand = RandomForestRegressor(n_estimators=20, random_state=3)
    by_hand.fit(pair_frame(dataset), slowdown, sample_weight=dataset.weight)
    model = estimator_model("forest", RandomForestRegressor(n_estimators=20))
    first, again = (model.fit(dataset, 3).predict(dataset.rows) for _ in range(2))
    assert np.exp(first) == pytest.approx(by_hand.predict(pair_frame(dataset)))
    assert first.tolist() == again.tolist()
    assert first.tolist() != model.fit(dataset, 4).predict(dataset.rows).tolist()


def test_models_of_a_package_stand_beside_ours(dataset: Dataset, package: str) -> None:
    names = f"{package}:configured,mean,{package}:made,{package}:Quantiles"
    models = scored_models(names)
    assert [model.name for model in models] == ["mean", *(each for each in names.split(",") if each != "mean")]
    found = {one.model: one for one in evaluate_models(dataset, models, splits=("pair",))}
    assert found[f"{package}:configured"].scores.mae < 0.7 * found["mean"].scores.mae
    quantiles = found[f"{package}:Quantiles"]
    mean = np.exp(quantiles.predicted_log)  # its own interval, in ascending order
    assert np.exp(quantiles.low) == pytest.approx(mean * 1.05)
    assert np.exp(quantiles.high) == pytest.approx(mean * 1.95)
    calibrated = found[f"{package}:configured"]
    inside = (calibrated.low <= dataset.log_slowdown[calibrated.index]) & (
        dataset.log_slowdown[calibrated.index] <= calibrated.high
    )
    assert inside.mean() == pytest.approx(calibrated.scores.coverage)


def test_a_column_of_ones_own_is_read_where_it_is_fitted_and_where_it_predicts(dataset: Dataset, package: str) -> None:
    (model,) = scored_models(f"{package}:Quantiles", (f"{package}:same_kind",))
    fitted: Any = model.fit(dataset, 0)
    assert fitted.estimator.columns == [*pair_frame(dataset).columns, "same_kind"]
    assert len(fitted.predict(dataset.rows)) == len(dataset)
    frame = fitted.names.frame(dataset.rows, fitted.features)
    assert frame.loc[("gemm", "gemm"), "same_kind"].iloc[0] == 1.0
    with pytest.raises(InvalidInputError, match="short"):
        scored_models(f"{package}:Quantiles", (f"{package}:short",))[0].fit(dataset, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NotAModel", r"(?s)no model.*NotAModel.*fit\(X, y\) and predict\(X\)"),
        ("Negative", r"predicts no slowdown: .*Negative: -1\.0"),
        ("Failing", r"cannot fit: .*Failing: RuntimeError: out of luck"),
    ],
)
def test_what_is_no_model_says_what_is_wrong(dataset: Dataset, package: str, name: str, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        scored_models(f"{package}:{name}")[0].fit(dataset, 0).predict(dataset.rows)


def test_absent_facts_are_named_where_an_estimator_refuses_them(dataset: Dataset) -> None:
    with pytest.raises(InvalidInputError, match=r"(?s)NaN.*SimpleImputer"):
        estimator_model("line", LinearRegression).fit(dataset, 0)


def test_a_model_without_a_graph_is_scored_and_never_published(package: str) -> None:
    with pytest.raises(InvalidInputError, match="without an ONNX graph"):
        select_models(f"mean,{package}:configured")


def test_settings_of_another_package_are_taken_as_they_are() -> None:
    (model,) = scored_models("interfere.training.models.additive:AdditiveModel")
    assert model == MODELS["additive"]


def test_kept_results_belong_to_one_version_of_the_code_and_the_settings(package: str) -> None:
    sources = {getattr(model, "source", "") for model in scored_models(f"{package}:configured,{package}:made")}
    assert len(sources) == 2
    assert estimator_model("a", HistGradientBoostingRegressor(max_iter=3)) != estimator_model(
        "a", HistGradientBoostingRegressor(max_iter=4)
    )


def test_a_fitted_estimator_reads_rows_of_unknown_workloads(dataset: Dataset) -> None:
    fitted = estimator_model("trees", HistGradientBoostingRegressor(max_iter=3)).fit(dataset, 0)
    assert isinstance(fitted, FittedEstimator)
    unknown = dataset.rows.take(np.arange(2))
    unknown.victim[:] = 0
    frame = fitted.names.frame(unknown)
    assert isinstance(frame, pd.DataFrame)
    assert set(frame.index.get_level_values("victim")) == {""}
