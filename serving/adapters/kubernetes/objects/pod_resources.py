"""What a pod as a whole asks for of a resource. Pure functions.

Source: k8s.io/component-helpers, resource.PodRequests: init containers run one after the other before the containers,
those with restartPolicy Always (sidecars) beside them; the pod's own figure takes the place of the sum; the overhead of
its runtime class is added.
"""

import math
from collections.abc import Mapping
from typing import Any

from interfere.serving.adapters.kubernetes.objects.quantities import quantity


def total_of_pod(spec: Mapping[str, Any], kind: str, resource: str) -> float:
    """What a pod takes of a node while it takes most. `kind`: requests or limits."""
    sidecars = peak = 0.0
    for container in _list(spec.get("initContainers")):
        amount = _amount(container, kind, resource)
        peak = max(peak, sidecars + amount)
        if container.get("restartPolicy") == "Always":
            sidecars += amount
    together = sidecars + sum(_amount(each, kind, resource) for each in _list(spec.get("containers")))
    own = _quantity(_map(_map(spec.get("resources")).get(kind)).get(resource))
    overhead = _quantity(_map(spec.get("overhead")).get(resource))
    total = max(peak, together) if math.isnan(own) else own
    return total + (0.0 if math.isnan(overhead) else overhead)


def _amount(container: Mapping[str, Any], kind: str, resource: str) -> float:
    amount = _quantity(_map(_map(container.get("resources")).get(kind)).get(resource))
    return 0.0 if math.isnan(amount) else amount


def _quantity(value: object) -> float:
    return math.nan if value is None else quantity(value)


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
