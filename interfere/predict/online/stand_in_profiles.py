"""Profiles that stand in for jobs without one, from what was observed of them and from their profile elsewhere.

A job that has a profile on another device type is described by the facts of that profile which do not depend on the
device, and by its observed step time. A job with nothing but an observed step time is described by that, on a device
type for which no mean is known. Any other job starts from the means of its co-located workloads (`UNPROFILED`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.base_predictions import ResolveProfile
from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import WorkloadKey
from interfere.records import NAN, JobProfile
from interfere.sharing_modes import SharingMode

UNPROFILED = "cold"  # `source` of a profile without facts
OBSERVED = "observed"  # `source` of a profile from solo windows, or from another device type
STEPS_PER_OCTAVE = 8  # observed step times are rounded by up to 4.5 %, so that a profile does not change every window
# Workloads whose newest stand-in is kept as the same object, so that the predictor's cache of encoded jobs is hit.
MAX_PROFILES = 10_000

ResolveElsewhere = Callable[[str], JobProfile | None]
"""Workload -> a profile of it on any device type, or None."""


class StandInProfiles:
    """Stand-ins for missing profiles, and the uncorrected predictions for unprofiled jobs."""

    def __init__(self, effects: Effects, elsewhere: ResolveElsewhere) -> None:
        self._effects, self._elsewhere = effects, elsewhere
        # By workload and device type: the newest stand-in and all that it depends on. Any thread may replace one.
        self._profiles: dict[tuple[str, str], tuple[tuple[float, str], JobProfile]] = {}

    def of_snapshot(self, effects: Effects, elsewhere: ResolveElsewhere) -> "StandInProfiles":
        """The stand-ins of a snapshot, which are the same objects as these while nothing changes."""
        of_snapshot = StandInProfiles(effects, elsewhere)
        of_snapshot._profiles = self._profiles
        return of_snapshot

    def resolver(self, resolve: ResolveProfile) -> ResolveProfile:
        """The given way to find profiles, with stand-ins that hold facts where there is none."""

        def resolve_or_stand_in(workload: str, device_type: str) -> JobProfile | None:
            profile = resolve(workload, device_type) or self._from_facts(workload, device_type)
            if profile is not None and profile.source == OBSERVED:
                self._effects.state.with_stand_in.add((workload, device_type))
            return profile

        return resolve_or_stand_in

    def profile(self, workload: str, device_type: str, *, is_measured: bool = False) -> JobProfile | None:
        """The stand-in of a workload, the same object while nothing changes; None before it was observed.

        `is_measured`: a job of the workload runs alone at this moment. Other jobs of it are then described before the
        first observation, by the workload's profile elsewhere or by means; None without either.
        """
        state, prior = self._effects.state, self._effects.prior
        keys = [(workload, device_type, mode) for mode in SharingMode]
        was_observed = any(any(self._effects.was_observed(key)) for key in keys)
        if (was_observed or is_measured or (workload, device_type) in state.solo_rates) and (
            profile := self._from_facts(workload, device_type)
        ):
            return profile
        has_means = is_measured and any(place == device_type for place, _ in prior.means)
        if not has_means and (not was_observed or state.unprofiled.isdisjoint(keys)):
            return None
        make = partial(JobProfile, workload=workload, device_type=device_type, step_time_s=NAN, source=UNPROFILED)
        return self._kept(workload, device_type, (0.0, UNPROFILED), make)

    def _from_facts(self, workload: str, device_type: str) -> JobProfile | None:
        """The profile from another device type and from solo windows; None without facts."""
        rate = self._effects.state.solo_rates.get((workload, device_type))
        step_time_s = NAN
        if rate is not None and rate.steps_per_s > 0:
            octaves = round(STEPS_PER_OCTAVE * math.log2(1.0 / rate.steps_per_s)) / STEPS_PER_OCTAVE
            step_time_s = 2.0**octaves
        if elsewhere := self._elsewhere(workload):
            depends_on = step_time_s if step_time_s > 0 else 0.0, elsewhere.profile_id
            return self._kept(workload, device_type, depends_on, lambda: _moved(elsewhere, device_type, step_time_s))
        has_means = any(place == device_type for place, _ in self._effects.prior.means)
        if math.isnan(step_time_s) or has_means:
            return None
        make = partial(JobProfile, workload=workload, device_type=device_type, step_time_s=step_time_s, source=OBSERVED)
        return self._kept(workload, device_type, (step_time_s, OBSERVED), make)

    def _kept(
        self, workload: str, device_type: str, depends_on: tuple[float, str], make: Callable[[], JobProfile]
    ) -> JobProfile:
        """The newest stand-in of a workload where it depends on the same; else a new one, kept in its place."""
        kept = self._profiles.get((workload, device_type))
        if kept is not None and kept[0] == depends_on:
            return kept[1]
        if len(self._profiles) >= MAX_PROFILES:
            self._profiles.clear()
        profile = make()
        self._profiles[workload, device_type] = depends_on, profile
        return profile

    def mask(self, jobs: Sequence[JobProfile]) -> NDArray[np.bool_]:
        """bool[k]: which jobs are unprofiled."""
        return np.array([job.source == UNPROFILED for job in jobs], dtype=bool)

    def slowdown(
        self, victim: WorkloadKey, neighbour: WorkloadKey, unprofiled: tuple[bool, bool], level: float
    ) -> float:
        """Quantile `level` of the slowdown of a pair before anything was observed. `unprofiled`: is the victim, is the
        neighbour?"""
        effects = self._effects
        variance = effects.prior.pair_var + effects.prior.noise_var
        variance += sum(
            effects.unprofiled_var[role]
            for role, is_one in zip(("victim", "neighbour"), unprofiled, strict=True)
            if is_one
        )
        log_median = effects.prior.unprofiled_log_slowdown(victim[0], neighbour[0], victim[1], victim[2])
        return math.exp(log_median + NormalDist().inv_cdf(level) * math.sqrt(variance))


def _moved(profile: JobProfile, device_type: str, step_time_s: float) -> JobProfile:
    """The facts of a profile that hold on any device type, with the step time observed on this one."""
    return replace(
        profile,
        device_type=device_type,
        source=OBSERVED,
        step_time_s=step_time_s,
        step_time_sd_s=NAN,
        busy_frac=NAN,
        busy_s=(),
        idle_s=(),
        kernels=(),
        static_step_time_s=NAN,
        gpu_util_frac=NAN,
        memory_util_frac=NAN,
        sm_active_frac=NAN,
        sm_occupancy_frac=NAN,
        tensor_active_frac=NAN,
        dram_active_frac=NAN,
        power_w=NAN,
    )
