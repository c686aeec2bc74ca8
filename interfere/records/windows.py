"""Windows of time in which a device may be used, on the caller's clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.errors import Violation
from interfere.records.checks import NAN, check, number_violations


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A device is available from `from_s` until `until_s`, both on the caller's clock."""

    from_s: float = 0.0
    until_s: float = NAN  # absent: no end is known

    def __post_init__(self) -> None:
        bad = number_violations(self, "from_s", nan=False) + number_violations(self, "until_s")
        if self.until_s <= self.from_s:
            what, remedy = f"must be after from_s, {self.from_s!r}", "leave it out when no end is known"
            bad.append(Violation(field="until_s", what=what, value=repr(self.until_s), remedy=remedy))
        check(bad)


def spans(windows: Sequence[Window]) -> list[tuple[float, float]]:
    """Sorted (from, until), touching windows merged; until is inf where no end is known; all time without windows."""
    if not windows:
        return [(-math.inf, math.inf)]
    merged: list[tuple[float, float]] = []
    for window in sorted(windows, key=lambda window: window.from_s):
        until_s = math.inf if math.isnan(window.until_s) else window.until_s
        if merged and window.from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until_s))
        else:
            merged.append((window.from_s, until_s))
    return merged
