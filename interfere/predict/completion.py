"""Estimates the facts that a job's profile lacks from the known jobs that agree with it in the facts it has.

Kernel regression (Nadaraya 1964, Watson 1964) over the jobs that the model learned from. With facts in standard
deviations, and d(x, u) the mean squared difference of job x and known job u over the facts that x has,

    weight of u  ∝  exp(-d(x, u) / (2 · bandwidth))

An absent fact gets the weighted mean of the known jobs that have the fact. Its variance depends on which facts are
present: every known job is estimated from those facts and the other workloads, and the mean squared error of a fact is
its variance. The bandwidth is the narrowest with an error within `TOLERANCE` of the smallest. For a job unlike all
known jobs the variance grows with d.

Law 1: a fact that is present stays as it is, bit for bit, with variance 0. Law 2: a fact that no known job has stays
absent. Law 3: a job gets the same facts by itself or among others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

BANDWIDTHS = (0.02, 0.05, 0.1, 0.3, 1.0)  # in variances of a fact: from the nearest few known jobs to all alike
# Times the smallest error of a bandwidth that a narrower one may have: a mean over many jobs is nearest in every single
# fact but describes none of them. On unseen jobs of two public tables, of which utilisation and memory or the step time
# were left, speeds predicted with the narrower bandwidth err 1 to 10 % less. Only where the facts can be estimated at
# all: with an error below 1, the variance of a fact.
TOLERANCE = 1.15
CLIP = 4.0  # standard deviations: a fact farther outside counts as lying at this edge when jobs are compared
# Squared difference, in variances, that a fact counts with which the known job lacks: that of two random jobs.
UNKNOWN_DIFFERENCE = 2.0
MIN_SPREAD = 1e-6  # standard deviation below which a fact counts as constant
MIN_WEIGHT = 1e-12  # of a known job, so that a fact which only dissimilar jobs have is still estimated from them
MAX_ESTIMATED = 256  # known jobs that are estimated from the others, evenly spread: bounds the time of a new pattern
MAX_PATTERNS = 256  # sets of present facts for which the bandwidth and errors are cached

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]
Pattern = NDArray[np.bool_]  # bool[F]: the facts that a job has


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCompletion:
    """Estimates absent facts from `m` known jobs, each with all F columns of the encoder."""

    centre: Floats  # float64[F]: mean of each fact; NaN where no known job has it
    spread: Floats  # float64[F]: its standard deviation, 0 where it is constant
    points: Floats  # float64[m, F]: the known jobs in standard deviations; NaN where absent
    workload: NDArray[np.int64]  # int64[m]: a number for each workload, which may have points on several device types
    _accuracy: dict[bytes, tuple[float, Floats]] = field(default_factory=dict, compare=False, repr=False)

    def complete(self, jobs: Rows) -> tuple[Rows, Floats]:
        """Return encoded jobs with estimated absent facts, float32[n, F], and each fact's variance, float64[n, F]."""
        absent = np.isnan(jobs) & ~np.isnan(self.centre)
        completed, variance = jobs.copy(), np.zeros(jobs.shape)
        poor = np.flatnonzero(absent.any(axis=1))
        if len(poor) == 0 or len(self.points) == 0:
            return completed, variance
        patterns, pattern_of = np.unique(np.isnan(jobs[poor]), axis=0, return_inverse=True)
        for k, absent_facts in enumerate(patterns):
            rows = poor[pattern_of.reshape(-1) == k]
            estimate, estimate_variance = self._estimate(jobs[rows], ~absent_facts)
            completed[rows] = np.where(absent[rows], estimate.astype(np.float32), jobs[rows])
            variance[rows] = np.where(absent[rows], estimate_variance, 0.0)
        return completed, variance

    def _estimate(self, jobs: Rows, present: Pattern) -> tuple[Floats, Floats]:
        """Return the estimate and variance of each fact, float64[n, F] each, for jobs that have the `present` facts."""
        bandwidth, error = self._accuracy_of(present)
        varies = self.spread > MIN_SPREAD
        scaled = np.where(varies & present, (jobs - self.centre) / np.where(varies, self.spread, 1.0), 0.0)
        difference = self._differences(np.clip(scaled, -CLIP, CLIP), present & varies)
        weight = _weights(difference, bandwidth)
        unlike = (weight * difference).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        variance = np.minimum(error + unlike, 1.0)
        return self.centre + self.spread * self._means(weight), variance * self.spread**2

    def _accuracy_of(self, present: Pattern) -> tuple[float, Floats]:
        """Return the kernel bandwidth and each fact's mean squared error, float64[F], for jobs with these facts."""
        key = present.tobytes()
        if (known := self._accuracy.get(key)) is not None:
            return known
        # 1. Compare known jobs, as if they had these facts alone, with the other workloads.
        sample = np.unique(np.linspace(0, len(self.points) - 1, MAX_ESTIMATED).astype(np.int64))
        truth = self.points[sample]
        kept = present & (self.spread > MIN_SPREAD)
        difference = self._differences(np.where(np.isnan(truth) | ~kept, 0.0, truth), kept)
        difference[self.workload[sample][:, None] == self.workload[None, :]] = np.inf
        estimable = np.isfinite(difference).any(axis=1)
        if not estimable.any():  # a single workload
            return BANDWIDTHS[-1], np.ones(len(self.centre))
        # 2. Their errors at each bandwidth, and the narrowest bandwidth with nearly the smallest.
        errors = []
        for bandwidth in BANDWIDTHS:
            squared = (self._means(_weights(difference[estimable], bandwidth)) - truth[estimable]) ** 2
            count = (~np.isnan(squared)).sum(axis=0)
            errors.append(np.where(count > 0, np.nansum(squared, axis=0) / np.maximum(count, 1), 1.0))
        estimated = ~present & (self.spread > MIN_SPREAD)
        means = np.array([error[estimated].mean() if estimated.any() else 0.0 for error in errors])
        best = int(np.argmax(means <= max(min(TOLERANCE * means.min(), 1.0), means.min())))
        if len(self._accuracy) >= MAX_PATTERNS:
            self._accuracy.clear()
        self._accuracy[key] = BANDWIDTHS[best], errors[best]
        return self._accuracy[key]

    def _differences(self, x: Floats, present: Pattern) -> Floats:
        """Return float64[n, m]: the mean squared difference of each known job from x over the `present` facts."""
        has_fact = ~np.isnan(self.points[:, present])
        points, x = np.where(has_fact, self.points[:, present], 0.0), x[:, present]
        squares = (x * x) @ has_fact.T - 2.0 * (x @ points.T) + (points * points).sum(axis=1)
        unknown = UNKNOWN_DIFFERENCE * (~has_fact).sum(axis=1)
        return np.asarray(np.maximum(squares + unknown, 0.0) / max(int(present.sum()), 1))

    def _means(self, weight: Floats) -> Floats:
        """Return float64[n, F]: each fact's weighted mean over the known jobs with it, in standard deviations."""
        has_fact = ~np.isnan(self.points)
        total = np.maximum(weight @ has_fact, MIN_WEIGHT)
        return np.asarray((weight @ np.where(has_fact, self.points, 0.0)) / total)


