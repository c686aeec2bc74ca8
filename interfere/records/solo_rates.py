"""Solo rates: steps per second of a job by itself, which turn the steps of a shared window into a slowdown.

Law: a minority of the recent solo windows cannot move a rate beyond what the others report, however wrong it is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interfere.records.checks import NAN
from interfere.records.observations import Progress

RECENT_WINDOWS = 25  # whose median is the rate: a job that became faster is believed after a dozen solo windows

# Steps per second of any job: one step in 30 years, and a thousand a nanosecond. Beyond lie wrong units and rounding.
MIN_RATE, MAX_RATE = 1e-9, 1e12

SoloKey = tuple[str, str]  # workload, device type


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRate:
    """Steps per second in the recent windows without a neighbour, oldest first, and their median."""

    recent: tuple[float, ...] = ()
    steps_per_s: float = NAN  # NaN before the first window

    def with_window(self, steps: float, seconds: float) -> "SoloRate":
        """The rate after one more window."""
        recent = (*self.recent, steps / seconds)[-RECENT_WINDOWS:]
        return SoloRate(recent=recent, steps_per_s=_robust_rate(recent, self.steps_per_s))


def _robust_rate(rates: Sequence[float], known: float) -> float:
    """Return the median of the rates; of the two in the middle of an even number, the one nearer to what was known."""
    ordered = sorted(rates)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if math.isnan(known) or known <= 0:
        return lower
    log_known = math.log(known)
    return lower if abs(math.log(lower) - log_known) <= abs(math.log(upper) - log_known) else upper


def solo_rates(windows: Iterable[Progress]) -> dict[SoloKey, SoloRate]:
    """Return the rates that windows teach, in the order of time; shared ones and those of no rate teach none."""
    rates: dict[SoloKey, SoloRate] = {}
    for window in windows:
        seconds = window.end_s - window.start_s
        if not window.company and MIN_RATE <= window.steps / seconds <= MAX_RATE:
            key = window.workload, window.device_type
            rates[key] = rates.get(key, SoloRate()).with_window(window.steps, seconds)
    return rates


def window_slowdown(window: Progress, rate: SoloRate | None) -> float:
    """Measured slowdown of a shared window: NaN while the solo rate is unknown, infinite when no step was made."""
    if not math.isnan(window.slowdown):
        return window.slowdown
    if rate is None or math.isnan(rate.steps_per_s):
        return NAN
    return rate.steps_per_s * (window.end_s - window.start_s) / window.steps if window.steps > 0 else math.inf
