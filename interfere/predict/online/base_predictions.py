"""What the model inside says of a pair before any correction: asked in batches, remembered, and where a job of the pair
has no facts, replaced by the means of workloads and device."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import Home
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch

KEPT = 200_000  # answers kept for windows of the same pair: 300 bytes each

Resolve = Callable[[str, str], JobProfile | None]
"""(workload, device type) -> its profile, when there is one."""


class Base(NamedTuple):
    """The model's own answer for a pair: its log median, and whether it was a measurement."""

    log_median: float
    direct: bool


_Asked = tuple[str, str, str, str]  # victim, neighbour, device type, mode
_Profiles = tuple[JobProfile | None, JobProfile | None]


class Bases:
    """Not thread-safe."""

    def __init__(self, inner: Predictor, effects: Effects, measured: Iterable[tuple[str, str, str, str]]) -> None:
        """`measured`: (victim, neighbour, device type, mode) of the pairs that `inner` answers by a measurement."""
        self._inner, self._effects = inner, effects
        self.measured: dict[Home, set[str]] = {}
        for victim, neighbour, device_type, mode in measured:
            self.measured.setdefault((victim, device_type, mode), set()).add(neighbour)
        self._known: OrderedDict[_Asked, tuple[JobProfile | None, JobProfile | None, Base]] = OrderedDict()

    def ask(self, pairs: list[tuple[str, str]], device_type: str, mode: str, resolve: Resolve) -> list[Base]:
        """The model's own answers, from memory where the profiles are still the same; NaN where it has none."""
        found: dict[tuple[str, str], Base] = {}
        missing = []
        for pair in pairs:
            profiles = resolve(pair[0], device_type), resolve(pair[1], device_type)
            kept = self._known.get((*pair, device_type, mode))
            if kept is not None and kept[0] is profiles[0] and kept[1] is profiles[1]:
                found[pair] = kept[2]
            elif profiles[0] is None or profiles[1] is None:
                found[pair] = self._of_means(pair, profiles, device_type, mode)
            else:
                missing.append((pair, profiles))
        if missing:
            jobs = tuple(profile for _, both in missing for profile in both if profile is not None)
            batch = PairBatch(
                jobs=jobs,
                victim=np.arange(0, len(jobs), 2),
                neighbour=np.arange(1, len(jobs), 2),
                device_type=device_type,
                mode=mode,
                allow_extrapolation=True,
            )
            said = self._inner.predict_pairs(batch)
            for k, (pair, profiles) in enumerate(missing):
                direct = pair[1] in self.measured.get((pair[0], device_type, mode), ())
                base = Base(math.log(float(said.median[k])), direct)
                found[pair] = base
                self._known[*pair, device_type, mode] = (*profiles, base)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return [found[pair] for pair in pairs]

    def _of_means(self, pair: tuple[str, str], profiles: _Profiles, device_type: str, mode: str) -> Base:
        """The means of workloads and device, where a job of the pair has no facts."""
        base = Base(self._effects.prior.cold(*pair, device_type, mode), False)
        if not math.isnan(base.log_median):
            for name, profile in zip(pair, profiles, strict=True):
                if profile is None:
                    self._effects.cold.add((name, device_type, mode))
        return base
