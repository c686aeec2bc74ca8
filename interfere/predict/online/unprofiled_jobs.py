"""Jobs without any facts: they start from the means of their company, and are served once something was observed."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import Home
from interfere.records import MODES, NAN, JobProfile

COLD = "cold"  # source of a profile without facts


class ColdJobs:
    """Profiles without facts, and what is predicted of them before anything is corrected."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._profiles: dict[tuple[str, str], JobProfile] = {}

    def profile(self, workload: str, device_type: str) -> JobProfile | None:
        """A profile without facts for a job that has none, once something was learned of it; the same object always."""
        effects = self._effects
        homes = ((workload, device_type, mode) for mode in MODES)
        if not any(home in effects.cold and (home in effects.own or home in effects.aggressor) for home in homes):
            return None
        made = JobProfile(workload=workload, device_type=device_type, step_time_s=NAN, source=COLD)
        return self._profiles.setdefault((workload, device_type), made)

    def among(self, homes: Sequence[Home], jobs: Sequence[JobProfile]) -> NDArray[np.bool_]:
        """bool[k]: jobs without facts."""
        return np.array(
            [job.source == COLD and home in self._effects.cold for home, job in zip(homes, jobs, strict=True)],
            dtype=bool,
        )

    def slowdown(self, victim: Home, neighbour: Home, level: float) -> float:
        """A quantile of the slowdown of a pair with such a job, before anything was observed."""
        prior, cold = self._effects.prior, self._effects.cold
        variance = prior.pair_var + prior.noise_var
        variance += sum(
            self._effects.cold_var[r] for r, home in (("own", victim), ("aggressor", neighbour)) if home in cold
        )
        middle = prior.cold(victim[0], neighbour[0], victim[1], victim[2])
        return math.exp(middle + NormalDist().inv_cdf(level) * math.sqrt(variance))
