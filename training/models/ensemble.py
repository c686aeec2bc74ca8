"""An ensemble of a Gaussian process and trees: the mean of their log slowdowns, weighted by the novelty of the pair.

The trees read only columns of single jobs, so that both members factorise over jobs and `pair.onnx` and `matrix.onnx`
express the same model.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.novelty import JobSpace
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.gbdt import ABSENT, FittedGbdt, GbdtModel
from interfere.training.models.gp.model import FittedGp, GpModel
from interfere.training.models.gp.posterior import gp_weight
from interfere.training.models.onnx_graph import (
    MATRIX_INPUTS,
    MATRIX_OUTPUTS,
    PAIR_INPUTS,
    Graph,
    matrix_module_to_onnx,
    pair_module_to_onnx,
)

Floats = NDArray[np.float64]

# A product of 3,200 leaves costs 0.1-0.3 µs a pair. On unseen jobs and families of two public tables these trees err
# like those of `GbdtModel()`, which also read how the jobs contend.
FACTORISING_TREES = GbdtModel(contention=False, leaves=8, rounds=400, learning_rate=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedEnsemble:
    """The fitted Gaussian process and the fitted trees."""

    name: str
    gp: FittedGp
    gbdt: FittedGbdt

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        weight = gp_weight(self.novelty(rows))
        return np.asarray(weight * self.gp.predict(rows) + (1.0 - weight) * self.gbdt.predict(rows))

    @property
    def space(self) -> JobSpace:
        """Return the space of the known jobs, by which novelty is measured."""
        return self.gp.space

    def novelty(self, rows: PairRows) -> Floats:
        """Return the novelty of each pair, float64[p] in [0, 1]."""
        return self.gp.novelty(rows)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`: both members' graphs on the same inputs, and their weighted sum."""
        from interfere.training.models.gp.graph import GpPairGraph

        posterior, graph = self.gp.posterior, Graph(PAIR_INPUTS)
        weighted_gp = GpPairGraph(posterior, weighted=True)
        graph.include("gp/", pair_module_to_onnx(weighted_gp, posterior.pair_columns, ["weighted", "gbdt_weight"]))
        graph.include("gbdt/", self.gbdt.to_onnx())
        trees = graph("Mul", "gbdt/log_slowdown", "gp/gbdt_weight")
        return graph.serialised({"log_slowdown": graph("Add", "gp/weighted", trees)})

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`: both members' matrix graphs and their weighted sum per direction."""
        from interfere.training.models.gp.graph import GpMatrixGraph

        posterior, graph = self.gp.posterior, Graph(MATRIX_INPUTS)
        outputs = [*(f"weighted_{name}" for name in MATRIX_OUTPUTS), "gbdt_weight"]
        weighted_gp = GpMatrixGraph(posterior, weighted=True)
        graph.include("gp/", matrix_module_to_onnx(weighted_gp, posterior.job_columns, outputs))
        graph.include("gbdt/", self.gbdt.factors(posterior.job_columns).matrix_graph(ABSENT))
        return graph.serialised(
            {
                name: graph("Add", f"gp/weighted_{name}", graph("Mul", f"gbdt/{name}", "gp/gbdt_weight"))
                for name in MATRIX_OUTPUTS
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleModel:
    """The settings of the Gaussian process and of the trees."""

    gp: GpModel = field(default_factory=GpModel)
    gbdt: GbdtModel = FACTORISING_TREES
    name: ClassVar[str] = "ensemble"

    def fit(self, dataset: Dataset, seed: int) -> FittedEnsemble:
        """Fit both members on all rows."""
        return self.combine(self.gp.fit(dataset, seed), self.gbdt.fit(dataset, seed))

    def combine(self, gp: FittedGp, gbdt: FittedGbdt) -> FittedEnsemble:
        """Return the ensemble of two members that are already fitted."""
        return FittedEnsemble(name=self.name, gp=gp, gbdt=gbdt)
