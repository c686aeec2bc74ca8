"""Compares a challenger with the published champion: selects the tests of both, and asks the gate for its verdict.

The tests are rows that neither was fitted on where there are enough, else the same folds; `gate` states the rule. The
champion of the registry is read from its published folder, as the server reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.manifest import Manifest, read_manifest
from interfere.predict.measured import read_measured_table
from interfere.protocols import PairEncoder
from training.dataset import Dataset, Pair, PairRows, unordered_pair
from training.evaluation.cross_validation import Evaluation
from training.evaluation.gate import MIN_ROWS, MIN_WORKLOADS, PairedPredictions, Verdict, judge
from training.models.onnx_session import open_session, run_pair_graph
from training.models.protocols import FittedModel

GATE_BASELINES = ("mean", "additive")
FIRST_MODEL = "first model of this registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChampion:
    """A published champion. One that this program cannot run has no graph; only its model type can be compared."""

    number: int  # in the registry
    model: str  # one of `training.models.catalogue.MODELS`; "" where it is unknown
    manifest: Manifest | None
    graph: Any  # session of pair.onnx, or None
    fitted: frozenset[Pair]  # unordered pairs of its training

    def predict(self, dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(log slowdown float64[p], bool[p] that is False where the champion does not know the domain)."""
        assert self.manifest is not None
        own_identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        own_domain = {domain: k + 1 for k, domain in enumerate(self.manifest.domains)}
        identity = np.array([0, *(own_identity.get(name, 0) for name in dataset.workloads)], dtype=np.int64)
        domain = np.array([own_domain.get(name, 0) for name in dataset.domains], dtype=np.int64)[dataset.domain]
        rows = PairRows(
            pairs=dataset.rows.pairs,
            victim=identity[dataset.rows.victim],
            neighbour=identity[dataset.rows.neighbour],
            domain=domain,
        )
        return (run_pair_graph(self.graph, rows) if len(rows) else np.zeros(0)), domain > 0

    def was_fitted_on(self, dataset: Dataset) -> NDArray[np.bool_]:
        """bool[p]: rows of pairs of its training, on any device type."""
        return np.array([pair in self.fitted for pair in dataset.unordered_pairs], dtype=bool)[dataset.group]


def read_champion(number: int, model: str, folder: Path, encoder: PairEncoder) -> PublishedChampion:
    """The champion in `folder`, version `number`; without a graph where the folder must not be served."""
    try:
        manifest = read_manifest(folder, encoder.fingerprint)
        fitted = frozenset(unordered_pair(key.victim, key.neighbour) for key in read_measured_table(folder, manifest))
        graph = open_session((folder / "pair.onnx").read_bytes())
    except ModelError:
        return PublishedChampion(number=number, model=model, manifest=None, graph=None, fitted=frozenset())
    return PublishedChampion(number=number, model=manifest.model, manifest=manifest, graph=graph, fitted=fitted)


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
    # 3. Prefer rows that neither model was fitted on.
    label = f"champion version {champion.number}"
    if champion.graph is not None:
        unseen = _tests_unseen_by_both(
            challenger, champion, training_set, held_out, by_split_and_model["pair", challenger.name]
        )
        if len(unseen) >= MIN_ROWS and len(unseen.workloads) >= MIN_WORKLOADS:
            return judge([unseen], f"{label} on {len(unseen)} rows unseen by both", baselines=baselines, seed=seed)
    # 4. Else compare the two model types on the same folds, if the champion's type was fitted here.
    if ("pair", champion.model) not in by_split_and_model:
        return judge([], f"nothing to compare {label} ({champion.model}) on", baselines=baselines, seed=seed)
    tests = [on_same_folds(split, champion.model) for split in splits]
    return judge(tests, f"{label}'s model type ({champion.model}) on the same folds", baselines=baselines, seed=seed)


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
