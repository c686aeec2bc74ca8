"""Times as people type them: durations such as 90s, 15m, 6h and 30d, and moments such as 2026-10-31T08:00.

Law: whatever reads a time from a person reads it here, so that every command takes the same words.
"""

import re
from datetime import UTC, datetime

from interfere.errors import InvalidInputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration_s(text: str) -> float:
    """Return the seconds of a duration of one unit, as Prometheus writes them. Raises InvalidInputError.

    >>> duration_s("5m")
    300.0
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise InvalidInputError("not a duration", value=repr(text), remedy="write 90s, 15m, 6h or 30d")
    return float(found[1]) * _UNIT_S[found[2]]


def moment_s(text: str, end_s: float) -> float:
    """Return the unix time of a moment, or of a duration before `end_s`. Raises InvalidInputError.

    A moment is a date, a date and a time in ISO 8601, in UTC by default, or unix seconds.

    >>> moment_s("1d", 100_000.0), moment_s("1970-01-02", 100_000.0)
    (13600.0, 86400.0)
    """
    if _DURATION.fullmatch(text.strip()):
        return end_s - duration_s(text)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        remedy = "write 2026-10-31, 2026-10-31T08:00, unix seconds, or how long ago: 90s, 15m, 6h, 30d"
        raise InvalidInputError("not a time", value=repr(text), remedy=remedy) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def start_s(text: str, end_s: float) -> float:
    """Return the moment at which a span that ends at `end_s` begins. Raises InvalidInputError where none is left.

    >>> start_s("90s", 100.0)
    10.0
    """
    start_s = moment_s(text, end_s)
    if start_s >= end_s:
        end = datetime.fromtimestamp(end_s, UTC).isoformat(timespec="seconds")
        raise InvalidInputError(
            f"the span begins no earlier than it ends, at {end}", value=repr(text), remedy="name an earlier moment"
        )
    return start_s
