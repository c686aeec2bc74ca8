"""The tolerance within which a level's value counts as equal to its lower bound."""

import math

LEVEL_TOLERANCE = 1e-7  # of the larger of value and bound: as far above its bound as a level may be and count as proved


def level_tolerance(value: float, lower_bound: float, share: float = LEVEL_TOLERANCE) -> float:
    """Return the tolerance in the units of the level; 0 where there is no lower bound."""
    return share * max(abs(value), abs(lower_bound)) if math.isfinite(lower_bound) else 0.0


def is_proved(value: float, lower_bound: float) -> bool:
    """Whether the value is within the tolerance of its lower bound, so that no better placement matters."""
    return value - lower_bound <= level_tolerance(value, lower_bound)
