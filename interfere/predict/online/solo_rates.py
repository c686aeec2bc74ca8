"""Solo rates, learned from windows alone, and the shared windows that wait for one."""

import math
from dataclasses import dataclass

from interfere.predict.online.revertible import UndoDict
from interfere.records import NAN, Progress

PENDING_LIMIT = 256  # newest windows of one job that wait in memory: more teach it nothing more; the store keeps all
MEMORY = 50.0  # windows alone: older ones fade, so that a job that was made faster is believed within a day or two

SoloKey = tuple[str, str]  # workload, device type


@dataclass(frozen=True, slots=True)
class Rate:
    """Steps per second alone: both sums decay by 1/MEMORY a window."""

    steps: float = 0.0
    seconds: float = 0.0

    def after(self, steps: float, seconds: float) -> "Rate":
        """With one more window."""
        keep = 1 - 1 / MEMORY
        return Rate(keep * self.steps + steps, keep * self.seconds + seconds)

    @property
    def per_s(self) -> float:
        """NaN before the first window."""
        return self.steps / self.seconds if self.seconds > 0 and self.steps > 0 else NAN


class SoloRates:
    """Rates by (workload, device type), and who waits for them."""

    def __init__(self) -> None:
        self.rates: UndoDict[SoloKey, Rate] = UndoDict()
        self.waiting: UndoDict[SoloKey, tuple[Progress, ...]] = UndoDict()

    def of(self, workload: str, device_type: str) -> float:
        """Steps per second alone; NaN where nobody measured it."""
        rate = self.rates.get((workload, device_type))
        return rate.per_s if rate else NAN

    def learn(self, window: Progress) -> tuple[Progress, ...]:
        """Fold a window alone in; the windows that waited for it, in their order."""
        key = (window.workload, window.device_type)
        self.rates[key] = self.rates.get(key, Rate()).after(window.steps, window.end_s - window.start_s)
        return self.waiting.take(key) or ()

    def wait(self, window: Progress) -> None:
        """Keep a shared window until its job's rate is known."""
        key = (window.workload, window.device_type)
        self.waiting[key] = (*self.waiting.get(key, ()), window)[-PENDING_LIMIT:]

    def pending(self) -> int:
        """How many wait."""
        return sum(map(len, self.waiting.values()))

    def slowdown(self, window: Progress) -> float:
        """Measured slowdown of a shared window; NaN while the solo rate is unknown, infinite without a step."""
        if not math.isnan(window.slowdown):
            return window.slowdown
        alone = self.of(window.workload, window.device_type)
        if math.isnan(alone):
            return NAN
        return alone * (window.end_s - window.start_s) / window.steps if window.steps > 0 else math.inf
