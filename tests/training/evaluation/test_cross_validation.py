"""Models side by side, and who wins."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from features.pair import Encoder
from interfere.data.tables import Table
from tests.training.worlds import additive, as_if_traced, summed, world
from training.baselines import AdditiveModel, FittedAdditive
from training.dataset import Dataset, Rows, build_dataset
from training.evaluation.cross_validation import (
    Evaluation,
    champion_of,
    cross_interval,
    evaluate_models,
    published_model,
    subject_of,
)
from training.evaluation.fact_ablation import Facts, views
from training.evaluation.splits import folds
from training.models.catalogue import MODELS, chosen
from training.models.gbdt import GbdtModel
from training.models.mlp import MlpModel


def test_the_additive_model_wins_an_additive_world(encoder: Encoder) -> None:
    made = build_dataset([world(summed, 8)], encoder)
    found = evaluate_models(made, chosen("mean,additive,gbdt"))
    assert [(e.split, e.model) for e in found] == [
        (s, m) for s in ("pair", "job") for m in ("mean", "additive", "gbdt")
    ]
    pair = {e.model: e.scores for e in found if e.split == "pair"}
    assert pair["additive"].mae < pair["gbdt"].mae < pair["mean"].mae
    assert pair["additive"].spearman > 0.95


def test_the_simpler_of_equal_models_is_champion(dataset: Dataset) -> None:
    mean, better = evaluate_models(dataset, chosen("mean,additive"), splits=("pair",))
    same = replace(better, scores=mean.scores)
    assert champion_of([same, mean]) == "mean"
    assert champion_of([better, mean]) == "additive"


def test_the_ensemble_is_champion_unless_another_is_clearly_better(dataset: Dataset) -> None:
    (one,) = evaluate_models(dataset, chosen("additive"), splits=("pair",))

    def scored(name: str, mae: float) -> Evaluation:
        return replace(one, model=name, scores=replace(one.scores, mae=mae))

    assert champion_of([scored("gp", 0.0200), scored("ensemble", 0.0209)]) == "ensemble"
    assert champion_of([scored("gp", 0.0200), scored("ensemble", 0.0211)]) == "gp"


def test_the_champion_is_best_over_both_splits_not_on_one(dataset: Dataset) -> None:
    found = evaluate_models(dataset, chosen("mean,additive,gbdt"))
    total = {m: np.mean([e.scores.mae for e in found if e.model == m]) for m in ("mean", "additive", "gbdt")}
    assert champion_of(found) == min(total, key=total.__getitem__)
    assert champion_of(found) != "mean"


def test_residuals_are_out_of_fold(dataset: Dataset) -> None:
    (one,) = evaluate_models(dataset, chosen("additive"), splits=("pair",))
    inside = np.abs(dataset.log_slowdown - MODELS["additive"].fit(dataset, 0).predict(dataset.rows)).mean()
    assert np.abs(one.residual(dataset)).mean() > inside
    assert sorted(one.index) == list(range(len(dataset)))


def test_the_same_seed_gives_identical_metrics(small_dataset: Dataset) -> None:
    models = (GbdtModel(rounds=40), MlpModel(members=2, epochs=40))
    first, again, other = (
        [e.scores for e in evaluate_models(small_dataset, models, splits=("pair",), seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_intervals_of_a_fold_come_from_the_others(dataset: Dataset) -> None:
    index, zero = np.arange(4), np.zeros(4)
    flat = replace(dataset.take(index), log_slowdown=np.array([1.0, 1.0, -5.0, -5.0]))
    given = {"novelty": zero, "partners": np.full(4, 9)}
    low, high = cross_interval(flat, index, zero, np.array([0, 0, 1, 1]), **given)
    assert low.tolist() == high.tolist() == [-5, -5, 1, 1]
    assert np.isnan(cross_interval(flat, index, zero, np.zeros(4, dtype=int), **given)).all()


def test_a_model_that_knows_what_is_novel_is_wider_there(dataset: Dataset) -> None:
    (same,) = evaluate_models(dataset, chosen("additive"), splits=("pair",))
    (wary,) = evaluate_models(dataset, [Wary()], splits=("pair",))
    assert same.predicted_log.tolist() == wary.predicted_log.tolist()
    assert (same.novelty == 0).all()
    assert set(wary.novelty.tolist()) == {0.0, 1.0}
    assert (wary.partners >= 4).all()
    assert wary.scores.width > 1.5 * same.scores.width


def test_the_worst_tenth_in_the_job_split_is_of_unseen_jobs(dataset: Dataset) -> None:
    found = []
    for part in folds(dataset, "job", 0):
        seen = set(dataset.rows.victim[part.train]) | set(dataset.rows.neighbour[part.train])
        rows = dataset.rows.take(part.test)
        asked = subject_of(dataset, part)
        assert not set(asked) & seen
        assert ((asked == rows.victim) | (asked == rows.neighbour)).all()
        found.append(set(asked))
    assert set.union(*found) == set(dataset.rows.victim)


def test_an_evaluation_tells_folds_and_device_types_apart(encoder: Encoder) -> None:
    fast = world(additive, 7, name="fast", device_type="fast")
    fast = replace(fast, jobs=tuple(replace(job, device_type="fast") for job in fast.jobs))
    both = build_dataset([world(additive, 7), fast], encoder)
    (one,) = evaluate_models(both, chosen("mean"), splits=("device",))
    assert [part.hides for part in one.folds] == ["cpu-core", "fast"]
    assert dict(one.per_device)["fast"] == pytest.approx(one.folds[1].mae)
    total = sum(part.mae * part.rows for part in one.folds) / sum(part.rows for part in one.folds)
    assert total == pytest.approx(one.scores.mae)


def test_what_is_published_is_chosen_on_the_rows_it_is_given(encoder: Encoder, dataset: Dataset) -> None:
    made = build_dataset([world(additive, 8)], encoder)
    assert published_model(made, chosen("mean,additive"), 0) == "additive"
    rng = np.random.default_rng(0)
    noise = replace(made, log_slowdown=rng.permutation(made.log_slowdown))
    assert published_model(noise, chosen("mean,additive,gbdt"), 0) == "mean"
    alone = made.take(made.rows.victim == made.rows.neighbour)
    assert published_model(alone.take(np.arange(3)), chosen("mean,additive"), 0) == "mean"  # too few to choose on


@dataclass(frozen=True)
class Wary:
    """The additive model, that calls every second workload novel."""

    name: str = "additive"

    def fit(self, dataset: Dataset, seed: int) -> "FittedWary":
        return FittedWary(AdditiveModel().fit(dataset, seed))


@dataclass(frozen=True)
class FittedWary:
    inner: FittedAdditive

    def predict(self, rows: Rows) -> np.ndarray:
        return self.inner.predict(rows)

    def novelty(self, rows: Rows) -> np.ndarray:
        return (rows.victim % 2).astype(float)


def test_a_view_shows_only_its_facts(small: Table) -> None:
    traced = replace(small, jobs=tuple(as_if_traced(job) for job in small.jobs))
    everything, measured, poor = views([traced])
    job = traced.jobs[0]
    shown = {
        view.facts: dict(
            zip(
                view.encoder.job_names,
                view.encoder.encode_jobs([view.tables[0].jobs[0]], job.device_type, "timeslice")[0].tolist(),
                strict=True,
            )
        )
        for view in (everything, measured, poor)
    }
    assert shown[Facts.ALL]["log_static_step_time_s"] == pytest.approx(math.log(0.5))
    assert math.isnan(shown[Facts.MEASURED]["log_static_step_time_s"])
    assert shown[Facts.MEASURED]["busy_frac"] == pytest.approx(job.busy_frac)
    assert math.isnan(shown[Facts.UTILISATION]["busy_frac"])
    assert shown[Facts.UTILISATION]["log_step_time_s"] == pytest.approx(math.log(job.step_time_s))
    assert shown[Facts.UTILISATION]["gpu_util_frac"] == pytest.approx(0.25)
