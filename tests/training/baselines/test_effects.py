"""The cheap models, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from features.pair import Encoder
from tests.training.worlds import additive, table_of, world
from training.baselines import AdditiveModel, MeanModel
from training.dataset import build_dataset
from training.export import run_pairs, session_of


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
    assert fitted.mu.tolist() == pytest.approx([0, 0], abs=1e-12)
    assert fitted.own[1].tolist() == pytest.approx([0, 0.4, -0.4])
    assert fitted.predict(made.rows).tolist() == pytest.approx([0.8, -0.8])


def test_a_job_never_seen_has_no_effect(encoder: Encoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    seen = made.take((made.rows.victim != 3) & (made.rows.neighbour != 3))
    fitted = AdditiveModel().fit(seen, 0)
    assert np.all(fitted.own[:, [0, 3]] == 0)  # 0 is unknown
    assert np.all(fitted.from_neighbour[:, [0, 3]] == 0)
    assert np.all(fitted.own[:, [1, 5]] != 0)


@pytest.mark.parametrize("model", [MeanModel(), AdditiveModel(shrinkage=1e-9)])
def test_each_domain_has_its_own_effects_and_an_unknown_one_those_of_all(
    encoder: Encoder, model: MeanModel | AdditiveModel
) -> None:
    slow = world(lambda i, j: math.exp(1.0), 4, mode="mps")
    fast = world(lambda i, j: 1.0, 4, name="fast")
    made = build_dataset([slow, fast], encoder)
    fitted = model.fit(made, 0)
    np.testing.assert_allclose(fitted.predict(made.rows), made.log_slowdown, atol=1e-6)
    unknown = replace(made.rows, domain=np.zeros_like(made.rows.domain))
    np.testing.assert_allclose(fitted.predict(unknown), 0.5, atol=1e-6)
    graph = run_pairs(session_of(fitted.to_onnx()), unknown)
    np.testing.assert_allclose(graph, 0.5, atol=1e-6)
