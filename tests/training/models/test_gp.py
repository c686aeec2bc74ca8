"""The Gaussian process and its ensemble with the trees."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.ensemble import EnsembleModel, FittedEnsemble
from interfere.training.models.gbdt import GbdtModel
from interfere.training.models.gp.model import FittedGp, GpModel
from interfere.training.models.gp.posterior import KNOWN, NOVEL, gp_weight
from tests.training.worlds import additive, crossed, world

QUICK = GpModel(steps=15, sample=120)


@pytest.fixture(scope="module")
def interacting() -> Dataset:
    return build_dataset([world(crossed, 10)], FeatureEncoder())


@pytest.fixture(scope="module")
def fitted(interacting: Dataset) -> FittedGp:
    return QUICK.fit(interacting, 0)


def error(model: object, rows: Dataset) -> float:
    return float(np.abs(model.predict(rows.rows) - rows.log_slowdown).mean())


def test_a_pair_never_seen_is_answered_better_than_by_a_sum_of_effects(interacting: Dataset) -> None:
    hidden = interacting.rows_of_pairs(frozenset({("w1", "w6"), ("w2", "w8"), ("w4", "w5"), ("w0", "w9")}))
    seen, unseen = interacting.take(~hidden), interacting.take(hidden)
    assert error(QUICK.fit(seen, 0), unseen) < 0.5 * error(AdditiveModel().fit(seen, 0), unseen)


def test_equal_data_and_seed_give_equal_numbers(fitted: FittedGp, interacting: Dataset) -> None:
    np.testing.assert_array_equal(QUICK.fit(interacting, 0).predict(interacting.rows), fitted.predict(interacting.rows))


def test_an_identity_never_trained_is_the_unknown_one(interacting: Dataset) -> None:
    seen = interacting.take((interacting.rows.victim != 3) & (interacting.rows.neighbour != 3))
    made = QUICK.fit(seen, 0)
    new = interacting.rows.take(interacting.rows.victim == 3)
    unknown = replace(new, victim=np.zeros_like(new.victim), neighbour=np.where(new.neighbour == 3, 0, new.neighbour))
    np.testing.assert_array_equal(made.predict(new), made.predict(unknown))


def test_an_unseen_domain_gets_the_effects_shared_by_all(fitted: FittedGp, interacting: Dataset) -> None:
    elsewhere = replace(interacting.rows, domain=np.zeros_like(interacting.rows.domain))
    apart = fitted.predict(interacting.rows) - fitted.predict(elsewhere)
    assert 0 < np.abs(apart).mean() < np.abs(interacting.log_slowdown).mean()


def test_beyond_the_row_limit_a_sample_of_rows_is_fitted(interacting: Dataset) -> None:
    part = replace(QUICK, max_rows=60).fit(interacting, 0)
    assert error(part, interacting) < 0.5 * error(MeanModel().fit(interacting, 0), interacting)


def test_absent_facts_and_a_single_job_can_be_fitted() -> None:
    small = build_dataset([world(additive, 3)], FeatureEncoder())
    blind = replace(small, rows=replace(small.rows, pairs=np.full_like(small.rows.pairs, np.nan)))
    made = QUICK.fit(blind, 0)
    assert np.isfinite(made.predict(blind.rows)).all()
    alone = small.take((small.rows.victim == 1) & (small.rows.neighbour == 1))
    assert QUICK.fit(alone, 0).predict(alone.rows) == pytest.approx(alone.log_slowdown, abs=0.2)


def test_the_gaussian_process_outweighs_the_trees_for_known_jobs_and_not_for_novel_ones() -> None:
    assert gp_weight(np.array([0.0, 0.05, 0.125, 0.2, 1.0])).tolist() == pytest.approx(
        [KNOWN, KNOWN, (KNOWN + NOVEL) / 2, NOVEL, NOVEL]
    )


def test_the_ensemble_lies_between_its_members(interacting: Dataset) -> None:
    made = EnsembleModel(gp=QUICK, gbdt=GbdtModel(rounds=50)).fit(interacting, 0)
    assert isinstance(made, FittedEnsemble)
    halves = np.stack([made.gp.predict(interacting.rows), made.gbdt.predict(interacting.rows)])
    answer = made.predict(interacting.rows)
    assert ((answer >= halves.min(0) - 1e-12) & (answer <= halves.max(0) + 1e-12)).all()
    np.testing.assert_allclose(answer, KNOWN * halves[0] + (1 - KNOWN) * halves[1])  # every job here is known
    moved = replace(interacting.rows, pairs=interacting.rows.pairs + np.float32(50))
    assert made.novelty(moved).mean() > 0.2
    halves = np.stack([made.gp.predict(moved), made.gbdt.predict(moved)])
    novel = made.novelty(moved) >= 0.2
    np.testing.assert_allclose(made.predict(moved)[novel], (NOVEL * halves[0] + (1 - NOVEL) * halves[1])[novel])
