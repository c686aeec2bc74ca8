"""Novelty of a job: how far its encoded facts lie from those of the jobs that the model learned from.

A job's coordinates are its encoded columns, standardised, clipped and weighted; an absent fact lies in the middle. With
kernel k(x, y) = exp(-|x - y|² / 2), known points u and K = k(u, u) + JITTER, the novelty of a job is

    1 - k(x, u) K⁻¹ k(u, x),

the posterior variance of a Gaussian process at the job, relative to its prior variance: 0 at a known job, 1 far from
all of them (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.26). For a job of which some facts are
estimated, with variance v in coordinates, k(x, u) is its mean over x ~ N(mean, v), in closed form per column:

    E exp(-(x - u)² / 2) = exp(-(mean - u)² / (2 (1 + v))) / sqrt(1 + v)

so a job with few known facts is novel, whatever values its absent facts are estimated to have.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLIP = 4.0  # standard deviations: a job farther outside counts as lying at this edge
JITTER = 1e-2  # added to a diagonal of ones; two points of one job on one device differ by less in the kernel

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpace:
    """Coordinates and kernel of the `m` known jobs, in C weighted columns out of the encoder's F."""

    columns: NDArray[np.int64]  # int64[C]: indices of the columns among the F
    centre: Floats  # float64[C]
    scale: Floats  # float64[C]: weight ÷ standard deviation
    reach: Floats  # float64[C]: weight · CLIP, the largest coordinate
    points: Floats  # float64[m, C]: coordinates of known jobs
    inverse: Floats  # float64[m, m]: (k(u, u) + JITTER)⁻¹

    def coordinates(self, jobs: NDArray[np.float32]) -> Floats:
        """Return the weighted coordinates float64[n, C] of encoded jobs float32[n, F]."""
        scaled = (jobs[:, self.columns].astype(np.float64) - self.centre) * self.scale
        return np.asarray(np.clip(np.where(np.isnan(scaled), 0.0, scaled), -self.reach, self.reach))

    def standardised(self, jobs: NDArray[np.float32]) -> Floats:
        """Return coordinates float64[n, C] of encoded jobs float32[n, F], each column of equal weight 1 ÷ √C."""
        weight = self.reach / CLIP
        scale = np.where(weight > 0.0, weight, np.inf) * np.sqrt(len(self.columns))
        return np.asarray(self.coordinates(jobs) / scale)

    def kernel(self, jobs: NDArray[np.float32]) -> Floats:
        """Return k(x, u) as float64[n, m] for encoded jobs float32[n, F]."""
        return gaussian(self.coordinates(jobs), self.points)

    def expected_kernel(self, jobs: NDArray[np.float32], variance: Floats) -> Floats:
        """Return E k(x, u) as float64[n, m] for encoded jobs float32[n, F] with fact `variance` float64[n, F]."""
        mean, spread = self.coordinates(jobs), 1.0 + variance[:, self.columns] * self.scale**2
        precision = 1.0 / spread
        squared_distance = (
            (precision * mean**2).sum(axis=1)[:, None]
            + precision @ (self.points**2).T
            - 2.0 * ((precision * mean) @ self.points.T)
        )
        return np.asarray(
            np.exp(-0.5 * np.maximum(squared_distance, 0.0)) * np.exp(-0.5 * np.log(spread).sum(axis=1))[:, None]
        )

    def novelty(self, jobs: NDArray[np.float32], variance: Floats | None = None) -> Floats:
        """Return novelty float64[n] in [0, 1] of encoded jobs float32[n, F] with fact `variance` float64[n, F]."""
        similarity = self.kernel(jobs) if variance is None else self.expected_kernel(jobs, variance)
        return np.asarray(np.clip(1.0 - ((similarity @ self.inverse) * similarity).sum(axis=1), 0.0, 1.0))


def gaussian(x: Floats, y: Floats) -> Floats:
    """Return the Gaussian kernel exp(-|x - y|² / 2), float64[n, m], of points float64[n, C] and float64[m, C]."""
    squared_distance = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None, :] - 2.0 * (x @ y.T)
    return np.asarray(np.exp(-0.5 * np.maximum(squared_distance, 0.0)))


def pair_novelty(victim: Floats, neighbour: Floats) -> Floats:
    """Return the novelty of pairs, elementwise, from the novelty of both jobs: 0 if both are 0, 1 if either is 1."""
    return np.asarray(1.0 - (1.0 - victim) * (1.0 - neighbour))
