"""Where jobs lie among the jobs a model learned from: a kernel over encoded jobs, and how far outside one is.

A job's coordinates are its encoded columns, standardised, clipped, weighted; an absent fact lies in the middle. With
kernel k(x, y) = exp(-|x - y|² / 2), known points u and K = k(u, u) + JITTER, the novelty of a job is

    1 - k(x, u) K⁻¹ k(u, x),

the share of what a function over jobs may do there that the known jobs leave open: 0 beside a known job, 1 far from
all of them (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.26).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLIP = 4.0  # standard deviations: a job far outside of what was seen is taken as the edge of it
JITTER = 1e-2  # of a kernel value of 1: two points of one job on one device are not told apart below this

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpace:
    """`C` columns of the encoder's F matter; `m` known points."""

    columns: NDArray[np.int64]  # int64[C]: places among the F
    centre: Floats  # float64[C]
    scale: Floats  # float64[C]: weight ÷ standard deviation
    reach: Floats  # float64[C]: weight · CLIP, the largest coordinate
    points: Floats  # float64[m, C]: coordinates of known jobs
    inverse: Floats  # float64[m, m]: (k(u, u) + JITTER)⁻¹

    def coordinates(self, jobs: NDArray[np.float32]) -> Floats:
        """float64[n, C] of float32[n, F]."""
        apart = (jobs[:, self.columns].astype(np.float64) - self.centre) * self.scale
        return np.asarray(np.clip(np.where(np.isnan(apart), 0.0, apart), -self.reach, self.reach))

    def kernel(self, jobs: NDArray[np.float32]) -> Floats:
        """k(x, u): float64[n, m] of float32[n, F]."""
        return gaussian(self.coordinates(jobs), self.points)

    def novelty(self, jobs: NDArray[np.float32]) -> Floats:
        """float64[n] in [0, 1] of float32[n, F]."""
        near = self.kernel(jobs)
        return np.asarray(np.clip(1.0 - ((near @ self.inverse) * near).sum(axis=1), 0.0, 1.0))


def gaussian(x: Floats, y: Floats) -> Floats:
    """exp(-|x - y|² / 2): float64[n, m] of float64[n, C] and float64[m, C]."""
    apart = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None, :] - 2.0 * (x @ y.T)
    return np.asarray(np.exp(-0.5 * np.maximum(apart, 0.0)))


def pair_novelty(victim: Floats, neighbour: Floats) -> Floats:
    """Of a pair: open unless both jobs are known, elementwise."""
    return np.asarray(1.0 - (1.0 - victim) * (1.0 - neighbour))
