"""Numbers as people read them: units beside them, an absent one is a dash."""

import math
from datetime import UTC, datetime

DASH = "–"
NBSP = "\u00a0"  # a number and its unit stay on one line
MAX_NAME = 34  # characters of a name in a heading of the heat map


def ratio(value: float) -> str:
    """A slowdown: 1.58, 12.3, 104."""
    if math.isnan(value):
        return DASH
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def times(value: float) -> str:
    """A slowdown with its sign: 1.58 ×."""
    return DASH if math.isnan(value) else f"{ratio(value)}{NBSP}×"


def share(value: float, digits: int = 0) -> str:
    """A fraction in per cent."""
    return DASH if math.isnan(value) else f"{value:.{digits}%}".replace("%", f"{NBSP}%")


def figure(value: float, digits: int = 2) -> str:
    """A plain number."""
    return DASH if math.isnan(value) else f"{value:.{digits}f}"


def seconds(value: float) -> str:
    """350 µs, 8.03 ms, 1.20 s."""
    if math.isnan(value):
        return DASH
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{_three(value / scale)}{NBSP}{unit}"
    return f"{_three(value * 1e9)}{NBSP}ns"


def _three(value: float) -> str:
    """Three digits, trailing zeros kept: a column of them reads as equally exact."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def gib(value: float) -> str:
    """Bytes as GiB, small ones as MiB or KiB."""
    if math.isnan(value):
        return DASH
    if value >= 2**30:
        return f"{value / 2**30:.1f}{NBSP}GiB"
    return f"{value / 2**20:.0f}{NBSP}MiB" if value >= 2**20 else f"{value / 2**10:.0f}{NBSP}KiB"


def day(unix_s: float) -> str:
    """The date in UTC."""
    return DASH if math.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).date().isoformat()


def short(name: str) -> str:
    """At most MAX_NAME characters; what is cut lies in the middle, since batch sizes stand at the end."""
    if len(name) <= MAX_NAME:
        return name
    head = MAX_NAME * 2 // 5
    return f"{name[:head]}…{name[head + 1 - MAX_NAME :]}"


def plural(count: int, noun: str) -> str:
    """1 row, 2 rows, 1,024 rows."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
