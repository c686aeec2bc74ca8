"""When a level counts as proved: within which distance of its lower bound."""

import math

LEVEL_TOLERANCE = 1e-7  # of the larger of value and bound: as far above its bound as a level may be and count as proved


def level_tolerance(value: float, lower_bound: float, share: float = LEVEL_TOLERANCE) -> float:
    """The tolerance in units of the level's sum; 0 without a bound."""
    return share * max(abs(value), abs(lower_bound)) if math.isfinite(lower_bound) else 0.0


def is_proved(value: float, lower_bound: float) -> bool:
    """Whether no placement is better by more than the tolerance."""
    return value - lower_bound <= level_tolerance(value, lower_bound)
