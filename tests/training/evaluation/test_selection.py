"""The published model is selected by both splits, the simpler of equals, on training rows alone."""

from dataclasses import replace

import numpy as np

from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.candidates import select_champion
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.models.catalogue import select_models
from tests.training.selection import select_on_training_rows
from tests.training.worlds import additive, world


def test_the_simpler_of_equal_models_is_champion(dataset: Dataset) -> None:
    mean, better = evaluate_models(dataset, select_models("mean,additive"), splits=("pair",))
    same = replace(better, scores=mean.scores)
    assert select_champion([same, mean]) == "mean"
    assert select_champion([better, mean]) == "additive"


def test_the_ensemble_is_champion_unless_another_is_clearly_better(dataset: Dataset) -> None:
    (one,) = evaluate_models(dataset, select_models("additive"), splits=("pair",))

    def scored(name: str, mae: float) -> Evaluation:
        return replace(one, model=name, scores=replace(one.scores, mae=mae))

    assert select_champion([scored("gp", 0.0200), scored("ensemble", 0.0209)]) == "ensemble"
    assert select_champion([scored("gp", 0.0200), scored("ensemble", 0.0211)]) == "gp"


def test_the_champion_is_best_over_both_splits_not_on_one(dataset: Dataset) -> None:
    found = evaluate_models(dataset, select_models("mean,additive,gbdt"))
    total = {m: np.mean([e.scores.mae for e in found if e.model == m]) for m in ("mean", "additive", "gbdt")}
    assert select_champion(found) == min(total, key=total.__getitem__)
    assert select_champion(found) != "mean"


def test_nested_selection_uses_only_the_given_rows(encoder: FeatureEncoder, dataset: Dataset) -> None:
    made = build_dataset([world(additive, 8)], encoder)
    assert select_on_training_rows(made, select_models("mean,additive"), 0) == "additive"
    rng = np.random.default_rng(0)
    noise = replace(made, log_slowdown=rng.permutation(made.log_slowdown))
    assert select_on_training_rows(noise, select_models("mean,additive,gbdt"), 0) == "mean"
    too_few = made.take(made.rows.victim == made.rows.neighbour).take(np.arange(3))
    assert select_on_training_rows(too_few, select_models("mean,additive"), 0) == "mean"
