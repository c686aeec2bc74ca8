"""Compares a challenger with the published champion: selects the tests of both, and asks the gate for its verdict.

`gate` states which rows are tests, and the rule.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.gating.comparison import PairedPredictions
from interfere.training.evaluation.gating.gate import MIN_ROWS, MIN_WORKLOADS, SideTests, Verdict, judge, refused_labels
from interfere.training.evaluation.gating.label_drift import label_contradiction
from interfere.training.evaluation.gating.published_champion import PublishedChampion
from interfere.training.evaluation.gating.unseen_predictions import unseen_predictions
from interfere.training.evaluation.sides import Side
from interfere.training.models.protocols import FittedModel

GATE_BASELINES = ("mean", "additive")
FIRST_MODEL = "first model of this registry"


def gate_verdict(
    challenger: FittedModel,
    champion: PublishedChampion | None,
    training_set: Dataset,
    held_out: Dataset,
    evaluations: Sequence[Evaluation],
    *,
    seed: int,
) -> Verdict:
    """The gate's verdict on a challenger fitted on `training_set`; `evaluations` are out of fold, of every model."""
    # 1. Compare with the baselines out of fold.
    by_split_and_model = {(e.split, e.model): e for e in evaluations}
    splits = dict.fromkeys(e.split for e in evaluations)

    def on_same_folds(split: str, model: str) -> PairedPredictions:
        own = by_split_and_model[split, challenger.name]
        return _tests_on_folds(training_set, own, by_split_and_model[split, model])

    baselines = [
        (f"{name} on split {split}", on_same_folds(split, name))
        for split in splits
        for name in GATE_BASELINES
        if name != challenger.name and (split, name) in by_split_and_model
    ]
    # 2. The first model of a registry has to beat only these.
    if champion is None:
        return judge([], FIRST_MODEL, baselines=baselines, seed=seed)
    # 3. Refuse labels that contradict what the champion knows: every model agrees with the labels it was fitted on.
    label = f"champion version {champion.number}"
    if contradiction := label_contradiction(training_set, champion):
        return refused_labels(label, contradiction)
    # 4. Compare both on the trusted rows, each row predicted by folds that hid it.
    own_evaluations = [evaluation for evaluation in evaluations if evaluation.model == challenger.name]
    trusted, sides = _trusted_tests(champion, training_set, own_evaluations)
    if _is_enough(trusted):
        baselines.append((f"{label} on {len(trusted)} trusted rows, each hidden from both", trusted))
    # 5. Prefer rows that neither model was fitted on.
    if champion.graph is not None:
        unseen = _tests_unseen_by_both(
            challenger, champion, training_set, held_out, by_split_and_model["pair", challenger.name]
        )
        if _is_enough(unseen):
            against = f"{label} on {len(unseen)} rows unseen by both"
            return judge([unseen], against, baselines=baselines, sides=sides, seed=seed)
    if _is_enough(trusted):
        name, _ = baselines.pop()
        return judge([trusted], name, baselines=baselines, sides=sides, seed=seed)
    # 6. Else compare the two model types on the same folds, if the champion's type was fitted here.
    if ("pair", champion.model) not in by_split_and_model:
        return judge([], f"nothing to compare {label} ({champion.model}) on", baselines=baselines, seed=seed)
    tests = [on_same_folds(split, champion.model) for split in splits]
    return judge(tests, f"{label}'s model type ({champion.model}) on the same folds", baselines=baselines, seed=seed)


def _is_enough(tests: PairedPredictions) -> bool:
    return len(tests) >= MIN_ROWS and len(tests.workloads) >= MIN_WORKLOADS


def _trusted_tests(
    champion: PublishedChampion, training_set: Dataset, evaluations: Sequence[Evaluation]
) -> tuple[PairedPredictions, tuple[SideTests, ...]]:
    """The measured rows that both were fitted on, predicted by folds that hid the pair; and those of both sides."""
    own, published = unseen_predictions(training_set, evaluations), champion.unseen_predictions(training_set)

    def tests(field: str) -> PairedPredictions:
        challenger_log, champion_log = getattr(own, field), getattr(published, field)
        rows = ~(training_set.observed | training_set.aligned) & np.isfinite(challenger_log) & np.isfinite(champion_log)
        return PairedPredictions(
            domain=training_set.domain[rows],
            victim=training_set.rows.victim[rows],
            neighbour=training_set.rows.neighbour[rows],
            measured=training_set.log_slowdown[rows],
            challenger=challenger_log[rows],
            champion=champion_log[rows],
        )

    coverage = {e.split: asdict(e.scores) for e in evaluations}.get("job", {})
    sides = (
        SideTests(
            side=side,
            tests=tests(side),
            coverage=coverage.get(f"coverage_{side}", math.nan),
            champion_coverage=champion.score("job", f"coverage_{side}"),
        )
        for side in Side
    )
    return tests("pair"), tuple(side for side in sides if _is_enough(side.tests))


def _tests_on_folds(dataset: Dataset, challenger: Evaluation, champion: Evaluation) -> PairedPredictions:
    """The out-of-fold tests of two models on one split."""
    assert np.array_equal(challenger.index, champion.index), "both models were tested on the same folds"
    index = challenger.index
    return PairedPredictions(
        domain=dataset.domain[index],
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        measured=dataset.log_slowdown[index],
        challenger=challenger.predicted_log,
        champion=champion.predicted_log,
    )


def _tests_unseen_by_both(
    challenger: FittedModel,
    champion: PublishedChampion,
    training_set: Dataset,
    held_out: Dataset,
    pair_evaluation: Evaluation,
) -> PairedPredictions:
    """Held-out rows, predicted by the challenger itself, and rows new since the champion, predicted by its folds."""
    held_out = held_out.take(~champion.was_fitted_on(held_out))
    is_new = ~champion.was_fitted_on(training_set)[pair_evaluation.index]
    new = training_set.take(pair_evaluation.index[is_new])
    predictions = ((held_out, challenger.predict(held_out.rows)), (new, pair_evaluation.predicted_log[is_new]))
    parts = []
    for rows, by_challenger in predictions:
        by_champion, known = champion.predict(rows)
        parts.append(
            (
                rows.domain[known],
                rows.rows.victim[known],
                rows.rows.neighbour[known],
                rows.log_slowdown[known],
                by_challenger[known],
                by_champion[known],
            )
        )
    domain, victim, neighbour, measured, challenger_log, champion_log = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    return PairedPredictions(
        domain=domain,
        victim=victim,
        neighbour=neighbour,
        measured=measured,
        challenger=challenger_log,
        champion=champion_log,
    )
