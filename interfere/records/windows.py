"""When a device may be used: windows on the caller's clock."""

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
    """Sorted (from, until) with those that touch as one; until is inf where no end is known; all time for no window."""
    if not windows:
        return [(-math.inf, math.inf)]
    found: list[tuple[float, float]] = []
    for one in sorted(windows, key=lambda window: window.from_s):
        until_s = math.inf if math.isnan(one.until_s) else one.until_s
        if found and one.from_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until_s))
        else:
            found.append((one.from_s, until_s))
    return found
