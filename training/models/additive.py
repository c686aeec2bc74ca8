"""The two simplest models, baselines for all others: the mean speed, and a sum of two job effects on speed.

Both predict clipped speed, y = 1 / slowdown, since models are compared by errors of speed: on Gavel's table the MAE
over unseen pairs is .046 with effects that add up in speed, and .053 with effects that add up in log slowdown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import MAX_SPEED, MIN_SPEED, speed
from interfere.predict.field.gaussian import additive_effects
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.onnx_graph import matrix_inputs, pair_inputs, serialise_graph

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedAdditive:
    """ŷ = mu[d] + own[d, victim] + from_neighbour[d, neighbour], clipped to the range of speeds.

    Domain 0, a domain that training never saw, has the effects over all domains together. Job 0, an unknown one, has no
    effect.
    """

    name: str
    mu: Floats  # float64[D + 1]: mean speed
    own: Floats  # float64[D + 1, N + 1]: effect of the victim on its own speed
    from_neighbour: Floats  # float64[D + 1, N + 1]

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        own, from_neighbour = self.own[rows.domain, rows.victim], self.from_neighbour[rows.domain, rows.neighbour]
        speeds = self.mu[rows.domain] + own + from_neighbour
        return np.asarray(-np.log(np.clip(speeds, MIN_SPEED, MAX_SPEED)))

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`: three table lookups, two sums and a logarithm."""
        import onnx.helper as h

        nodes = [
            h.make_node("Gather", ["mu", "domain"], ["level"]),
            *self._gather("own", "victim", "a"),
            *self._gather("from_neighbour", "neighbour", "b"),
            h.make_node("Add", ["a", "b"], ["effects"]),
            *self._as_log("effects", "log_slowdown"),
        ]
        return serialise_graph(nodes, pair_inputs(domain=True), {"log_slowdown": ["p"]}, self._constants())

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`: the effects of all victims broadcast against those of all neighbours."""
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
        return serialise_graph(nodes, matrix_inputs(domain=True), outputs, constants)

    def _as_log(self, effects: str, output: str) -> list[Any]:
        """Return the ONNX nodes of -log(clipped sum of the effects and the mean speed), which is the log slowdown."""
        import onnx.helper as h

        return [
            h.make_node("Add", [effects, "level"], [f"{output}_speed"]),
            h.make_node("Clip", [f"{output}_speed", "slowest", "fastest"], [f"{output}_clipped"]),
            h.make_node("Log", [f"{output}_clipped"], [f"{output}_negative"]),
            h.make_node("Neg", [f"{output}_negative"], [output]),
        ]

    def _gather(self, effect: str, ids: str, output: str) -> list[Any]:
        """Return the ONNX nodes of `effect[domain, ids]`, where the effect table is stored flat."""
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
    """Predicts for every pair the weighted mean speed of its domain."""

    name: ClassVar[str] = "mean"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """Fit the weighted mean speed of each domain."""

        def mean(rows: Dataset) -> tuple[float, Floats, Floats]:
            no_effect = np.zeros(len(dataset.workloads) + 1)
            return float(np.average(speed(rows.log_slowdown), weights=rows.weight)), no_effect, no_effect

        return _fit_per_domain(self.name, dataset, mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveModel:
    """Ridge regression in each domain: minimise Σ w (y - mu - own[i] - from[j])² + shrinkage · (Σ own² + Σ from²)."""

    shrinkage: float = 0.5  # in rows: an effect measured once keeps 1 / (1 + 0.5) of its measured size
    name: ClassVar[str] = "additive"

    def fit(self, dataset: Dataset, seed: int) -> FittedAdditive:  # noqa: ARG002 - nothing here is random
        """Fit the 2N + 1 unknowns of each domain; mu is not shrunk, and a job without rows gets effect 0."""

        def effects(rows: Dataset) -> tuple[float, Floats, Floats]:
            return additive_effects(
                speed(rows.log_slowdown),
                rows.rows.victim,
                rows.rows.neighbour,
                jobs=len(rows.workloads) + 1,
                shrinkage=self.shrinkage,
                weights=rows.weight,
            )

        return _fit_per_domain(self.name, dataset, effects)


def _fit_per_domain(
    name: str, dataset: Dataset, fit: Callable[[Dataset], tuple[float, Floats, Floats]]
) -> FittedAdditive:
    """Apply `fit` to each domain's rows, and to all rows for unknown domains and for domains without rows."""
    overall = fit(dataset)
    solutions = [overall]
    for k in range(len(dataset.domains)):
        in_domain = dataset.domain == k
        solutions.append(fit(dataset.take(in_domain)) if in_domain.any() else overall)
    mu, own, from_neighbour = (np.array(effects) for effects in zip(*solutions, strict=True))
    return FittedAdditive(name=name, mu=mu, own=own, from_neighbour=from_neighbour)
