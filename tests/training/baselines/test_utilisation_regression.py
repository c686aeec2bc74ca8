"""Regression on utilisation, against hand-computed values."""

import math

import numpy as np
import pytest

from interfere.predict.acceptance.score import speed
from interfere.training.baselines import MIN_SLOWDOWN
from tests.training.baselines.stated_datasets import named, row_of, stated
from tests.training.worlds import table_of, world

COMPUTE = [0.1, 0.4, 0.5, 0.9, 0.3]
BANDWIDTH = [0.7, 0.2, 0.6, 0.1, 0.35]
COLUMNS = {"sm_active_frac": COMPUTE, "dram_active_frac": BANDWIDTH}


def line(i: int, j: int) -> float:
    return 0.9 + 0.2 * COMPUTE[i] + 0.4 * COMPUTE[j] + 0.3 * BANDWIDTH[i] + 0.5 * BANDWIDTH[j]


def test_a_linear_world_is_fitted_exactly_and_extends_to_an_unseen_job() -> None:
    made = stated([world(line, 5)], COLUMNS)
    seen = made.take((made.rows.victim != 4) & (made.rows.neighbour != 4))
    np.testing.assert_allclose(named("gpulet-linear").fit(seen, 0).predict(made.rows), made.log_slowdown, atol=1e-6)


def test_each_device_type_and_mode_has_its_own_line() -> None:
    both = stated([world(line, 5), world(lambda i, j: 2 * line(j, i), 5, mode="mps")], COLUMNS)
    np.testing.assert_allclose(named("gpulet-linear").fit(both, 0).predict(both.rows), both.log_slowdown, atol=1e-6)


def test_predictions_are_bounded_below_by_the_least_slowdown() -> None:
    made = stated([world(lambda i, j: 3.0 - 2.5 * COMPUTE[i] if i < 3 else 1.0, 5)], COLUMNS)
    seen = made.take(made.rows.victim <= 3)
    predicted = named("gpulet-linear").fit(seen, 0).predict(made.rows)
    assert np.exp(predicted[row_of(made, 3, 0)]) == pytest.approx(max(MIN_SLOWDOWN, 3.0 - 2.5 * 0.9), rel=1e-5)
    assert np.exp(predicted).min() >= MIN_SLOWDOWN


def test_a_row_without_utilisation_gets_the_mean() -> None:
    made = stated([world(line, 5)], COLUMNS | {"dram_active_frac": [*BANDWIDTH[:4], math.nan]})
    fitted = named("gpulet-linear").fit(made, 0)
    lost = (made.rows.victim == 5) | (made.rows.neighbour == 5)
    assert fitted.has_inputs(made.rows).tolist() == (~lost).tolist()
    mean = -math.log(speed(made.log_slowdown).mean())
    assert fitted.predict(made.rows)[lost] == pytest.approx(np.full(lost.sum(), mean))


def test_a_victim_suffers_from_its_neighbours_bandwidth_by_its_own_factor() -> None:
    # a beside b (0.2) and c (0.4), both times 1.2: k = (0.2·0.2 + 0.2·0.4) / (0.2² + 0.4²) = 0.6.
    # b beside c: 1.6, so k = 0.6 / 0.4 = 1.5. All together: (0.12 + 0.24) / (0.2 + 0.16) = 1.
    made = stated(
        [table_of({("a", "b"): 1.2, ("a", "c"): 1.2, ("b", "c"): 1.6})], {"dram_active_frac": [0.9, 0.2, 0.4]}
    )
    fitted = named("igniter-bandwidth").fit(made, 0)
    assert np.exp(fitted.predict(made.rows)) == pytest.approx([1.12, 1.24, 1.6], rel=1e-6)
    asked = made.rows.take(np.array([1]))
    asked.victim[:] = 3  # c was never a victim
    assert np.exp(fitted.predict(asked)) == pytest.approx([1.4], rel=1e-6)
