"""A model together with beliefs about the pairs of some jobs; it predicts all others by itself.

With place a(i) of job i among the believed jobs (0: none), i beside j on domain d:

    log ŝ = model(i, j, d) + correction[d, a(i), a(j)]

where the correction is the belief's log slowdown less the model's, for the profiles that are published, times the
weight of the belief. A job that comes with other facts is still told from the published one by the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.novelty import JobSpace
from interfere.training.dataset import PairRows
from interfere.training.models.onnx_graph import join_graphs, matrix_inputs, pair_inputs
from interfere.training.models.protocols import FittedMatrixModel, FittedModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBelieved:
    """A fitted model and its corrections. `S` believed jobs, `D` domains, `N` workloads."""

    inner: FittedModel
    place: Ints  # int64[N + 1]
    corrections: Floats  # float64[D + 1, S + 1, S + 1]; 0 where nothing is believed

    @property
    def name(self) -> str:
        """Name of the inner model."""
        return self.inner.name

    @property
    def space(self) -> JobSpace | None:
        """Space of the known jobs; None for a model without one."""
        space: JobSpace | None = getattr(self.inner, "space", None)
        return space

    def predict(self, rows: PairRows) -> Floats:
        """Predicted log slowdowns, float64[p]."""
        correction = self.corrections[rows.domain, self.place[rows.victim], self.place[rows.neighbour]]
        return np.asarray(self.inner.predict(rows) + correction)

    def threshold_rows(self, rows: PairRows) -> PairRows:
        """Rows on which the inner model's graph is most likely to differ from it."""
        return self.inner.threshold_rows(rows)

    def to_onnx(self) -> bytes:
        """`pair.onnx`: the inner model's graph, three lookups and a sum."""
        import onnx.helper as h

        nodes = [
            h.make_node("Gather", ["place", "victim"], ["victim_place"]),
            h.make_node("Gather", ["place", "neighbour"], ["neighbour_place"]),
            *_lookup("victim_place", "neighbour_place", "correction"),
            h.make_node("Add", ["inner/log_slowdown", "correction"], ["log_slowdown"]),
        ]
        return join_graphs(
            {"inner/": self.inner.to_onnx()},
            nodes,
            {"log_slowdown": ["p"]},
            constants=self._constants(),
            inputs=pair_inputs(domain=True),
        )

    def _constants(self) -> Mapping[str, NDArray[Any]]:
        return {
            "place": self.place,
            "corrections": self.corrections.astype(np.float32).ravel(),
            "width": np.array([self.corrections.shape[-1]], dtype=np.int64),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBelievedMatrix(FittedBelieved):
    """Likewise, of a model that factorises over jobs."""

    inner: FittedMatrixModel

    def to_matrix_onnx(self) -> bytes:
        """`matrix.onnx`: likewise, in both directions."""
        import onnx.helper as h

        nodes = []
        for ids, axis in (("victim_id", "one"), ("neighbour_id", "zero")):  # victims are rows, neighbours columns
            nodes.append(h.make_node("Gather", ["place", ids], [f"{ids}_flat"]))
            nodes.append(h.make_node("Unsqueeze", [f"{ids}_flat", axis], [f"{ids}_place"]))
        for output, victim, neighbour in (
            ("log_victim", "victim_id_place", "neighbour_id_place"),
            ("log_neighbour", "neighbour_id_place", "victim_id_place"),
        ):
            nodes += _lookup(victim, neighbour, f"{output}_correction")
            nodes.append(h.make_node("Add", [f"inner/{output}", f"{output}_correction"], [output]))
        zero, one = np.array([0], dtype=np.int64), np.array([1], dtype=np.int64)
        return join_graphs(
            {"inner/": self.inner.to_matrix_onnx()},
            nodes,
            {"log_victim": ["v", "n"], "log_neighbour": ["v", "n"]},
            constants={**self._constants(), "zero": zero, "one": one},
            inputs=matrix_inputs(domain=True),
        )


def with_corrections(model: FittedModel, place: Ints, corrections: Floats) -> FittedBelieved:
    """The model with these corrections, of the kind that the model is: one that factorises over jobs stays so."""
    kind = FittedBelievedMatrix if hasattr(model, "to_matrix_onnx") else FittedBelieved
    return kind(inner=model, place=place, corrections=corrections)  # type: ignore[arg-type]


def _lookup(victim: str, neighbour: str, output: str) -> list[Any]:
    """Nodes of `corrections[domain, victim, neighbour]`, a table stored flat."""
    import onnx.helper as h

    return [
        h.make_node("Mul", ["domain", "width"], [f"{output}_domain"]),
        h.make_node("Add", [f"{output}_domain", victim], [f"{output}_row"]),
        h.make_node("Mul", [f"{output}_row", "width"], [f"{output}_start"]),
        h.make_node("Add", [f"{output}_start", neighbour], [f"{output}_place"]),
        h.make_node("Gather", ["corrections", f"{output}_place"], [output]),
    ]
