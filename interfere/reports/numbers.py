"""Writes numbers for people, with their units; NaN becomes a dash.

A unit that is the same in a whole column stands in its heading; a unit that changes from number to number (ms, s)
stands behind each number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

DASH = "–"
NBSP = "\u00a0"  # keeps a number and its unit on one line
MAX_NAME = 34  # characters of a name in a heading of a figure
SHORT_HOURS = 0.1  # below it, hours are written as minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """The format of the numbers in a column, an axis or a tile."""

    quantity: str  # unit of the stored number, as programs read it: s, bytes, fraction, or nothing for a pure number
    digits: Callable[[float], str]  # of a finite number, without a common unit
    unit: str = ""  # common to all numbers; empty where each number has its own or none
    scale: float = 1.0  # from the stored number to the written one

    def number(self, value: float) -> str:
        """Return a number as text, without the unit of its column."""
        return DASH if math.isnan(value) else self.digits(value)

    def text(self, value: float) -> str:
        """Return a number with its unit as text."""
        return self.number(value) + (f"{NBSP}{self.unit}" if self.unit and not math.isnan(value) else "")

    def tick(self, value: float) -> str:
        """Return the text of a tick of an axis, without zeros at the end and without the sign of 0."""
        text = self.number(value) if value else "0"
        if "." in text and NBSP not in text:
            text = text.rstrip("0").rstrip(".")
        return f"{text}{NBSP}{self.unit}" if self.unit else text

    def ends(self, low: float, high: float) -> str:
        """Return an interval in brackets, without the unit; empty where an end is unknown."""
        return "" if math.isnan(low) or math.isnan(high) else f"[{self.number(low)}, {self.number(high)}]"


def fixed(
    digits: int = 0, unit: str = "", *, quantity: str = "", scale: float = 1.0, sign: bool = False
) -> NumberFormat:
    """Return a format with this number of digits after the point, for numbers multiplied by `scale`; thousands are
    grouped."""
    form = f"{'+' if sign else ''},.{digits}f"
    return NumberFormat(quantity=quantity, digits=lambda value: format(value * scale, form), unit=unit, scale=scale)


def percent(digits: int = 0, *, sign: bool = False) -> NumberFormat:
    """Return a format of fractions as per cent."""
    return fixed(digits, "%", quantity="fraction", scale=100.0, sign=sign)


def hours(digits: int = 2) -> NumberFormat:
    """Return a format of seconds as hours."""
    return fixed(digits, "h", quantity="s", scale=1 / 3600)


def format_slowdown(value: float) -> str:
    """Return a slowdown with about three digits: 1.58, 12.3, 104."""
    if math.isnan(value):
        return DASH
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def format_times(value: float) -> str:
    """Return a slowdown with a multiplication sign: 1.58 ×."""
    return TIMES.text(value)


def format_percent(value: float, digits: int = 0) -> str:
    """Return a fraction as per cent."""
    return percent(digits).text(value)


def format_duration(seconds: float) -> str:
    """Return a duration with three digits in s, ms, µs or ns: 350 µs, 8.03 ms, 1.20 s."""
    if math.isnan(seconds):
        return DASH
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{_three_digits(seconds / scale)}{NBSP}{unit}"
    return f"{_three_digits(seconds * 1e9)}{NBSP}ns"


def _three_digits(value: float) -> str:
    """Return a number with three digits, trailing zeros included, so that a column of numbers looks equally exact."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def format_digits(value: float) -> str:
    """Return a number with three significant digits and never with a power of ten: 0.931, 12.3, 2,010."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def format_gib(size: float) -> str:
    """Return a size in GiB, however small or large: 0.931 GiB, 61 GiB."""
    return DASH if math.isnan(size) else f"{format_digits(size / 2**30)} GiB"


def format_bytes(size: float) -> str:
    """Return a size in GiB, or in MiB or KiB where it is small."""
    if math.isnan(size):
        return DASH
    if size >= 2**30:
        return f"{size / 2**30:.1f}{NBSP}GiB"
    return f"{size / 2**20:.0f}{NBSP}MiB" if size >= 2**20 else f"{size / 2**10:.0f}{NBSP}KiB"


def format_hours(value: float) -> str:
    """Return seconds as hours, or as minutes where there are few."""
    if math.isnan(value):
        return DASH
    if 0 < abs(value) < SHORT_HOURS:
        return f"{value * 60:.0f}{NBSP}min"
    return f"{value:.1f}{NBSP}h" if abs(value) < 100 else f"{value:,.0f}{NBSP}h"


def format_date(unix_s: float) -> str:
    """Return the date of a moment in UTC."""
    return DASH if math.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).date().isoformat()


def shorten_name(name: str) -> str:
    """Return a name of at most MAX_NAME characters. A long name is cut in the middle, because batch sizes are at its
    end."""
    if len(name) <= MAX_NAME:
        return name
    head = MAX_NAME * 2 // 5
    return f"{name[:head]}…{name[head + 1 - MAX_NAME :]}"


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural: 1 row, 2 rows, 1,024 rows."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


COUNT = fixed()
PLAIN = NumberFormat(quantity="", digits=lambda value: f"{value:g}")
TIMES = NumberFormat(quantity="", digits=format_slowdown, unit="×")
DURATION = NumberFormat(quantity="s", digits=format_duration)
BYTES = NumberFormat(quantity="bytes", digits=format_bytes)
JOB_HOURS = NumberFormat(quantity="h", digits=format_hours)
