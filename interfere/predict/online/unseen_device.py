"""A Gaussian process of the model's errors on a device type without training data, updated by observed pairs.

The model's error on such a device type, a function of both jobs, has the prior covariance ::

    CONSTANT_VAR + FACTOR_VAR x x' + (MAIN_VAR + SLOPE_VAR x x') (K(v, v') + K(n, n')) + BOTH_VAR K(v, v') K(n, n')

with x the predicted log slowdown and K(i, j) = exp(-|c_i - c_j|² / 2) of the jobs' coordinates, which are their encoded
facts on this device type, standardised over the jobs of training. So pairs of jobs like the observed ones profit too.

The posterior is stored only at the first `MAX_BASIS` different pairs (the basis); the value of any other pair is a
projection on the basis (Csató & Opper 2002, "Sparse on-line Gaussian processes", Neural Computation 14), so a window
costs O(MAX_BASIS²).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.prior import Floats
from interfere.records import JobProfile
from interfere.sharing_modes import SharingMode

Coordinates = tuple[float, ...]  # of one job; empty if the model has no job space: then all jobs count as equal

JobCoordinates = Callable[[Sequence[JobProfile], str, SharingMode], Floats]
"""(jobs, device type, mode) -> float64[n, C], each column divided by the root of their number."""

# Models of two of Gavel's three device types were off by .03 to .44 of log slowdown on the third, with a standard
# deviation of .17 to .25 between pairs. Any of these variances halved or doubled changes the error of speed after 20
# pairs by at most .001.
CONSTANT_VAR, FACTOR_VAR = 0.3**2, 0.5**2
MAIN_VAR, SLOPE_VAR, BOTH_VAR = 0.15**2, 0.3**2, 0.15**2
# Of the variance of a job's own errors (`ResidualPrior`), the share that its facts leave on such a device type.
REMAINING_SHARE = 0.1
FACTOR_RANGE = (0.0, 1.5)  # of the log slowdown that the factor multiplies
MAX_BASIS = 64
MIN_NEW_VAR = 0.03**2  # conditional variance of a pair given the basis; below it the pair is not added to the basis
JITTER = 1e-6


@dataclass(frozen=True, slots=True)
class PairPoints:
    """Inputs of the process: `p` pairs of jobs with `C` coordinates."""

    victims: Floats  # float64[p, C]
    neighbours: Floats  # float64[p, C]
    log_predicted: Floats  # float64[p]

    @property
    def x(self) -> Floats:
        """Return float64[p]: the predicted log slowdown x of the covariance, clipped."""
        return np.clip(self.log_predicted, *FACTOR_RANGE)

    @classmethod
    def of_pair(cls, coordinates: tuple[Coordinates, Coordinates], log_predicted: float) -> "PairPoints":
        """Return the inputs of one pair."""
        victim, neighbour = (np.array([each], dtype=np.float64) for each in coordinates)
        return cls(victim, neighbour, np.array([log_predicted]))

    @classmethod
    def concatenated(cls, points: Sequence["PairPoints"]) -> "PairPoints":
        """Return the inputs of all pairs of several lists."""
        names = ("victims", "neighbours", "log_predicted")
        return cls(*(np.concatenate([getattr(each, name) for each in points]) for name in names))


@dataclass(frozen=True, slots=True)
class DeviceBelief:
    """Posterior of the Gaussian process at the `m` pairs of the basis."""

    basis: PairPoints
    inverse: Floats  # float64[m, m], of the prior covariance of the basis
    mean: Floats  # float64[m]
    covariance: Floats  # float64[m, m]

    def expected(self, points: PairPoints) -> tuple[Floats, Floats]:
        """Return the mean and variance of the model's error on pairs, float64[p] each."""
        projection, remaining = self.project(points)
        variance = np.einsum("pm,mk,pk->p", projection, self.covariance, projection) + remaining
        return projection @ self.mean, variance

    def learned(self, point: PairPoints, gain: float, shrink: float) -> "DeviceBelief":
        """Return the posterior after a window of one pair.

        `gain` and `shrink` are the fields of the window's `Update`.
        """
        projection, remaining = self.project(point)
        if remaining[0] > MIN_NEW_VAR and len(self.mean) < MAX_BASIS:
            grown = self._with_basis_pair(point, projection[0], float(remaining[0]))
            return grown._conditioned(grown.covariance[-1], gain, shrink)
        return self._conditioned(self.covariance @ projection[0], gain, shrink)

    def with_basis(self, points: Sequence[PairPoints]) -> "DeviceBelief":
        """Return the same posterior with these pairs in the basis, as far as they are new to it and there is room."""
        belief = self
        for point in points:
            projection, remaining = belief.project(point)
            if remaining[0] > MIN_NEW_VAR and len(belief.mean) < MAX_BASIS:
                belief = belief._with_basis_pair(point, projection[0], float(remaining[0]))
        return belief

    def project(self, points: PairPoints) -> tuple[Floats, Floats]:
        """Return the weights of the basis functions, float64[p, m], and the conditional variance, float64[p]."""
        cross = _kernel(points, self.basis)
        projection = cross @ self.inverse
        prior_var = CONSTANT_VAR + 2.0 * MAIN_VAR + BOTH_VAR + (FACTOR_VAR + 2.0 * SLOPE_VAR) * points.x**2
        return projection, np.maximum(prior_var - (projection * cross).sum(axis=1), 0.0)

    def _with_basis_pair(self, point: PairPoints, projection: Floats, remaining: float) -> "DeviceBelief":
        """Return the same posterior with one more pair in its basis."""
        cross = self.covariance @ projection
        variance = float(projection @ cross) + remaining
        scaled = np.append(projection, -1.0) / math.sqrt(remaining + JITTER)
        size = len(self.mean) + 1
        inverse = np.zeros((size, size))
        inverse[:-1, :-1] = self.inverse
        covariance = np.empty((size, size))
        covariance[:-1, :-1], covariance[-1, :-1], covariance[:-1, -1] = self.covariance, cross, cross
        covariance[-1, -1] = variance
        return DeviceBelief(
            PairPoints.concatenated((self.basis, point)),
            inverse + np.outer(scaled, scaled),
            np.append(self.mean, float(projection @ self.mean)),
            covariance,
        )

    def _conditioned(self, cross: Floats, gain: float, shrink: float) -> "DeviceBelief":
        """Return the posterior after a window whose value has the covariance `cross` with the basis."""
        covariance = self.covariance - shrink * np.outer(cross, cross)
        return DeviceBelief(self.basis, self.inverse, self.mean + gain * cross, covariance)


def unobserved(width: int) -> DeviceBelief:
    """Return the posterior before any window, with an empty basis, for jobs with `width` coordinates."""
    no_pairs = PairPoints(np.zeros((0, width)), np.zeros((0, width)), np.zeros(0))
    return DeviceBelief(no_pairs, np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0)))


def no_coordinates(jobs: Sequence[JobProfile], *_: str) -> Floats:
    """Return float64[n, 0]: no coordinates, so that all jobs count as equal."""
    return np.zeros((len(jobs), 0))


def _kernel(points: PairPoints, basis: PairPoints) -> Floats:
    """Return float64[p, m]: the prior covariance of pairs and basis."""
    victims, neighbours = _alike(points.victims, basis.victims), _alike(points.neighbours, basis.neighbours)
    squares = np.outer(points.x, basis.x)
    of_one = (MAIN_VAR + SLOPE_VAR * squares) * (victims + neighbours)
    return np.asarray(CONSTANT_VAR + FACTOR_VAR * squares + of_one + BOTH_VAR * victims * neighbours)


def _alike(one: Floats, other: Floats) -> NDArray[np.float64]:
    """Return float64[p, m]: the kernel K of two lists of jobs."""
    squared = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1) - 2.0 * one @ other.T
    return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))
