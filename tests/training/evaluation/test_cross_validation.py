"""Cross-validation: residuals out of fold, intervals across folds, scores of folds and devices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.study.engine import Document, Runner, in_this_process
from interfere.study.engines.catalogue import in_processes
from interfere.training.dataset import Dataset, PairRows, build_dataset
from interfere.training.evaluation.cross_validation import (
    CrossValidation,
    cross_fold_interval,
    evaluate_models,
    subject_jobs,
)
from interfere.training.evaluation.splits import folds
from interfere.training.models.additive import AdditiveModel, FittedAdditive
from interfere.training.models.catalogue import MODELS, select_models
from interfere.training.models.gbdt import GbdtModel
from interfere.training.models.mlp import MlpModel
from tests.training.worlds import additive, summed, world


def test_the_additive_model_wins_an_additive_world(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(summed, 8)], encoder)
    found = evaluate_models(made, select_models("mean,additive,gbdt"))
    assert [(e.split, e.model) for e in found] == [
        (s, m) for s in ("pair", "job") for m in ("mean", "additive", "gbdt")
    ]
    pair = {e.model: e.scores for e in found if e.split == "pair"}
    assert pair["additive"].mae < pair["gbdt"].mae < pair["mean"].mae
    assert pair["additive"].spearman > 0.95


def test_residuals_are_out_of_fold(dataset: Dataset) -> None:
    (one,) = evaluate_models(dataset, select_models("additive"), splits=("pair",))
    inside = np.abs(dataset.log_slowdown - MODELS["additive"].fit(dataset, 0).predict(dataset.rows)).mean()
    assert np.abs(one.residual(dataset)).mean() > inside
    assert sorted(one.index) == list(range(len(dataset)))


def test_the_same_seed_gives_identical_metrics(small_dataset: Dataset) -> None:
    models = (GbdtModel(rounds=40), MlpModel(members=2, epochs=40))
    first, again, other = (
        [e.scores for e in evaluate_models(small_dataset, models, splits=("pair",), seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_intervals_of_a_fold_are_calibrated_on_the_others(dataset: Dataset) -> None:
    index, zero = np.arange(4), np.zeros(4)
    flat = replace(dataset.take(index), log_slowdown=np.array([1.0, 1.0, -5.0, -5.0]))
    given = {"novelty": zero, "partners": np.full(4, 9)}
    low, high = cross_fold_interval(flat, index, zero, np.array([0, 0, 1, 1]), **given)
    assert low.tolist() == high.tolist() == [-5, -5, 1, 1]
    assert np.isnan(cross_fold_interval(flat, index, zero, np.zeros(4, dtype=int), **given)).all()


def test_a_model_with_novelty_has_wider_intervals_for_novel_pairs(dataset: Dataset) -> None:
    (same,) = evaluate_models(dataset, select_models("additive"), splits=("pair",))
    (wary,) = evaluate_models(dataset, [Wary()], splits=("pair",))
    assert same.predicted_log.tolist() == wary.predicted_log.tolist()
    assert (same.novelty == 0).all()
    assert set(wary.novelty.tolist()) == {0.0, 1.0}
    assert (wary.partners >= 4).all()
    assert wary.scores.width > 1.5 * same.scores.width


def test_the_tested_jobs_of_the_job_split_are_the_unseen_ones(dataset: Dataset) -> None:
    found = []
    for part in folds(dataset, "job", 0):
        seen = set(dataset.rows.victim[part.train]) | set(dataset.rows.neighbour[part.train])
        rows = dataset.rows.take(part.test)
        asked = subject_jobs(dataset, part)
        assert not set(asked) & seen
        assert ((asked == rows.victim) | (asked == rows.neighbour)).all()
        found.append(set(asked))
    assert set.union(*found) == set(dataset.rows.victim)


def test_an_evaluation_scores_folds_and_device_types_separately(encoder: FeatureEncoder) -> None:
    fast = world(additive, 7, name="fast", device_type="fast")
    fast = replace(fast, jobs=tuple(replace(job, device_type="fast") for job in fast.jobs))
    both = build_dataset([world(additive, 7), fast], encoder)
    (one,) = evaluate_models(both, select_models("mean"), splits=("device",))
    assert [part.hides for part in one.folds] == ["cpu-core", "fast"]
    assert dict(one.per_device)["fast"] == pytest.approx(one.folds[1].mae)
    total = sum(part.mae * part.rows for part in one.folds) / sum(part.rows for part in one.folds)
    assert total == pytest.approx(one.scores.mae)


@dataclass(frozen=True)
class Wary:
    """The additive model, that calls every second workload novel."""

    name: str = "additive"

    def fit(self, dataset: Dataset, seed: int) -> "FittedWary":
        return FittedWary(AdditiveModel().fit(dataset, seed))


@dataclass(frozen=True)
class FittedWary:
    inner: FittedAdditive

    def predict(self, rows: PairRows) -> np.ndarray:
        return self.inner.predict(rows)

    def novelty(self, rows: PairRows) -> np.ndarray:
        return (rows.victim % 2).astype(float)


def test_folds_are_the_same_for_any_number_of_processes_and_an_interrupted_run_goes_on(
    small_dataset: Dataset, tmp_path: Path
) -> None:
    models, told = select_models("mean,additive,gbdt"), list[str]()
    here = evaluate_models(small_dataset, models)
    there = evaluate_models(small_dataset, models, runner=Runner(engine=in_processes(2)))

    def interrupted_after_three(work: Any, inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        yield from islice(in_this_process(work, inputs, tasks), 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_models(small_dataset, models, runner=Runner(engine=interrupted_after_three, folder=tmp_path))
    again = evaluate_models(small_dataset, models, runner=Runner(folder=tmp_path, report=told.append))
    assert told[0].startswith("3 of ")
    assert " were done before" in told[0]
    for found in (there, again):
        for one, other in zip(here, found, strict=True):
            assert (one.split, one.model, one.folds) == (other.split, other.model, other.folds)
            assert repr(one.scores) == repr(other.scores)
            assert np.array_equal(one.predicted_log, other.predicted_log)


def test_results_of_other_rows_or_models_are_never_taken_for_these(small_dataset: Dataset) -> None:
    def digest(dataset: Dataset, models: str, seed: int = 0) -> str:
        return CrossValidation(dataset=dataset, models=select_models(models), split="pair", seed=seed).digest()

    slower = replace(small_dataset, log_slowdown=small_dataset.log_slowdown + 1e-9)
    found = {digest(small_dataset, "mean"), digest(slower, "mean"), digest(small_dataset, "additive")}
    assert len(found | {digest(small_dataset, "mean", seed=1)}) == 4
    assert digest(small_dataset, "mean") in found
