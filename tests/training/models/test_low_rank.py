"""Rows beyond the sample of the Gaussian process correct it by a term of low rank, in predictions and graphs alike."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.models.completed import export_matrix_graph, export_pair_graph
from interfere.training.models.gp.model import FittedGp, GpModel
from interfere.training.models.gp.posterior import ResidualRows, fit_low_rank, low_rank_residual
from tests.training.worlds import world

COUNT = 40  # workloads
QUICK = GpModel(steps=2, sample=60, max_rows=60)


def planted(rng: np.random.Generator, noise: float) -> ResidualRows:
    """All pairs of `COUNT` identities, whose residuals are two effects, a product and noise."""
    effects = rng.normal(size=(4, COUNT))
    i, j = (side.ravel() for side in np.indices((COUNT, COUNT)))
    residual = effects[0][i] + effects[1][j] + effects[2][i] * effects[3][j] + noise * rng.normal(size=len(i))
    return ResidualRows(victim=i, neighbour=j, residual=residual, weight=np.ones(len(i)))


def hidden_kinds(i: int, j: int) -> float:
    """A slowdown that only identities tell: profiles of `worlds` say nothing about the kind."""
    return 2.2 if (i * 7 % 5 < 2) == (j * 7 % 5 < 2) else 1.1


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return build_dataset([world(hidden_kinds, 20)], FeatureEncoder())


@pytest.fixture(scope="module")
def corrected(dataset: Dataset) -> FittedGp:
    return QUICK.fit(dataset, 0)


def test_planted_effects_and_their_product_are_found() -> None:
    rows = planted(np.random.default_rng(1), noise=0.05)
    known = np.random.default_rng(2).random(len(rows.residual)) < 0.6
    correction = fit_low_rank(rows.take(known), COUNT + 1, np.random.default_rng(0))
    unseen = rows.take(~known)
    error = unseen.residual - low_rank_residual(correction, unseen.victim, unseen.neighbour)
    assert error.std() < 0.2 * unseen.residual.std()
    assert not correction[0][COUNT].any()  # an identity without rows
    assert not correction[1][COUNT].any()


def test_noise_alone_moves_no_prediction_far() -> None:
    rng = np.random.default_rng(3)
    rows = replace(planted(rng, noise=0.0), residual=rng.normal(size=COUNT**2))
    correction = fit_low_rank(rows, COUNT, np.random.default_rng(0))
    assert low_rank_residual(correction, rows.victim, rows.neighbour).std() < 0.35


def test_one_row_is_no_reason_to_correct() -> None:
    rows = ResidualRows(victim=np.zeros(1, int), neighbour=np.ones(1, int), residual=np.ones(1), weight=np.ones(1))
    as_victim, as_neighbour = fit_low_rank(rows, 2, np.random.default_rng(0))
    assert as_victim.shape == as_neighbour.shape == (2, 1)
    assert not as_victim.any()


def test_rows_beyond_the_sample_lower_the_error(dataset: Dataset, corrected: FittedGp) -> None:
    hidden = np.random.default_rng(0).random(len(dataset)) < 0.2
    seen, unseen = dataset.take(~hidden), dataset.take(hidden)
    everything, sample = QUICK.fit(seen, 0), QUICK.fit(seen.take(np.arange(0, len(seen), 5)), 0)
    assert sample.posterior.u.shape[2] == 0 < corrected.posterior.u.shape[2]

    def error(model: FittedGp) -> float:
        return float(np.abs(model.predict(unseen.rows) - unseen.log_slowdown).mean())

    assert error(everything) < 0.5 * error(sample)


def test_chunks_change_no_prediction(dataset: Dataset, corrected: FittedGp, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = corrected.predict(dataset.rows)
    monkeypatch.setattr("interfere.training.models.gp.posterior.CHUNK_ROWS", 7)
    np.testing.assert_allclose(corrected.predict(dataset.rows), whole, atol=1e-12)


@pytest.mark.journey  # two exports by torch
def test_both_graphs_hold_the_correction(dataset: Dataset, corrected: FittedGp) -> None:
    encoder = FeatureEncoder()
    assert export_pair_graph(corrected, dataset, encoder).max_error <= 1e-6
    assert export_matrix_graph(corrected, dataset, encoder).max_error <= 1e-6
