"""Splits and baselines on the public tables have the known numbers of folds and the known errors."""

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.lucid import import_lucid
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.splits import folds
from interfere.training.models.additive import AdditiveModel, MeanModel
from tests.data.importers.public_files import public
from tests.training.baselines.stated_datasets import named


def built(name: str, imported: ImportResult) -> Dataset:
    return build_dataset([Table(name=name, jobs=tuple(imported.jobs), pairs=tuple(imported.pairs))], FeatureEncoder())


@pytest.fixture(scope="module")
def gavel() -> Dataset:
    return built("gavel", import_gavel(public("gavel/oracle_throughputs.json")))


@pytest.fixture(scope="module")
def lucid() -> Dataset:
    return built("lucid", import_lucid(public("lucid")))


def errors(dataset: Dataset, split: str, *models: object) -> list[float]:
    return [one.scores.mae for one in evaluate_models(dataset, models, splits=(split,))]  # type: ignore[arg-type]


def test_gavel_has_seven_groups_of_jobs_and_seven_families(gavel: Dataset) -> None:
    assert [len(folds(gavel, split, 0)) for split in ("pair", "job", "family", "device")] == [5, 7, 7, 3]
    assert {"ResNet-18", "ResNet-50"} <= {fold.hides for fold in folds(gavel, "family", 0)}


def test_lucid_has_eight_groups_of_jobs_and_nine_families(lucid: Dataset) -> None:
    assert [len(folds(lucid, split, 0)) for split in ("pair", "job", "family")] == [5, 8, 9]
    victims = {lucid.families[i - 1] for i in np.unique(lucid.rows.victim)}
    assert not {"PPO", "TD3"} & victims


def test_mean_and_additive_errors_on_gavel_are_the_known_ones(gavel: Dataset) -> None:
    assert errors(gavel, "pair", MeanModel(), AdditiveModel()) == pytest.approx([0.134, 0.044], abs=0.003)
    assert errors(gavel, "family", MeanModel(), AdditiveModel()) == pytest.approx([0.139, 0.108], abs=0.004)


def test_mean_and_additive_errors_on_lucid_are_the_known_ones(lucid: Dataset) -> None:
    assert errors(lucid, "pair", MeanModel(), AdditiveModel()) == pytest.approx([0.094, 0.052], abs=0.003)
    assert errors(lucid, "family", MeanModel(), AdditiveModel()) == pytest.approx([0.098, 0.082], abs=0.003)


def test_gavel_s_completion_has_its_known_errors_and_fails_at_forty_per_cent(gavel: Dataset) -> None:
    assert errors(gavel, "pair", named("gavel-completion")) == pytest.approx([0.061], abs=0.004)
    broken, soft, simple = errors(gavel, "sparse40", named("gavel-completion"), named("softimpute"), AdditiveModel())
    assert soft < simple < broken
