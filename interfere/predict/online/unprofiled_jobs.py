"""Unprofiled jobs: without any facts, they start from the means of their co-located workloads, once observed."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import WorkloadKey
from interfere.records import MODES, NAN, JobProfile

UNPROFILED = "cold"  # `source` of a profile without facts


class UnprofiledJobs:
    """Profiles without facts, and what is predicted of their jobs before any correction."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._profiles: dict[tuple[str, str], JobProfile] = {}

    def profile(self, workload: str, device_type: str) -> JobProfile | None:
        """A profile without facts for an unprofiled workload, always the same object; None before it was observed."""
        effects = self._effects
        keys = [(workload, device_type, mode) for mode in MODES]
        if not any(key in effects.state.unprofiled and any(effects.was_observed(key)) for key in keys):
            return None
        profile = JobProfile(workload=workload, device_type=device_type, step_time_s=NAN, source=UNPROFILED)
        return self._profiles.setdefault((workload, device_type), profile)

    def mask(self, keys: Sequence[WorkloadKey], jobs: Sequence[JobProfile]) -> NDArray[np.bool_]:
        """bool[k]: which jobs are unprofiled."""
        return np.array(
            [
                job.source == UNPROFILED and key in self._effects.state.unprofiled
                for key, job in zip(keys, jobs, strict=True)
            ],
            dtype=bool,
        )

    def slowdown(self, victim: WorkloadKey, neighbour: WorkloadKey, level: float) -> float:
        """Quantile `level` of the slowdown of a pair with an unprofiled job, before anything was observed."""
        effects = self._effects
        variance = effects.prior.pair_var + effects.prior.noise_var
        variance += sum(
            effects.unprofiled_var[role]
            for role, key in (("victim", victim), ("neighbour", neighbour))
            if key in effects.state.unprofiled
        )
        log_median = effects.prior.unprofiled_log_slowdown(victim[0], neighbour[0], victim[1], victim[2])
        return math.exp(log_median + NormalDist().inv_cdf(level) * math.sqrt(variance))
