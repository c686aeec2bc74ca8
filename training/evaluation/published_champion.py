"""The champion of the registry as the server reads it: its published folder, its graph, and what it was fitted on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.manifest import Manifest, read_manifest
from interfere.predict.measured import read_measured_table
from interfere.protocols import PairEncoder
from training.dataset import Dataset, Pair, PairRows, unordered_pair
from training.models.onnx_session import open_session, run_pair_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChampion:
    """A published champion. One that this program cannot run has no graph; only its model type can be compared."""

    number: int  # in the registry
    model: str  # one of `training.models.catalogue.MODELS`; "" where it is unknown
    manifest: Manifest | None
    graph: Any  # session of pair.onnx, or None
    fitted: frozenset[Pair]  # unordered pairs of its training
    # Log slowdown of each ordered pair of its training: (victim, neighbour, device type, mode).
    measured: Mapping[tuple[str, str, str, str], float] = field(default_factory=dict)

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
        table = read_measured_table(folder, manifest)
        graph = open_session((folder / "pair.onnx").read_bytes())
    except ModelError:
        return PublishedChampion(number=number, model=model, manifest=None, graph=None, fitted=frozenset())
    return PublishedChampion(
        number=number,
        model=manifest.model,
        manifest=manifest,
        graph=graph,
        fitted=frozenset(unordered_pair(key.victim, key.neighbour) for key in table),
        measured={
            (key.victim, key.neighbour, key.device_type, key.mode): math.log(row.slowdown) for key, row in table.items()
        },
    )
