"""Solo rates (steps per second of a job by itself), and the shared windows that wait for one to become a slowdown."""

import math
from dataclasses import dataclass

from interfere.predict.online.revertible import RevertibleDict
from interfere.records import NAN, Progress

MAX_PENDING_WINDOWS = 256  # newest pending windows per job in memory: more teach nothing more; the store keeps all
DECAY_WINDOWS = 50.0  # older solo windows fade, so that a change of a job's speed is believed within a day or two

SoloKey = tuple[str, str]  # workload, device type


@dataclass(frozen=True, slots=True)
class SoloRate:
    """Steps and seconds without a neighbour; both sums decay by 1 / DECAY_WINDOWS per window."""

    steps: float = 0.0
    seconds: float = 0.0

    def with_window(self, steps: float, seconds: float) -> "SoloRate":
        """The rate after one more window."""
        decay = 1 - 1 / DECAY_WINDOWS
        return SoloRate(decay * self.steps + steps, decay * self.seconds + seconds)

    @property
    def steps_per_s(self) -> float:
        """NaN before the first window."""
        return self.steps / self.seconds if self.seconds > 0 and self.steps > 0 else NAN


class SoloRates:
    """Solo rates by (workload, device type), and the shared windows pending for each."""

    def __init__(self) -> None:
        self.rates: RevertibleDict[SoloKey, SoloRate] = RevertibleDict()
        self.pending: RevertibleDict[SoloKey, tuple[Progress, ...]] = RevertibleDict()

    def steps_per_s(self, workload: str, device_type: str) -> float:
        """Solo rate of a workload; NaN when no solo window of it was reported."""
        rate = self.rates.get((workload, device_type))
        return rate.steps_per_s if rate else NAN

    def learn(self, window: Progress) -> tuple[Progress, ...]:
        """Take in a solo window; return the shared windows that were pending for it, in the order they came."""
        key = (window.workload, window.device_type)
        self.rates[key] = self.rates.get(key, SoloRate()).with_window(window.steps, window.end_s - window.start_s)
        return self.pending.remove(key) or ()

    def add_pending(self, window: Progress) -> None:
        """Keep a shared window until the solo rate of its job is known."""
        key = (window.workload, window.device_type)
        self.pending[key] = (*self.pending.get(key, ()), window)[-MAX_PENDING_WINDOWS:]

    def pending_count(self) -> int:
        """Number of shared windows that wait for a solo rate."""
        return sum(map(len, self.pending.values()))

    def slowdown(self, window: Progress) -> float:
        """Measured slowdown of a shared window: NaN while the solo rate is unknown, infinite when no step was made."""
        if not math.isnan(window.slowdown):
            return window.slowdown
        solo_steps_per_s = self.steps_per_s(window.workload, window.device_type)
        if math.isnan(solo_steps_per_s):
            return NAN
        return solo_steps_per_s * (window.end_s - window.start_s) / window.steps if window.steps > 0 else math.inf
