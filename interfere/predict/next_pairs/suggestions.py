"""Which pairs to measure next: those after which the slowdowns that decisions rest on are known best.

A pair is worth how much its measurement lowers the expected squared error of all pairs' speeds, and a pair that some
likely matching would choose counts more than one that no matching would: the first because predictions are asked for
every pair, the second because an error there changes a decision. Where it is known how much each pair counts, as the
GPU hours of a trace tell, these weights stand in for both. (Expected reduction of a weighted trace of the covariance:
A-optimal design, Atkinson, Donev & Tobias 2007, "Optimum Experimental Designs".)
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from interfere.matching.exact import match_pairs
from interfere.predict.next_pairs.belief import PairBelief
from interfere.predict.online.prior import Floats

DRAWS = 48  # of all slowdowns from the belief, each with its best matching
CHOSEN_WEIGHT = 3.0  # of a pair that every draw's matching chooses, beside 1 for any pair

MEAN_OF_ABSOLUTE = float(np.sqrt(2 / np.pi))  # of a normal variable, in standard deviations

UnorderedPair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A pair to measure, and what is expected of it."""

    pair: UnorderedPair
    error_now: float  # expected absolute error of its own two speeds
    gain: float  # by which the expected error of all pairs' speeds falls, as a share of what it is now
    chosen: float  # share of likely matchings in which these two share a device; NaN with weights of the caller


def suggest_pairs(
    belief: PairBelief,
    measured: Collection[frozenset[str]],
    count: int,
    *,
    seed: int = 0,
    weights: Floats | None = None,
) -> list[Suggestion]:
    """The `count` pairs to measure next, best first, each chosen as if those before it had been measured.

    `measured`: unordered pairs that need no further measurement. Fewer are returned where fewer are left. `weights`:
    float64[n, n], how much an error of each ordered pair's speed counts; None: by how often a likely matching would
    choose the pair.
    """
    n = len(belief.names)
    if weights is None:
        chosen = matching_frequency(belief, np.random.default_rng(seed))
        weights = 1.0 + CHOSEN_WEIGHT * chosen
    else:
        chosen = np.full((n, n), np.nan)
    speed = np.exp(-belief.mean)
    weight = speed**2 * weights.ravel()
    names = belief.names
    left = [(i, j) for i in range(n) for j in range(i, n) if frozenset((names[i], names[j])) not in measured]
    suggestions: list[Suggestion] = []
    covariance = belief.covariance.copy()
    while left and len(suggestions) < count:
        total = float(weight @ np.diag(covariance))
        gains = [_gain(covariance, belief.noise_var, weight, _directions(i, j, n)) for i, j in left]
        best = int(np.argmax(gains))
        i, j = left.pop(best)
        at = _directions(i, j, n)
        deviation = np.sqrt(np.diag(covariance)[at])
        suggestions.append(
            Suggestion(
                pair=(names[i], names[j]),
                error_now=float(np.mean(speed[at] * deviation) * MEAN_OF_ABSOLUTE),
                gain=gains[best] / total if total > 0 else 0.0,
                chosen=float(chosen[i, j]),
            )
        )
        covariance = _reduced(covariance, belief.noise_var, at)
    return suggestions


def expected_errors(belief: PairBelief) -> Floats:
    """float64[n, n]: the absolute error of every pair's speed that the belief expects of itself."""
    deviation = np.sqrt(np.maximum(belief.variance, 0.0))
    return np.asarray(np.exp(-belief.matrix) * deviation * MEAN_OF_ABSOLUTE)


def matching_frequency(belief: PairBelief, rng: np.random.Generator) -> Floats:
    """float64[n, n], symmetric: in which share of draws from the belief the best matching pairs two jobs."""
    n = len(belief.names)
    root = np.linalg.cholesky(belief.covariance + 1e-10 * np.eye(n * n))
    counts = np.zeros((n, n))
    for _ in range(DRAWS):
        slowdown = np.exp(belief.mean + root @ rng.normal(size=n * n)).reshape(n, n)
        cost = slowdown + slowdown.T
        partner = match_pairs(cost, np.full(n, cost.max() + 1.0)).mate
        for i in np.flatnonzero(partner >= 0):
            if partner[i] != i:
                counts[i, partner[i]] += 1.0
    return counts / DRAWS


def _directions(i: int, j: int, n: int) -> np.ndarray:
    """Rows of both directions of a pair; of a job beside itself one."""
    return np.unique([i * n + j, j * n + i])


def _gain(covariance: Floats, noise_var: Floats, weight: Floats, at: np.ndarray) -> float:
    """By how much the weighted sum of variances falls once both directions of a pair are measured."""
    cross = covariance[at]
    observed = cross[:, at] + np.diag(noise_var[at])
    return float(np.einsum("ap,ap,p->", np.linalg.solve(observed, cross), cross, weight))


def _reduced(covariance: Floats, noise_var: Floats, at: np.ndarray) -> Floats:
    cross = covariance[at]
    reduced: Floats = covariance - cross.T @ np.linalg.solve(cross[:, at] + np.diag(noise_var[at]), cross)
    return reduced
