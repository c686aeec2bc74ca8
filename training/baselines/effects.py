"""The cheap models that every other one must beat: one number for all, and a sum of two job effects.

Both are of speed, y = 1 / slowdown clipped as scores clip it, since errors of speed are what is compared: on Gavel's
table effects that add up in speed err by .046 on unseen pairs, effects that add up in log slowdown by .053.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from training.dataset import Dataset, Rows
from training.evaluation.scores import MAX_SPEED, MIN_SPEED, speed
from training.models.onnx_graph import matrix_inputs, pair_inputs, serialise

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedAdditive:
    """ŷ = mu[d] + own[d, victim] + from_neighbour[d, neighbour], clipped to the range of speeds.

    Domain 0 is one that was never seen: what holds over all domains together. Job 0 is an unknown one: no effect.
    """

    name: str
    mu: Floats  # float64[D + 1]
    own: Floats  # float64[D + 1, N + 1]
    from_neighbour: Floats  # float64[D + 1, N + 1]

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""
        d = rows.domain
        speeds = self.mu[d] + self.own[d, rows.victim] + self.from_neighbour[d, rows.neighbour]
        return np.asarray(-np.log(np.clip(speeds, MIN_SPEED, MAX_SPEED)))

    def threshold_rows(self, rows: Rows) -> Rows:
        """None: there is no threshold."""
        return rows.take(np.zeros(0, dtype=np.int64))

    def to_onnx(self) -> bytes:
        """Three gathers, two sums, and the logarithm."""
        import onnx.helper as h

        nodes = [
            h.make_node("Gather", ["mu", "domain"], ["level"]),
            *self._gather("own", "victim", "a"),
            *self._gather("from_neighbour", "neighbour", "b"),
            h.make_node("Add", ["a", "b"], ["effects"]),
            *self._as_log("effects", "log_slowdown"),
        ]
        return serialise(nodes, pair_inputs(domain=True), {"log_slowdown": ["p"]}, self._constants())

    def to_matrix_onnx(self) -> bytes:
        """The same effects, crossed."""
        import onnx.helper as h

        nodes = [h.make_node("Gather", ["mu", "domain"], ["level"])]
        for role, ids in (("victim", "victim_id"), ("neighbour", "neighbour_id")):
            axis = "one" if role == "victim" else "zero"  # victims are rows, neighbours columns
            for effect in ("own", "from_neighbour"):
                nodes += self._gather(effect, ids, f"{role}_{effect}_flat")
                nodes.append(h.make_node("Unsqueeze", [f"{role}_{effect}_flat", axis], [f"{role}_{effect}"]))
        for side, other in (("victim", "neighbour"), ("neighbour", "victim")):
            nodes.append(h.make_node("Add", [f"{side}_own", f"{other}_from_neighbour"], [f"{side}_effects"]))
            nodes += self._as_log(f"{side}_effects", f"log_{side}")
        constants = {**self._constants(), "zero": np.array([0], dtype=np.int64), "one": np.array([1], dtype=np.int64)}
        outputs: dict[str, list[Any]] = {"log_victim": ["v", "n"], "log_neighbour": ["v", "n"]}
        return serialise(nodes, matrix_inputs(domain=True), outputs, constants)

    def _as_log(self, effects: str, output: str) -> list[Any]:
        """Negative logarithm of the clipped sum of effects and level."""
        import onnx.helper as h

        return [
            h.make_node("Add", [effects, "level"], [f"{output}_speed"]),
            h.make_node("Clip", [f"{output}_speed", "slowest", "fastest"], [f"{output}_clipped"]),
            h.make_node("Log", [f"{output}_clipped"], [f"{output}_negative"]),
            h.make_node("Neg", [f"{output}_negative"], [output]),
        ]

    def _gather(self, effect: str, ids: str, output: str) -> list[Any]:
        """`effect[domain, ids]` of a table laid flat."""
        import onnx.helper as h

        return [
            h.make_node("Mul", ["domain", "width"], [f"{output}_start"]),
            h.make_node("Add", [f"{output}_start", ids], [f"{output}_place"]),
            h.make_node("Gather", [effect, f"{output}_place"], [output]),
        ]

    def _constants(self) -> dict[str, NDArray[Any]]:
        return {
            "own": self.own.astype(np.float32).ravel(),
            "from_neighbour": self.from_neighbour.astype(np.float32).ravel(),
            "mu": self.mu.astype(np.float32),
            "width": np.array([self.own.shape[1]], dtype=np.int64),
            "slowest": np.array(MIN_SPEED, dtype=np.float32),
            "fastest": np.array(MAX_SPEED, dtype=np.float32),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanModel:
    """ŷ = weighted mean of y of the domain."""

    name: ClassVar[str] = "mean"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """One number a domain."""

        def mean(rows: Dataset) -> tuple[float, Floats, Floats]:
            none = np.zeros(len(dataset.workloads) + 1)
            return float(np.average(speed(rows.log_slowdown), weights=rows.weight)), none, none

        return _by_domain(self.name, dataset, mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveModel:
    """Ridge, a domain by itself: minimise Σ w (y - mu - own[i] - from[j])² + shrinkage · (Σ own² + Σ from²)."""

    shrinkage: float = 0.5  # in rows: an effect seen once keeps 1 / (1 + 0.5) of what it was seen to be
    name: ClassVar[str] = "additive"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """A linear solve of 2N + 1 unknowns a domain, mu free; unseen jobs get effect 0."""
        return _by_domain(self.name, dataset, self._solve)

    def _solve(self, rows: Dataset) -> tuple[float, Floats, Floats]:
        count = len(rows.workloads)
        design = np.zeros((len(rows), 2 * count + 1))
        at = np.arange(len(rows))
        design[at, rows.rows.victim - 1] = 1.0
        design[at, count + rows.rows.neighbour - 1] = 1.0
        design[:, -1] = 1.0
        penalty = np.full(2 * count + 1, self.shrinkage)
        penalty[-1] = 0.0
        weighted = design * rows.weight[:, None]
        solved = np.linalg.solve(weighted.T @ design + np.diag(penalty), weighted.T @ speed(rows.log_slowdown))
        own = np.concatenate([[0.0], solved[:count]])
        return float(solved[-1]), own, np.concatenate([[0.0], solved[count : 2 * count]])


def _by_domain(name: str, dataset: Dataset, solve: Callable[[Dataset], tuple[float, Floats, Floats]]) -> FittedAdditive:
    """`solve` on all rows (the unknown domain), then on each domain's; one without rows is as the unknown."""
    overall = solve(dataset)
    parts = [overall]
    for k in range(len(dataset.domains)):
        inside = dataset.domain == k
        parts.append(solve(dataset.take(inside)) if inside.any() else overall)
    mu, own, from_neighbour = (np.array(part) for part in zip(*parts, strict=True))
    return FittedAdditive(name=name, mu=mu, own=own, from_neighbour=from_neighbour)
