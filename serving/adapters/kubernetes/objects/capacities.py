"""What a claim consumes of a shared device's capacities, by the rules of DRA's consumable capacity. Pure functions.

Source: k8s.io/dynamic-resource-allocation/structured, consumable_capacity.go. A request is rounded up to what the
capacity's request policy allows; a capacity that a claim does not name is consumed by its default, and as a whole where
it has none.
"""

import math
from collections.abc import Mapping
from typing import Any

from interfere.serving.adapters.kubernetes.objects.quantities import quantity


def consumed(capacity: Mapping[str, Any], requested: float | None) -> float:
    """What a claim consumes that requests so much, or does not name the capacity; NaN where no request is allowed."""
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        return quantity(policy.get("default", capacity.get("value")))
    span, values = policy.get("validRange") or {}, [quantity(each) for each in policy.get("validValues") or ()]
    if "min" in span:
        low, step = quantity(span["min"]), quantity(span.get("step"))
        steps = math.ceil((requested - low) / step) if requested > low and step > 0 else 0
        amount = low + steps * step if step > 0 else max(low, requested)
        return math.nan if amount > quantity(span.get("max", math.inf)) else amount
    if values:
        return min((each for each in values if each >= requested), default=math.nan)
    return requested


def share(capacity: Mapping[str, Any], seats: int) -> float:
    """The largest request of which `seats` fit into the capacity; the smallest valid one where none does. NaN where the
    capacity states no value."""
    part = quantity(capacity.get("value")) / seats
    policy = capacity.get("requestPolicy") or {}
    span, values = policy.get("validRange") or {}, [quantity(each) for each in policy.get("validValues") or ()]
    if "min" in span and not math.isnan(part):
        low, step, high = (quantity(span.get(name)) for name in ("min", "step", "max"))
        amount = min(part, high) if not math.isnan(high) else part
        if amount <= low:
            return low
        return low + math.floor((amount - low) / step) * step if step > 0 else amount
    if values and not math.isnan(part):
        return max((each for each in values if each <= part), default=min(values))
    return part
