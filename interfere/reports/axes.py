"""Places of values on an axis of a figure, and the ticks beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interfere.reports.document import Axis

MIN_TICK_GAP = 17.0  # user units between two labels of font size 11 that stand below each other
# Multiples of a power of ten at which a logarithmic axis may have a tick, the roundest first.
ROUND_MULTIPLES = ((1.0,), (2.0, 5.0), (1.5, 3.0, 7.0), (1.1, 1.2, 2.5, 4.0, 8.0, 9.0))
LINEAR_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic map from values in [low, high] to user units in [begin, end]."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        """Return the position of a value. A value beyond an end of the axis is placed at this end."""
        inside = min(self.high, max(self.low, value))
        if self.is_log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * share

    def ticks(self, gap: float, written: float = 1.0) -> tuple[float, ...]:
        """Values, round when multiplied by `written`, whose labels of `gap` user units do not touch."""
        made = log_ticks if self.is_log else linear_ticks
        ticks = made(self.low * written, self.high * written, abs(self.end - self.begin), gap)
        return tuple(tick / written for tick in ticks)


def scale_of(axis: Axis, values: Iterable[float], begin: float, end: float) -> Scale:
    """Return a scale that covers the values and the reference lines.

    A linear scale without given ends also covers 0.
    """
    known = [value for value in (*values, *(line for line, _ in axis.lines)) if math.isfinite(value)]
    if axis.is_log:
        known = [value for value in known if value > 0] or [1.0]
        low, high = min(known) / 1.03, max(known) * 1.03
    else:
        low, high = min([0.0, *known]), max([0.0, *known])
        margin = 0.03 * (high - low)
        low, high = low - margin * (low < 0), high + margin * (high > 0)
    low = low if math.isnan(axis.low) else axis.low
    high = high if math.isnan(axis.high) else axis.high
    if not low < high:
        high = low * 1.1 if axis.is_log else low + 1.0
    return Scale(low, high, begin, end, axis.is_log)


def log_ticks(low: float, high: float, span: float, gap: float = MIN_TICK_GAP) -> tuple[float, ...]:
    """Round values in [low, high], always with 1, whose labels do not touch on an axis of `span` user units."""
    scale = span / math.log(high / low)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    kept = [1.0] if low <= 1.0 <= high else []
    for multiples in ROUND_MULTIPLES:
        for tick in sorted((m * 10.0**k for m in multiples for k in decades), key=lambda t: abs(math.log(t))):
            if low <= tick <= high and all(abs(math.log(tick / other)) * scale >= gap for other in kept):
                kept.append(float(f"{tick:.3g}"))
    return tuple(sorted(kept))


def linear_ticks(low: float, high: float, span: float, gap: float) -> tuple[float, ...]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten in [low, high], as many as fit."""
    smallest = (high - low) * gap / span
    size = 10.0 ** math.floor(math.log10(smallest))
    step = next(size * k for k in LINEAR_STEPS if size * k >= smallest * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))