def read_completion(arrays: Mapping[str, NDArray[Any]]) -> FactCompletion | None:
    """Return the completion stored in the arrays of a model folder, or None where the folder has none."""
    if "completion_points" not in arrays:
        return None
    found: Mapping[str, Any] = {name: arrays[f"completion_{name}"] for name in ARRAYS}
    return FactCompletion(**found)


def fit_completion(jobs: Rows, workload: NDArray[np.int64]) -> FactCompletion:
    """Return a completion fitted on distinct encoded jobs float32[m, F]; `workload` int64[m] numbers the workloads."""
    present = ~np.isnan(jobs)
    centre, spread = centre_and_spread(jobs)
    spread = np.where(spread > MIN_SPREAD, spread, 0.0)
    values = np.where(present, jobs, 0.0).astype(np.float64)
    scaled = np.where(spread > 0.0, (values - centre) / np.where(spread > 0.0, spread, 1.0), 0.0)
    return FactCompletion(
        centre=np.where(present.any(axis=0), centre, np.nan),
        spread=spread,
        points=np.where(present, np.clip(scaled, -CLIP, CLIP), np.nan),
        workload=workload,
    )


def centre_and_spread(jobs: Rows) -> tuple[Floats, Floats]:
    """Return each column's mean and standard deviation over the jobs with a value, float64[F] each; 0 without any."""
    present = ~np.isnan(jobs)
    count = np.maximum(present.sum(axis=0), 1)
    values = np.where(present, jobs, 0.0).astype(np.float64)
    centre = values.sum(axis=0) / count
    return centre, np.sqrt((np.where(present, values - centre, 0.0) ** 2).sum(axis=0) / count)


def _weights(difference: Floats, bandwidth: float) -> Floats:
    """Return float64[n, m]: the kernel weight of each known job, 1 for the nearest and 0 at an infinite difference."""
    nearest = difference.min(axis=1, keepdims=True)
    return np.asarray(np.exp(-(difference - nearest) / (2.0 * bandwidth)) + MIN_WEIGHT * np.isfinite(difference))


ARRAYS = tuple(f.name for f in fields(FactCompletion) if not f.name.startswith("_"))  # as a model folder holds them
