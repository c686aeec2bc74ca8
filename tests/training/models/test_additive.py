"""The mean and the additive model, against hand-computed values."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import open_session
from interfere.training.dataset import build_dataset
from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.onnx_graph import run_pair_graph
from tests.training.worlds import additive, summed, table_of, world


def test_the_mean_is_the_weighted_mean_of_speed(encoder: FeatureEncoder) -> None:
    made = build_dataset([table_of({("a", "b"): 1.0, ("b", "a"): 2.0})], encoder)
    made = replace(made, weight=np.array([3.0, 1.0]))
    assert np.exp(-MeanModel().fit(made, 0).predict(made.rows)) == pytest.approx([0.875, 0.875])


def test_speeds_are_clipped_as_scores_clip_them(encoder: FeatureEncoder) -> None:
    made = build_dataset([table_of({("a", "b"): 0.5, ("b", "a"): 100.0})], encoder)  # speeds 2 and 0.01: 1.6 and 0.05
    made = replace(made, weight=np.ones(2))
    assert np.exp(-MeanModel().fit(made, 0).predict(made.rows)) == pytest.approx([0.825, 0.825])
    fitted = replace(AdditiveModel().fit(made, 0), mu=np.array([9.0, -9.0]))
    assert np.exp(-fitted.predict(made.rows)) == pytest.approx([0.05, 0.05])
    unknown = replace(made.rows, domain=np.zeros(2, dtype=np.int64))
    np.testing.assert_allclose(run_pair_graph(open_session(fitted.to_onnx()), unknown), [-math.log(1.6)] * 2, atol=1e-6)


def test_without_shrinkage_an_additive_world_is_exact_even_for_pairs_never_seen(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(summed, 5)], encoder)
    seen = made.take((made.rows.victim != 2) | (made.rows.neighbour != 4))
    fitted = AdditiveModel(shrinkage=1e-9).fit(seen, 0)
    np.testing.assert_allclose(fitted.predict(made.rows), made.log_slowdown, atol=1e-6)


def test_shrinkage_by_hand(encoder: FeatureEncoder) -> None:
    # Self pairs of a and b at speeds 1.0 and 0.5: mu = 0.75. By symmetry own = from = x for a, -x for b;
    # for a: minimise (0.25 - 2x)² + 2·s·x², so x = 0.25 / (2 + s).
    made = build_dataset([table_of({("a", "a"): 1.0, ("b", "b"): 2.0})], encoder)
    made = replace(made, weight=np.ones(2))
    fitted = AdditiveModel(shrinkage=0.5).fit(made, 0)
    assert fitted.mu.tolist() == pytest.approx([0.75, 0.75])
    assert fitted.own[1].tolist() == pytest.approx([0, 0.1, -0.1])
    assert np.exp(-fitted.predict(made.rows)) == pytest.approx([0.95, 0.55])


def test_a_job_never_seen_has_no_effect(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    seen = made.take((made.rows.victim != 3) & (made.rows.neighbour != 3))
    fitted = AdditiveModel().fit(seen, 0)
    assert np.all(fitted.own[:, [0, 3]] == 0)  # 0 is unknown
    assert np.all(fitted.from_neighbour[:, [0, 3]] == 0)
    assert np.all(fitted.own[:, [1, 5]] != 0)


@pytest.mark.parametrize("model", [MeanModel(), AdditiveModel(shrinkage=1e-9)])
def test_each_domain_has_its_own_effects_and_an_unknown_one_those_of_all(
    encoder: FeatureEncoder, model: MeanModel | AdditiveModel
) -> None:
    slow = world(lambda i, j: 2.0, 4, mode="mps")
    fast = world(lambda i, j: 1.0, 4, name="fast")
    made = build_dataset([slow, fast], encoder)
    fitted = model.fit(made, 0)
    np.testing.assert_allclose(fitted.predict(made.rows), made.log_slowdown, atol=1e-6)
    unknown = replace(made.rows, domain=np.zeros_like(made.rows.domain))
    np.testing.assert_allclose(fitted.predict(unknown), -math.log(0.75), atol=1e-6)
    graph = run_pair_graph(open_session(fitted.to_onnx()), unknown)
    np.testing.assert_allclose(graph, -math.log(0.75), atol=1e-6)
