"""The two simplest models, baselines for all others: the mean speed, and a sum of two job effects on speed.

Both predict clipped speed, y = 1 / slowdown, since models are compared by errors of speed: on Gavel's table the MAE
over unseen pairs is .046 with effects that add up in speed, and .053 with effects that add up in log slowdown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import MAX_SPEED, MIN_SPEED, speed
from interfere.predict.field.gaussian import additive_effects
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.onnx_graph import MATRIX_INPUTS, PAIR_INPUTS, Graph

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
        graph = Graph(PAIR_INPUTS)
        return graph.serialised({"log_slowdown": self._log_slowdown(graph, "victim", "neighbour")})

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`: the effects of all victims broadcast against those of all neighbours."""
        graph = Graph(MATRIX_INPUTS)
        victims, neighbours = graph.as_rows("victim_id"), "neighbour_id"
        return graph.serialised(
            {
                "log_victim": self._log_slowdown(graph, victims, neighbours),
                "log_neighbour": self._log_slowdown(graph, neighbours, victims),
            }
        )

    def _log_slowdown(self, graph: Graph, victim: str, neighbour: str) -> str:
        """Add the nodes of the log slowdowns of identities `victim` beside identities `neighbour`."""
        mu, own, from_neighbour = (each.astype(np.float32) for each in (self.mu, self.own, self.from_neighbour))
        effects = graph("Add", graph.lookup(own, "domain", victim), graph.lookup(from_neighbour, "domain", neighbour))
        speeds = graph("Add", effects, graph.lookup(mu, "domain"))
        slowest, fastest = (np.array(each, dtype=np.float32) for each in (MIN_SPEED, MAX_SPEED))
        return graph("Neg", graph("Log", graph("Clip", speeds, slowest, fastest)))


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
