"""Formats numbers for people, with their units; NaN becomes a dash."""

import math
from datetime import UTC, datetime

DASH = "–"
NBSP = "\u00a0"  # keeps a number and its unit on one line
MAX_NAME = 34  # characters of a name in a heading of the heat map


def format_slowdown(value: float) -> str:
    """A slowdown with about three digits: 1.58, 12.3, 104."""
    if math.isnan(value):
        return DASH
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def format_times(value: float) -> str:
    """A slowdown with a multiplication sign: 1.58 ×."""
    return DASH if math.isnan(value) else f"{format_slowdown(value)}{NBSP}×"


def format_percent(value: float, digits: int = 0) -> str:
    """A fraction as per cent."""
    return DASH if math.isnan(value) else f"{value:.{digits}%}".replace("%", f"{NBSP}%")


def format_number(value: float, digits: int = 2) -> str:
    """A number without a unit."""
    return DASH if math.isnan(value) else f"{value:.{digits}f}"


def format_duration(seconds: float) -> str:
    """A duration with three digits, in s, ms, µs or ns: 350 µs, 8.03 ms, 1.20 s."""
    if math.isnan(seconds):
        return DASH
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{_three_digits(seconds / scale)}{NBSP}{unit}"
    return f"{_three_digits(seconds * 1e9)}{NBSP}ns"


def _three_digits(value: float) -> str:
    """Three digits with trailing zeros, so that a column of them looks equally exact."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def format_bytes(size: float) -> str:
    """A size in GiB, a small one in MiB or KiB."""
    if math.isnan(size):
        return DASH
    if size >= 2**30:
        return f"{size / 2**30:.1f}{NBSP}GiB"
    return f"{size / 2**20:.0f}{NBSP}MiB" if size >= 2**20 else f"{size / 2**10:.0f}{NBSP}KiB"


def format_date(unix_s: float) -> str:
    """The date in UTC."""
    return DASH if math.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).date().isoformat()


def shorten_name(name: str) -> str:
    """The name in at most MAX_NAME characters, cut in the middle, since batch sizes are at the end."""
    if len(name) <= MAX_NAME:
        return name
    head = MAX_NAME * 2 // 5
    return f"{name[:head]}…{name[head + 1 - MAX_NAME :]}"


def count_noun(count: int, noun: str) -> str:
    """A count with its noun in singular or plural: 1 row, 2 rows, 1,024 rows."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
