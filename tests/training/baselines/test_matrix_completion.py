"""Matrix completion of tables with missing pairs, against hand-computed values."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.predict.acceptance.score import speed
from interfere.training.baselines import factorise, nearest_rows, soft_impute
from interfere.training.models.additive import AdditiveModel
from tests.training.baselines.stated_datasets import named, row_of, stated
from tests.training.worlds import crossed, summed, world


def alike(i: int, j: int) -> float:
    """Jobs 0 and 2 fare alike, 1 and 3 the other way round."""
    return 1.0 + 0.2 * (j + 1) if i % 2 == 0 else 2.0 - 0.2 * j


def test_the_nearest_row_points_the_same_way_whatever_its_length() -> None:
    table = np.array([[1.0, 0.0], [0.0, 1.0], [9.0, 1.0], [0.1, 1.0]])
    assert nearest_rows(table, np.ones(4, dtype=bool)).tolist() == [2, 3, 0, 1]
    assert nearest_rows(table, np.array([True, True, False, True])).tolist() == [3, 3, 0, 1]
    assert nearest_rows(table[:1], np.ones(1, dtype=bool)).tolist() == [0]


def test_a_table_of_rank_one_is_filled() -> None:
    table = np.outer([0.5, 1.0, 0.8, 0.3], [1.0, 0.4, 0.7, 0.9, 0.6])
    seen = np.ones(table.shape, dtype=bool)
    seen[1, 2] = seen[3, 0] = False
    filled = factorise(np.where(seen, table, 0.0), seen, np.random.default_rng(0))
    np.testing.assert_allclose(filled[seen], table[seen], atol=0.05)


def test_an_unseen_pair_is_predicted_as_that_of_the_nearest_job() -> None:
    made = stated([world(alike, 6)])
    hidden = row_of(made, 2, 5)
    seen = made.take(np.arange(len(made)) != hidden)
    fitted = named("gavel-completion").fit(seen, 0)
    assert fitted.predict(made.rows)[hidden] == pytest.approx(made.log_slowdown[row_of(made, 0, 5)])


def test_a_column_belongs_to_a_neighbour_on_one_device_type_and_mode() -> None:
    made = stated([world(alike, 4), world(lambda i, j: 3 * alike(i, j), 4, mode="mps", name="mps")])
    mps = made.take(np.array([d.mode == "mps" for d in made.domains])[made.domain])
    fitted = named("gavel-completion").fit(made, 0)
    predicted = fitted.predict(mps.rows)
    for i, j in ((0, 0), (0, 3), (1, 2), (3, 1)):
        assert predicted[row_of(mps, i, j)] == pytest.approx(math.log(3 * alike((i + 2) % 4, j)))


def test_a_job_without_a_row_and_a_neighbour_without_a_column_have_no_answer() -> None:
    made = stated([world(alike, 5)])
    seen = made.take((made.rows.victim != 5) & (made.rows.neighbour != 4))
    fitted = named("gavel-completion").fit(seen, 0)
    lost = (made.rows.victim == 5) | (made.rows.neighbour == 4)
    assert fitted.has_inputs(made.rows).tolist() == (~lost).tolist()
    mean = -math.log(speed(seen.log_slowdown).mean())
    assert fitted.predict(made.rows)[lost] == pytest.approx(np.full(lost.sum(), mean))


def test_soft_impute_takes_the_threshold_off_every_singular_value() -> None:
    full = np.ones((2, 2), dtype=bool)
    found = soft_impute(np.diag([3.0, 1.0]), full, 1.5, np.zeros((2, 2)))
    np.testing.assert_allclose(found, np.diag([1.5, 0.0]), atol=1e-9)


def test_soft_impute_minimises_the_squared_error_of_what_was_seen_and_the_nuclear_norm() -> None:
    rng = np.random.default_rng(0)
    values, seen = rng.standard_normal((6, 5)), rng.random((6, 5)) < 0.7

    def objective(z: np.ndarray) -> float:
        return 0.5 * float(((values - z)[seen] ** 2).sum()) + 0.4 * float(np.linalg.norm(z, "nuc"))

    found = soft_impute(values, seen, 0.4, np.zeros_like(values))
    assert objective(found) < objective(np.zeros_like(values))
    for _ in range(50):
        assert objective(found) < objective(found + 0.05 * rng.standard_normal(values.shape)) + 1e-3


def test_a_low_rank_interaction_is_learned_beyond_the_additive_effects() -> None:
    made = stated([world(crossed, 12)])
    hidden = made.group % 6 == 1
    seen, asked = made.take(~hidden), made.take(hidden)
    error = {
        model.name: np.abs(asked.log_slowdown - model.fit(seen, 0).predict(asked.rows)).mean()
        for model in (AdditiveModel(), named("softimpute"))
    }
    assert error["softimpute"] < 0.5 * error["additive"]


def test_without_interaction_it_equals_the_additive_model_and_so_for_an_unknown_job() -> None:
    made = stated([world(summed, 6)])
    plain, fitted = AdditiveModel().fit(made, 0), named("softimpute").fit(made, 0)
    worst = {one.name: np.abs(one.predict(made.rows) - made.log_slowdown).max() for one in (plain, fitted)}
    assert worst["softimpute"] <= worst["additive"]
    nobody = replace(made.rows, victim=np.zeros(len(made), dtype=np.int64))
    np.testing.assert_allclose(fitted.predict(nobody), plain.predict(nobody), atol=1e-9)
