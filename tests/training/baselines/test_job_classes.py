"""The three-class tree, against hand-computed values."""

import math

import numpy as np
import pytest

from interfere.training.baselines import class_labels
from tests.training.baselines.stated_datasets import named, row_of, stated
from tests.training.worlds import world

SPEED = (0.97, 0.96, 0.9, 0.6, 0.5)  # of each victim, whoever is beside it: classes 0, 0, 1, 2, 2
UTILISATION = {
    "gpu_util_frac": [0.1, 0.15, 0.5, 0.9, 0.95],
    "memory_util_frac": [0.1, 0.1, 0.4, 0.8, 0.9],
    "log_memory_peak_mib": [5.0, 5.0, 7.0, 8.0, 8.0],
}


def test_labels_follow_the_mean_speed_under_sharing() -> None:
    made = stated([world(lambda i, j: 1 / SPEED[i], 5)], UTILISATION)
    assert class_labels(made).tolist() == np.array([0, 0, 1, 2, 2])[made.rows.victim - 1].tolist()


def test_a_pair_is_predicted_as_the_mean_of_its_two_classes() -> None:
    made = stated([world(lambda i, j: 1 / SPEED[i], 5)], UTILISATION)
    predicted = named("lucid-tree").fit(made, 0).predict(made.rows)
    for (i, j), jobs in {(0, 2): (0, 1), (2, 2): (2,), (4, 0): (3, 4)}.items():
        assert predicted[row_of(made, i, j)] == pytest.approx(np.mean([-math.log(SPEED[k]) for k in jobs]))


def test_an_unseen_job_is_classified_by_its_utilisation() -> None:
    made = stated([world(lambda i, j: 1 / SPEED[i], 5)], UTILISATION)
    seen = made.take((made.rows.victim != 5) & (made.rows.neighbour != 5))
    predicted = named("lucid-tree").fit(seen, 0).predict(made.rows)
    assert predicted[row_of(made, 4, 0)] == pytest.approx(-math.log(SPEED[3]))  # alone in class 2


def test_each_device_type_and_mode_has_its_own_classes() -> None:
    worlds = [world(lambda i, j: 1 / SPEED[i], 5), world(lambda i, j: 1 / SPEED[4 - i], 5, mode="mps")]
    made = stated(worlds, UTILISATION)
    predicted = named("lucid-tree").fit(made, 0).predict(made.rows)
    assert predicted[row_of(made, 2, 0)] == pytest.approx(-math.log(0.9))
    mps = made.take(np.array([d.mode == "mps" for d in made.domains])[made.domain])
    assert named("lucid-tree").fit(made, 0).predict(mps.rows)[row_of(mps, 4, 2)] == pytest.approx(
        np.mean([-math.log(0.97), -math.log(0.96)])
    )
