"""What advice on a mode is made from: jobs as they are known on one device type, and scenarios of their slowdowns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.records import NAN, JobProfile

Floats = NDArray[np.float64]

SCENARIOS = 400  # equally likely slowdowns of a job: an expectation over them is exact to 0.3 %
_NORMAL = NormalDist()
_SCORES = np.array([_NORMAL.inv_cdf((k + 0.5) / SCENARIOS) for k in range(SCENARIOS)])
_SCORE_95 = _NORMAL.inv_cdf(0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToAdvise:
    """A job that needs advice, with its profile and latency target."""

    workload: str
    profile: JobProfile | None  # on the whole device, or its largest slice; None where there is none
    slice_profiles: Mapping[str, JobProfile] = field(default_factory=dict)  # on slices of it, by their device type
    latency_target_s: float = NAN  # that one step may take

    @property
    def step_time_s(self) -> float:
        """Time of one step alone on the whole device; NaN where unknown."""
        return NAN if self.profile is None else self.profile.step_time_s

    @property
    def slowdown_cap(self) -> float:
        """Return the slowdown at which it just keeps its latency target; infinite without a target."""
        return np.inf if np.isnan(self.latency_target_s) else self.latency_target_s / self.step_time_s


def slowdown_scenarios(median: float, lower: float, upper: float) -> Floats:
    """float64[s] of equally likely slowdowns, ascending: log-normal on each side of the median.

    `lower` and `upper` are the 5 and 95 % quantiles.
    """
    below, above = np.log(median / lower) / _SCORE_95, np.log(upper / median) / _SCORE_95
    return np.asarray(median * np.exp(np.where(_SCORES < 0, below, above) * _SCORES))
