"""The cheap models that every other one must beat: one number for all, and a sum of two job effects."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from training.dataset import Dataset, Rows
from training.graph import matrix_inputs, pair_inputs, serialise

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedAdditive:
    """log ŝ = mu + own[victim] + from_neighbour[neighbour]; index 0 is the unknown job, with no effect."""

    name: str
    mu: float
    own: Floats  # float64[N + 1]
    from_neighbour: Floats  # float64[N + 1]

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""
        return np.asarray(self.mu + self.own[rows.victim] + self.from_neighbour[rows.neighbour])

    def threshold_rows(self, rows: Rows) -> Rows:
        """None: there is no threshold."""
        return rows.take(np.zeros(0, dtype=np.int64))

    def to_onnx(self) -> bytes:
        """Two gathers and two sums."""
        import onnx.helper as h

        nodes = [
            h.make_node("Gather", ["own", "victim"], ["a"]),
            h.make_node("Gather", ["from_neighbour", "neighbour"], ["b"]),
            h.make_node("Add", ["a", "b"], ["effects"]),
            h.make_node("Add", ["effects", "mu"], ["log_slowdown"]),
        ]
        return serialise(nodes, pair_inputs(), {"log_slowdown": ["p"]}, self._constants())

    def to_matrix_onnx(self) -> bytes:
        """The same effects, crossed."""
        import onnx.helper as h

        nodes = []
        for role, ids in (("victim", "victim_id"), ("neighbour", "neighbour_id")):
            axis = "one" if role == "victim" else "zero"  # victims are rows, neighbours columns
            for effect in ("own", "from_neighbour"):
                nodes.append(h.make_node("Gather", [effect, ids], [f"{role}_{effect}_flat"]))
                nodes.append(h.make_node("Unsqueeze", [f"{role}_{effect}_flat", axis], [f"{role}_{effect}"]))
        for side, other in (("victim", "neighbour"), ("neighbour", "victim")):
            nodes.append(h.make_node("Add", [f"{side}_own", f"{other}_from_neighbour"], [f"{side}_effects"]))
            nodes.append(h.make_node("Add", [f"{side}_effects", "mu"], [f"log_{side}"]))
        constants = {**self._constants(), "zero": np.array([0], dtype=np.int64), "one": np.array([1], dtype=np.int64)}
        outputs: dict[str, list[Any]] = {"log_victim": ["v", "n"], "log_neighbour": ["v", "n"]}
        return serialise(nodes, matrix_inputs(), outputs, constants)

    def _constants(self) -> dict[str, NDArray[Any]]:
        return {
            "own": self.own.astype(np.float32),
            "from_neighbour": self.from_neighbour.astype(np.float32),
            "mu": np.array([self.mu], dtype=np.float32),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanModel:
    """log ŝ = weighted mean of log s."""

    name: ClassVar[str] = "mean"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """One number."""
        none = np.zeros(len(dataset.workloads) + 1)
        mu = float(np.average(dataset.log_slowdown, weights=dataset.weight))
        return FittedAdditive(name=self.name, mu=mu, own=none, from_neighbour=none)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveModel:
    """Ridge: minimise Σ w (log s - mu - own[i] - from[j])² + shrinkage · (Σ own² + Σ from²), mu free."""

    shrinkage: float = 0.5  # in rows: an effect seen once keeps 1 / (1 + 0.5) of what it was seen to be
    name: ClassVar[str] = "additive"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """One linear solve of 2N + 1 unknowns; unseen jobs get effect 0."""
        count = len(dataset.workloads)
        design = np.zeros((len(dataset), 2 * count + 1))
        at = np.arange(len(dataset))
        design[at, dataset.rows.victim - 1] = 1.0
        design[at, count + dataset.rows.neighbour - 1] = 1.0
        design[:, -1] = 1.0
        penalty = np.full(2 * count + 1, self.shrinkage)
        penalty[-1] = 0.0
        weighted = design * dataset.weight[:, None]
        solved = np.linalg.solve(weighted.T @ design + np.diag(penalty), weighted.T @ dataset.log_slowdown)
        return FittedAdditive(
            name=self.name,
            mu=float(solved[-1]),
            own=np.concatenate([[0.0], solved[:count]]),
            from_neighbour=np.concatenate([[0.0], solved[count : 2 * count]]),
        )
