"""Base predictions: the wrapped model's own answers before any correction, asked in batches and cached.

Where a job of a pair is unprofiled, the means of workloads and domain replace the model's answer.
"""

import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from interfere.predict.groups import GroupComposition, composition_of
from interfere.predict.measured import StepTimes, contradicts
from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import WorkloadKey
from interfere.predict.online.unseen_device import Coordinates, JobCoordinates, no_coordinates
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch
from interfere.sharing_modes import SharingMode

MAX_CACHED_PAIRS = 200_000  # base predictions kept for later windows of the same pair: 300 bytes each

ResolveProfile = Callable[[str, str], JobProfile | None]
"""(workload, device type) -> its profile, or None when it has none."""


class BasePrediction(NamedTuple):
    """The wrapped model's own answer for a pair."""

    log_median: float
    measured: bool  # is it a measurement of this pair?
    families: tuple[str, str] = ("", "")  # of victim and neighbour; "" where unknown
    coordinates: tuple[Coordinates, Coordinates] = ((), ())  # of both, on a device type that the model never saw


_CacheKey = tuple[str, str, str, SharingMode]  # victim, neighbour, device type, mode
_Profiles = tuple[JobProfile | None, JobProfile | None]


class _CachedPrediction(NamedTuple):
    """A base prediction with weak references to the profiles that it was made from."""

    victim: weakref.ref[JobProfile]
    neighbour: weakref.ref[JobProfile]
    prediction: BasePrediction

    def is_of(self, profiles: _Profiles) -> bool:
        """Whether it was made from these very objects."""
        return None not in profiles and (self.victim() is profiles[0]) and (self.neighbour() is profiles[1])


class BasePredictions:
    """Base predictions of pairs of workloads. Not thread-safe."""

    def __init__(
        self,
        inner: Predictor,
        effects: Effects,
        measured: Iterable[tuple[str, str, str, SharingMode]],
        step_times: StepTimes,
        coordinates: JobCoordinates = no_coordinates,
    ) -> None:
        """`coordinates`: of jobs on device types that `inner` never saw.

        `measured`: (victim, neighbour, device type, mode) of the pairs that `inner` answers by a measurement, unless a
        profile contradicts these `step_times`.
        """
        self._inner, self._effects, self._step_times = inner, effects, step_times
        self._coordinates = coordinates
        self.measured_neighbours: dict[WorkloadKey, set[str]] = {}
        for victim, neighbour, device_type, mode in measured:
            self.measured_neighbours.setdefault((victim, device_type, mode), set()).add(neighbour)
        self._cache: OrderedDict[_CacheKey, _CachedPrediction] = OrderedDict()

    def predict(
        self, pairs: list[tuple[str, str]], device_type: str, mode: SharingMode, resolve: ResolveProfile
    ) -> list[BasePrediction]:
        """One base prediction per (victim, neighbour); its log median is NaN where there is none.

        A cached answer counts only while both profiles are still the same objects.
        """
        # 1. From the cache, or from means where a job is unprofiled.
        predictions: dict[tuple[str, str], BasePrediction] = {}
        missing = []
        for pair in pairs:
            profiles = resolve(pair[0], device_type), resolve(pair[1], device_type)
            cached = self._cache.get((*pair, device_type, mode))
            if cached is not None and cached.is_of(profiles):
                predictions[pair] = cached.prediction
            elif profiles[0] is None or profiles[1] is None:
                predictions[pair] = self._predict_from_means(pair, profiles, device_type, mode)
            else:
                missing.append((pair, profiles))
        # 2. All others from the wrapped model, in one batch.
        if missing:
            jobs = tuple(profile for _, profiles in missing for profile in profiles if profile is not None)
            references = [weakref.ref(job) for job in jobs]
            batch = PairBatch(
                jobs=jobs,
                victim=np.arange(0, len(jobs), 2),
                neighbour=np.arange(1, len(jobs), 2),
                device_type=device_type,
                mode=mode,
                allow_extrapolation=True,
            )
            answer = self._inner.predict_pairs(batch)
            coordinates = [(), ()] * len(missing)
            if self._inner.knows(device_type, mode):
                coordinates = [tuple(row) for row in self._coordinates(jobs, device_type, mode).tolist()]
            for k, (pair, _) in enumerate(missing):
                measured = pair[1] in self.measured_neighbours.get((pair[0], device_type, mode), ())
                measured &= not any(contradicts(job, self._step_times) for job in jobs[2 * k : 2 * k + 2])
                families = jobs[2 * k].family, jobs[2 * k + 1].family
                base = BasePrediction(
                    math.log(float(answer.median[k])), measured, families, (coordinates[2 * k], coordinates[2 * k + 1])
                )
                predictions[pair] = base
                victim, neighbour = references[2 * k : 2 * k + 2]
                self._cache[*pair, device_type, mode] = _CachedPrediction(victim, neighbour, base)
            while len(self._cache) > MAX_CACHED_PAIRS:
                self._cache.popitem(last=False)
        return [predictions[pair] for pair in pairs]

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """How the wrapped model composes slowdowns of groups in a domain."""
        return composition_of(self._inner, device_type, mode)

    def _predict_from_means(
        self, pair: tuple[str, str], profiles: _Profiles, device_type: str, mode: SharingMode
    ) -> BasePrediction:
        """From the means of workloads and domain; remembers which of the two jobs are unprofiled."""
        base = BasePrediction(self._effects.prior.unprofiled_log_slowdown(*pair, device_type, mode), False)
        if not math.isnan(base.log_median):
            for workload, profile in zip(pair, profiles, strict=True):
                if profile is None:
                    self._effects.state.unprofiled.add((workload, device_type, mode))
        return base
