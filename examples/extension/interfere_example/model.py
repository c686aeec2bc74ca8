"""A model that knows only how much each victim is slowed on average, beside the simplest model that ships."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere import load_table
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, PairRows, build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import select_models
from interfere.training.models.onnx_graph import PAIR_INPUTS, Graph


@dataclass(frozen=True)
class FittedVictimMean:
    """Mean log slowdown of each victim; of a victim that training never saw, that of all."""

    mean_log: NDArray[np.float64]  # float64[N + 1], by the identity of the victim; 0 is an unknown workload
    name: str = "victim-mean"

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Log slowdowns, float64[p]."""
        return self.mean_log[rows.victim]

    def to_onnx(self) -> bytes:
        """`pair.onnx`: one lookup."""
        graph = Graph(PAIR_INPUTS)
        return graph.serialised({"log_slowdown": graph.lookup(self.mean_log.astype(np.float32), "victim")})


@dataclass(frozen=True)
class VictimMean:
    """The settings: none."""

    name: ClassVar[str] = "victim-mean"

    def fit(self, dataset: Dataset, seed: int) -> FittedVictimMean:
        """Average the rows of each victim, by their weight."""
        victim, workloads = dataset.rows.victim, len(dataset.workloads)
        weight = np.bincount(victim, dataset.weight, minlength=workloads + 1)
        total = np.bincount(victim, dataset.weight * dataset.log_slowdown, minlength=workloads + 1)
        overall = float(np.average(dataset.log_slowdown, weights=dataset.weight))
        return FittedVictimMean(np.divide(total, weight, out=np.full(workloads + 1, overall), where=weight > 0))


if __name__ == "__main__":
    dataset = build_dataset([load_table("cpu")], FeatureEncoder())
    for evaluation in evaluate_models(dataset, (*select_models("mean"), VictimMean()), splits=("pair",)):
        print(evaluation.model, f"{evaluation.scores.mae:.4f}")  # MAE of speed on unseen pairs
