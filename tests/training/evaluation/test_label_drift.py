"""Labels that contradict the champion's measurements or predictions are refused; repeated measurements are not."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.records import PairMeasurement
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.champion import PublishedChampion, read_champion
from interfere.training.evaluation.drift import label_contradiction
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import champion_folder
from interfere.training.retrain import RetrainOutcome, retrain
from tests.training.cheap_models import CHEAP_MODELS

LESS_EXCESS = 0.55


def relabelled(table: Table, label: Callable[[PairMeasurement], float]) -> Table:
    """The table with other slowdowns of its pairs."""
    pairs = []
    for pair in table.ok_pairs:
        slowdown = label(pair)
        pairs.append(replace(pair, slowdown=slowdown, lower=slowdown * 0.98, upper=slowdown * 1.02))
    return replace(table, pairs=tuple(pairs))


def less_excess(pair: PairMeasurement) -> float:
    return 1.0 + LESS_EXCESS * (pair.slowdown - 1.0)


@pytest.fixture(scope="module")
def work(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("work")
    train([small_folder], place, models=CHEAP_MODELS)
    return place


@pytest.fixture(scope="module")
def champion(work: Path, encoder: FeatureEncoder) -> PublishedChampion:
    return read_champion(1, "", champion_folder(work), encoder)


def test_the_same_labels_and_noisy_repetitions_are_no_contradiction(
    champion: PublishedChampion, small: Table, encoder: FeatureEncoder
) -> None:
    assert label_contradiction(build_dataset([small], encoder), champion) == ""
    rng = np.random.default_rng(0)
    noisy = relabelled(small, lambda pair: pair.slowdown * math.exp(rng.normal(0, 0.05)))
    assert label_contradiction(build_dataset([small, noisy], encoder), champion) == ""


def test_labels_with_less_excess_are_a_contradiction(
    champion: PublishedChampion, small: Table, encoder: FeatureEncoder
) -> None:
    wrong = relabelled(small, less_excess)
    for tables in ([wrong], [small, wrong]):
        reason = label_contradiction(build_dataset(tables, encoder), champion)
        assert "measured before differ by more than" in reason
        assert "new ÷ old 0." in reason


def test_a_part_measured_again_with_other_results_is_a_contradiction(
    champion: PublishedChampion, small: Table, encoder: FeatureEncoder
) -> None:
    part = relabelled(replace(small, pairs=small.pairs[:24]), lambda pair: 1.3 * pair.slowdown)
    assert label_contradiction(build_dataset([small, part], encoder), champion) != ""
    few = replace(part, pairs=part.pairs[:4])
    assert label_contradiction(build_dataset([small, few], encoder), champion) == ""


def test_retraining_on_labels_with_less_excess_is_refused_with_the_reason(
    work: Path, small: Table, tmp_path: Path
) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    write_table(folder, relabelled(small, less_excess))
    served = (champion_folder(work) / "manifest.json").read_bytes()
    result = retrain([folder], work, store=tmp_path / "store.db", models=CHEAP_MODELS)
    assert result.outcome is RetrainOutcome.REFUSED
    assert result.reason.startswith("refused: the labels contradict what champion version 1 was trained on: ")
    assert (champion_folder(work) / "manifest.json").read_bytes() == served
