"""Laws of every baseline."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.training.baselines import BANDWIDTH, BASELINES, COMPUTE, Baseline, FittedRule, known_column
from interfere.training.dataset import Dataset
from interfere.training.models.additive import MeanModel
from tests.training.baselines.stated_datasets import stated
from tests.training.worlds import additive, crossed, world

NAMES = [baseline.name for baseline in BASELINES]


@pytest.fixture(params=BASELINES, ids=NAMES)
def baseline(request: pytest.FixtureRequest) -> Baseline:
    return request.param


def test_there_are_ten_baselines_with_ten_names() -> None:
    assert len(set(NAMES)) == 10
    assert NAMES[:2] == ["mean", "additive"]


def test_equal_data_and_seed_give_equal_predictions(baseline: Baseline, dataset: Dataset) -> None:
    shown, asked = dataset.take(dataset.group % 4 > 0), dataset.take(dataset.group % 4 == 0)
    first, again = (baseline.fit(shown, 3).predict(asked.rows) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert first.shape == (len(asked),)
    assert np.isfinite(first).all()


def test_unknown_jobs_and_domains_are_predicted(baseline: Baseline, dataset: Dataset) -> None:
    rows = dataset.rows.take(np.arange(6))
    nobody = np.zeros(6, dtype=np.int64)
    strange = replace(rows, victim=nobody, neighbour=nobody, domain=nobody)
    assert np.isfinite(baseline.fit(dataset, 0).predict(strange)).all()


def test_without_inputs_the_mean_is_predicted_and_has_inputs_is_false(baseline: Baseline) -> None:
    made = stated([world(crossed, 6)])
    shown, asked = made.take(made.group % 3 > 0), made.take(made.group % 3 == 0)
    fitted = baseline.fit(shown, 0)
    if baseline.name in {"gpulet-linear", "igniter-bandwidth", "lucid-tree", "knn", "roofline"}:
        assert isinstance(fitted, FittedRule)
        assert not fitted.has_inputs(asked.rows).any()
        assert fitted.predict(asked.rows).tolist() == MeanModel().fit(shown, 0).predict(asked.rows).tolist()
    else:
        assert not isinstance(fitted, FittedRule) or fitted.has_inputs(asked.rows).all()


def test_one_row_of_one_pair_is_enough(baseline: Baseline, dataset: Dataset) -> None:
    one = dataset.take(np.array([0]))
    assert baseline.fit(one, 0).predict(one.rows) == pytest.approx(one.log_slowdown, rel=0.5)


def test_the_most_direct_column_known_for_most_rows_is_read() -> None:
    nan = float("nan")
    columns = {"sm_active_frac": [nan, nan, nan, 0.5], "gpu_util_frac": [nan, 0.2, 0.3, 0.4], "busy_frac": [0.1] * 4}
    made = stated([world(additive, 4)], columns)
    assert known_column(made, "victim", COMPUTE) == made.pair_columns.index("victim_gpu_util_frac")
    assert known_column(made, "neighbour", BANDWIDTH) is None
