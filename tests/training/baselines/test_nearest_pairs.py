"""Nearest pairs in feature space, against hand-computed values."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from interfere.training.baselines import Baseline, nearest_pairs
from tests.training.baselines.stated_datasets import row_of, stated
from tests.training.worlds import table_of, world


def of_nearest(neighbours: int) -> Baseline:
    return Baseline(name="knn", fit_rule=partial(nearest_pairs, neighbours=neighbours))


PLACES = {"busy_frac": [0.0, 0.1, 1.0, 1.2]}


def test_the_mean_of_the_k_nearest_pairs() -> None:
    made = stated([table_of({("a", "a"): 1.0, ("b", "b"): math.e, ("c", "c"): math.e**4, ("d", "d"): 9.0})], PLACES)
    asked, shown = made.take(np.array([3])), made.take(np.arange(3))
    assert of_nearest(1).fit(shown, 0).predict(asked.rows) == pytest.approx([4.0])
    assert of_nearest(2).fit(shown, 0).predict(asked.rows) == pytest.approx([2.5])
    assert of_nearest(9).fit(shown, 0).predict(asked.rows) == pytest.approx([5 / 3])


def test_victim_and_neighbour_are_not_confused() -> None:
    made = stated([world(lambda i, j: 1 + i, 4)], PLACES)
    fitted = of_nearest(1).fit(made, 0)
    assert np.exp(fitted.predict(made.rows))[row_of(made, 3, 0)] == pytest.approx(4.0)


def test_only_rows_of_the_same_device_type_and_mode_are_neighbours() -> None:
    made = stated([world(lambda i, j: 1.0, 4), world(lambda i, j: 2.0, 4, mode="mps")], PLACES)
    fitted = of_nearest(3).fit(made, 0)
    np.testing.assert_allclose(fitted.predict(made.rows), made.log_slowdown)
    unknown = replace(made.rows, domain=np.zeros(len(made), dtype=np.int64))
    assert set(np.round(np.exp(fitted.predict(unknown)), 3)) <= {1.0, 1.26, 1.587, 2.0}


def test_an_absent_column_counts_as_the_training_mean_and_scales_do_not_matter() -> None:
    values = {"busy_frac": [0.0, 1.0, math.nan], "log_power_w": [0.0, 1e6, 0.0]}
    made = stated([table_of({("a", "a"): 1.0, ("b", "b"): 3.0, ("c", "c"): 2.0})], values)
    fitted = of_nearest(1).fit(made.take(np.arange(2)), 0)
    assert np.exp(fitted.predict(made.rows)) == pytest.approx([1.0, 3.0, 1.0])
