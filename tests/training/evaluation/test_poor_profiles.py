"""Jobs of which less is known: estimated better than as average jobs, and covered or abstained from."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.reports import document
from interfere.training.dataset import Dataset, PairRows, build_dataset
from interfere.training.evaluation.fewer_facts import (
    FITTED_WITHOUT,
    NO_STATIC,
    PROFILES,
    PoorProfileScore,
    columns_without_static,
    hide_facts,
    poor_profiles_section,
    score_poor_profiles,
)
from interfere.training.evaluation.splits import Fold, folds
from interfere.training.models.additive import AdditiveModel
from interfere.training.models.completed import CompletedModel, jobs_of_rows
from interfere.training.models.gbdt import GbdtModel
from interfere.training.models.gp.model import GpModel
from tests.training.worlds import as_if_traced

FOLDS = 2


@pytest.fixture(scope="module")
def scores(dataset: Dataset) -> dict[str, PoorProfileScore]:
    found = score_poor_profiles(dataset, CompletedModel(inner=GpModel()), "job", 0, FOLDS)
    return {row.facts: row for row in found}


def _asked(dataset: Dataset, fold: Fold, visible: frozenset[str]) -> PairRows:
    """The tests of a fold, where jobs that no training row shows keep the visible columns alone."""
    seen = np.concatenate([dataset.rows.victim[fold.train], dataset.rows.neighbour[fold.train]])
    return hide_facts(dataset.rows.take(fold.test), visible, seen)


def test_only_hidden_jobs_lose_facts(small: Table) -> None:
    dataset = build_dataset([small], FeatureEncoder())
    fold = folds(dataset, "job", 0)[0]
    visible = PROFILES["step time alone"]
    rows, before = _asked(dataset, fold, visible), dataset.rows.take(fold.test)
    seen = set(dataset.rows.victim[fold.train].tolist()) | set(dataset.rows.neighbour[fold.train].tolist())
    for jobs, kept, identity in zip(
        jobs_of_rows(rows), jobs_of_rows(before), (rows.victim, rows.neighbour), strict=True
    ):
        known = np.array([k in seen for k in identity.tolist()])
        np.testing.assert_array_equal(jobs[known], kept[known])
        assert (~np.isnan(jobs[~known])).sum() < (~np.isnan(kept[~known])).sum()


def test_every_group_of_facts_that_the_table_has_is_hidden_in_turn(scores: dict[str, PoorProfileScore]) -> None:
    assert next(iter(scores)) == "all facts"
    assert {"no timeline", "no kernels", "no memory", "step time alone"} <= set(scores)
    assert "no counters" not in scores  # the shipped table has none
    (table,) = poor_profiles_section("title", tuple(scores.values())).parts
    assert isinstance(table, document.Table)
    assert [row[0] for row in table.rows] == list(scores)


def test_a_job_known_by_its_step_time_is_abstained_from_or_covered(scores: dict[str, PoorProfileScore]) -> None:
    poor, full = scores["step time alone"], scores["all facts"]
    assert poor.mae > full.mae
    assert poor.abstained > 0.5 or poor.coverage >= min(0.85, full.coverage)  # eight jobs: even rich ones cover less


def test_estimated_facts_err_less_than_average_ones(dataset: Dataset) -> None:
    completed, centred = [], []
    for fold in folds(dataset, "job", 0, FOLDS):
        rows, fitted = (
            _asked(dataset, fold, PROFILES["no kernels"]),
            CompletedModel(inner=GpModel()).fit(dataset.take(fold.train), 0),
        )
        measured = speed(dataset.log_slowdown[fold.test])
        completed += np.abs(speed(fitted.predict(rows)) - measured).tolist()
        centred += np.abs(speed(fitted.inner.predict(rows)) - measured).tolist()
    assert np.mean(completed) < np.mean(centred)


def test_jobs_without_static_facts_are_asked_about_where_a_table_has_some(small: Table) -> None:
    traced = replace(small, jobs=tuple(as_if_traced(job) for job in small.jobs))
    left = columns_without_static([traced])
    assert {"log_step_time_s", "gpu_util_frac", "busy_frac"} <= left
    assert not left & {"log_static_step_time_s", "log_step_over_static", "log_memory_model_mib"}
    trees = CompletedModel(inner=GbdtModel(rounds=20))
    dataset = build_dataset([traced], FeatureEncoder())
    found = {row.facts: row for row in score_poor_profiles(dataset, trees, "job", 0, FOLDS, left)}
    parts = folds(dataset, "job", 0, FOLDS)
    asked = [(trees.fit(dataset.take(each.train), 0), _asked(dataset, each, left), each.test) for each in parts]
    errors = [np.abs(speed(model.predict(rows)) - speed(dataset.log_slowdown[test])) for model, rows, test in asked]
    assert found[NO_STATIC].mae == pytest.approx(float(np.concatenate(errors).mean()))
    assert found[NO_STATIC].mae_fitted_without != found[NO_STATIC].mae
    untraced = build_dataset([small], FeatureEncoder())
    assert NO_STATIC not in {
        row.facts for row in score_poor_profiles(untraced, trees, "job", 0, FOLDS, columns_without_static([small]))
    }


def test_a_model_that_reads_no_facts_errs_the_same_whatever_is_hidden(small: Table) -> None:
    dataset = build_dataset([small], FeatureEncoder())
    found = score_poor_profiles(dataset, CompletedModel(inner=AdditiveModel()), "job", 0, FOLDS)
    assert len({row.mae for row in found}) == 1
    for row in found:
        without = row.mae_fitted_without
        assert without == row.mae if row.facts in FITTED_WITHOUT else math.isnan(without)
