"""A model corrected by posterior beliefs about the pairs of some jobs; other pairs get the model's own prediction.

With place a(i) of job i among the believed jobs (0: none), i beside j on domain d:

    log ŝ = model(i, j, d) + correction[d, a(i), a(j)]

where the correction is the belief's log slowdown minus the model's for the published profiles, times the weight of the
belief. A job whose facts differ from its published profile still gets the model's response to this difference.
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
    """A fitted model and its corrections for `S` believed jobs; `D` domains, `N` workloads."""

    inner: FittedModel
    place: Ints  # int64[N + 1]
    corrections: Floats  # float64[D + 1, S + 1, S + 1]; 0 for a pair without a belief

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return self.inner.name

    @property
    def space(self) -> JobSpace | None:
        """Return the space of the known jobs, or None for a model without one."""
        space: JobSpace | None = getattr(self.inner, "space", None)
        return space

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        correction = self.corrections[rows.domain, self.place[rows.victim], self.place[rows.neighbour]]
        return np.asarray(self.inner.predict(rows) + correction)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`: the inner model's graph, three table lookups and a sum."""
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
    """A corrected model that factorises over jobs, so that it can also export a matrix graph."""

    inner: FittedMatrixModel

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`: the inner model's matrix graph with corrections in both directions."""
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
    """Return the model with these corrections; a model that factorises over jobs keeps its matrix graph."""
    kind = FittedBelievedMatrix if hasattr(model, "to_matrix_onnx") else FittedBelieved
    return kind(inner=model, place=place, corrections=corrections)  # type: ignore[arg-type]


def _lookup(victim: str, neighbour: str, output: str) -> list[Any]:
    """Return the ONNX nodes of `corrections[domain, victim, neighbour]`, where the table is stored flat."""
    import onnx.helper as h

    return [
        h.make_node("Mul", ["domain", "width"], [f"{output}_domain"]),
        h.make_node("Add", [f"{output}_domain", victim], [f"{output}_row"]),
        h.make_node("Mul", [f"{output}_row", "width"], [f"{output}_start"]),
        h.make_node("Add", [f"{output}_start", neighbour], [f"{output}_place"]),
        h.make_node("Gather", ["corrections", f"{output}_place"], [output]),
    ]
