"""The cheap models, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from features.pair import Encoder
from tests.training.worlds import additive, table_of, world
from training.baselines import AdditiveModel, MeanModel
from training.dataset import build_dataset


def test_the_mean_is_the_weighted_mean_of_log_slowdown(encoder: Encoder) -> None:
    made = build_dataset([table_of({("a", "b"): 1.0, ("b", "a"): math.e})], encoder)
    made = replace(made, weight=np.array([3.0, 1.0]))
    assert MeanModel().fit(made, 0).predict(made.rows).tolist() == pytest.approx([0.25, 0.25])


def test_without_shrinkage_an_additive_world_is_exact_even_for_pairs_never_seen(encoder: Encoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    seen = made.take((made.rows.victim != 2) | (made.rows.neighbour != 4))
    fitted = AdditiveModel(shrinkage=1e-9).fit(seen, 0)
    np.testing.assert_allclose(fitted.predict(made.rows), made.log_slowdown, atol=1e-6)


def test_shrinkage_by_hand(encoder: Encoder) -> None:
    # Self pairs of a and b at log slowdown +1 and -1. By symmetry mu = 0 and own = from = x for a, -x for b;
    # for a: minimise (1 - 2x)² + 2·s·x², so x = 1 / (2 + s).
    made = build_dataset([table_of({("a", "a"): math.e, ("b", "b"): 1 / math.e})], encoder)
    made = replace(made, weight=np.ones(2))
    fitted = AdditiveModel(shrinkage=0.5).fit(made, 0)
    assert fitted.mu == pytest.approx(0, abs=1e-12)
    assert fitted.own.tolist() == pytest.approx([0, 0.4, -0.4])
    assert fitted.predict(made.rows).tolist() == pytest.approx([0.8, -0.8])


def test_a_job_never_seen_has_no_effect(encoder: Encoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    seen = made.take((made.rows.victim != 3) & (made.rows.neighbour != 3))
    fitted = AdditiveModel().fit(seen, 0)
    assert fitted.own[3] == fitted.from_neighbour[3] == 0
    assert fitted.own[0] == fitted.from_neighbour[0] == 0  # unknown
    assert np.all(fitted.own[[1, 5]] != 0)
