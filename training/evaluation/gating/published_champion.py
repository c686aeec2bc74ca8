"""The champion of the registry as the server reads it: its published folder, its graph, and what it was fitted on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.completion import FactCompletion, read_completion
from interfere.predict.manifest import Manifest, read_manifest
from interfere.predict.measured import PairKey, read_measured_table
from interfere.protocols import PairEncoder
from interfere.training.dataset import Dataset, Pair, PairRows, unordered_pair
from interfere.training.evaluation.gating.unseen_predictions import UnseenPredictions, read_unseen_predictions
from interfere.training.models.completed import complete_rows
from interfere.training.models.onnx_session import open_session, run_pair_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChampion:
    """A published champion. One that this program cannot run has no graph; only its model type can be compared."""

    number: int  # in the registry
    model: str  # one of `interfere.training.models.catalogue.MODELS`; "" where it is unknown
    manifest: Manifest | None
    graph: Any  # session of pair.onnx, or None
    fitted: frozenset[Pair]  # unordered pairs of its training
    # Log slowdown of each ordered pair of its training: (victim, neighbour, device type, mode).
    measured: Mapping[PairKey, float] = field(default_factory=dict)
    place: Mapping[PairKey, int] = field(default_factory=dict)  # of each of them in `unseen`
    unseen: UnseenPredictions | None = None  # None in folders of earlier releases
    completion: FactCompletion | None = None  # of absent facts; None in folders of earlier releases

    def predict(self, dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(log slowdown float64[p], bool[p] that is False where the champion does not know the domain)."""
        assert self.manifest is not None
        own_identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        own_domain = {domain: k + 1 for k, domain in enumerate(self.manifest.domains)}
        identity = np.array([0, *(own_identity.get(name, 0) for name in dataset.workloads)], dtype=np.int64)
        domain = np.array([own_domain.get(name, 0) for name in dataset.domains], dtype=np.int64)[dataset.domain]
        encoded = dataset.rows if self.completion is None else complete_rows(dataset.rows, self.completion)
        rows = PairRows(
            pairs=encoded.pairs,
            victim=identity[dataset.rows.victim],
            neighbour=identity[dataset.rows.neighbour],
            domain=domain,
        )
        return (run_pair_graph(self.graph, rows) if len(rows) else np.zeros(0)), domain > 0

    def unseen_predictions(self, dataset: Dataset) -> UnseenPredictions:
        """What its folds predicted for the rows of a dataset when they did not see them; NaN where it has none."""
        if self.unseen is None:
            nothing = np.full(len(dataset), np.nan)
            return UnseenPredictions(pair=nothing, own=nothing, others=nothing)
        place = np.array([self.place.get(key, -1) for key in pair_keys(dataset)], dtype=np.int64)
        found = self.unseen.take(np.maximum(place, 0))
        return UnseenPredictions(
            **{name: np.where(place < 0, np.nan, getattr(found, name)) for name in found.__dataclass_fields__}
        )

    def score(self, split: str, metric: str) -> float:
        """One score of its own training; NaN where it has none."""
        scores = {} if self.manifest is None else self.manifest.scores.get(split, {}).get(self.manifest.model, {})
        value = scores.get(metric)
        return math.nan if value is None else float(value)

    def was_fitted_on(self, dataset: Dataset) -> NDArray[np.bool_]:
        """bool[p]: rows of pairs of its training, on any device type."""
        return np.array([pair in self.fitted for pair in dataset.unordered_pairs], dtype=bool)[dataset.group]


def pair_keys(dataset: Dataset) -> list[PairKey]:
    """(victim, neighbour, device type, mode) of each row."""
    return [
        PairKey(
            dataset.workloads[victim - 1],
            dataset.workloads[neighbour - 1],
            dataset.domains[domain].device_type,
            dataset.domains[domain].mode,
        )
        for victim, neighbour, domain in zip(
            dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), dataset.domain.tolist(), strict=True
        )
    ]


def read_champion(number: int, model: str, folder: Path, encoder: PairEncoder) -> PublishedChampion:
    """The champion in `folder`, version `number`; without a graph where the folder must not be served."""
    try:
        manifest = read_manifest(folder, encoder.fingerprint)
        table = read_measured_table(folder, manifest)
        graph = open_session((folder / "pair.onnx").read_bytes())
        with np.load(folder / "arrays.npz") as arrays:
            completion, unseen = read_completion(arrays), read_unseen_predictions(arrays)
    except ModelError:
        return PublishedChampion(number=number, model=model, manifest=None, graph=None, fitted=frozenset())
    return PublishedChampion(
        number=number,
        model=manifest.model,
        manifest=manifest,
        graph=graph,
        fitted=frozenset(unordered_pair(key.victim, key.neighbour) for key in table),
        measured={key: math.log(row.slowdown) for key, row in table.items()},
        place={key: k for k, key in enumerate(table)},
        unseen=unseen,
        completion=completion,
    )
