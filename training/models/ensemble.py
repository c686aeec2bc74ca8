"""Gaussian process and trees in one: a weighted mean of log slowdown, steered by how new the two jobs are."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.novelty import JobSpace
from training.dataset import Dataset, Rows
from training.models.ensemble_weight import gp_share
from training.models.gbdt import FittedGbdt, GbdtModel
from training.models.gp import FittedGp, GpModel
from training.models.onnx_graph import joined

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedEnsemble:
    """Both halves."""

    name: str
    gp: FittedGp
    gbdt: FittedGbdt

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""
        share = gp_share(self.novelty(rows))
        return np.asarray(share * self.gp.predict(rows) + (1.0 - share) * self.gbdt.predict(rows))

    @property
    def space(self) -> JobSpace:
        """Where the known jobs lie."""
        return self.gp.space

    def novelty(self, rows: Rows) -> Floats:
        """Of each pair, float64[p] in [0, 1]."""
        return self.gp.novelty(rows)

    def threshold_rows(self, rows: Rows) -> Rows:
        """Those of the trees."""
        return self.gbdt.threshold_rows(rows)

    def to_onnx(self) -> bytes:
        """`pair.onnx`: both graphs side by side, and their weighted sum."""
        import onnx.helper as h

        from training.models.gp_graph import GpShareGraph
        from training.models.torch_graph import export_pairs

        shared = export_pairs(GpShareGraph(self.gp), self.gp.pair_columns, ["part", "rest"])
        nodes = [
            h.make_node("Mul", ["gbdt/log_slowdown", "gp/rest"], ["gbdt/part"]),
            h.make_node("Add", ["gp/part", "gbdt/part"], ["log_slowdown"]),
        ]
        return joined({"gp/": shared, "gbdt/": self.gbdt.to_onnx()}, nodes, {"log_slowdown": ["p"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleModel:
    """Settings of both halves."""

    gp: GpModel = field(default_factory=GpModel)
    gbdt: GbdtModel = field(default_factory=GbdtModel)
    name: ClassVar[str] = "ensemble"

    def fit(self, dataset: Dataset, seed: int) -> FittedEnsemble:
        """Each half on all rows."""
        return self.of(self.gp.fit(dataset, seed), self.gbdt.fit(dataset, seed))

    def of(self, gp: FittedGp, gbdt: FittedGbdt) -> FittedEnsemble:
        """The ensemble of two halves that are fitted already."""
        return FittedEnsemble(name=self.name, gp=gp, gbdt=gbdt)
