"""Selectors of devices: CEL expressions of DeviceClasses and claims, evaluated as kube-scheduler does. Pure functions.

By Google's implementation of the language, with quantities as Kubernetes adds them. Source: k8s.io/apiserver,
cel/library/quantity.go; k8s.io/dynamic-resource-allocation/cel.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from interfere.serving.adapters.kubernetes.objects.values import map_at, quantity

DEVICE = "device"  # the variable of a selector
_COMPARED: Mapping[str, tuple[Any, Callable[[float, float], Any]]] = {
    "compareTo": (cel.Type.INT, lambda a, b: (a > b) - (a < b)),
    "isGreaterThan": (cel.Type.BOOL, operator.gt),
    "isLessThan": (cel.Type.BOOL, operator.lt),
    "add": (cel.Type.DOUBLE, operator.add),
    "sub": (cel.Type.DOUBLE, operator.sub),
}


def _functions() -> list[Any]:
    """Return Kubernetes' functions of quantities, which are numbers here."""

    def declared(name: str, result: Any, parameters: Sequence[Any], call: Callable[..., Any], *, member: bool) -> Any:
        return cel.FunctionDecl(name, [cel.Overload(f"{name}_of_quantity", result, list(parameters), member, call)])

    text, number, truth = cel.Type.STRING, cel.Type.DOUBLE, cel.Type.BOOL
    return [
        declared("quantity", number, [text], _quantity, member=False),
        declared("isQuantity", truth, [text], lambda given: not math.isnan(quantity(given)), member=False),
        declared("asApproximateFloat", number, [number], float, member=True),
        declared("asInteger", cel.Type.INT, [number], int, member=True),
        *(declared(name, result, (number,) * 2, call, member=True) for name, (result, call) in _COMPARED.items()),
    ]


def _quantity(text: str) -> float:
    if math.isnan(amount := quantity(text)):
        raise ValueError(f"{text!r} is no quantity")
    return amount


@lru_cache(maxsize=1024)
def compile_error(expression: str, variable: str) -> str:
    """Return the reason why an expression is refused; empty for a good one."""
    try:
        _compiled(expression, variable)
    except RuntimeError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _compiled(expression: str, variable: str) -> Any:
    return cel.NewEnv(variables={variable: cel.Type.DYN}, functions=_functions()).compile(expression)


def evaluate(expression: str, variable: str, value: Any) -> bool:
    """Return the result of an expression. Raises ValueError for one that cannot be evaluated, such as for a missing
    key."""
    try:
        result = _compiled(expression, variable).eval(data={variable: value})
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    if result.type() != cel.Type.BOOL:
        raise ValueError(str(result.value()))
    return bool(result.value())


def selects(expressions: Iterable[str], variable: Mapping[str, Any]) -> bool:
    """Return whether all selectors are true for a device; false where one of them fails, because kube-scheduler then
    allocates nothing.

    An expression that only Kubernetes knows, as one of `semver`, counts as true: the device is tried.
    """
    try:
        return all(compile_error(each, DEVICE) or evaluate(each, DEVICE, variable) for each in expressions)
    except ValueError:
        return False


def device_variable(driver: str, device: Mapping[str, Any], domains: Iterable[str]) -> dict[str, Any]:
    """Return `device` of a selector: attributes and capacities by domain, the driver's own where a name has none.

    A domain without any is empty, not an error.
    """
    shared = bool(device.get("allowMultipleAllocations"))
    variable = {"driver": driver, "allowMultipleAllocations": shared}
    for field in ("attributes", "capacity"):
        of_domain: dict[str, dict[str, Any]] = {domain: {} for domain in (*domains, driver)}
        for name, row in map_at(device, field).items():
            domain, _, plain = name.rpartition("/")
            given = row if isinstance(row, dict) else {}
            value = quantity(given.get("value")) if field == "capacity" else next(iter(given.values()), None)
            of_domain.setdefault(domain or driver, {})[plain] = value
        variable[field] = of_domain
    return variable


def capacity_term(driver: str, name: str, value: str) -> str:
    """Return a CEL term that is true for devices with this capacity, and fails on none. `name`: as published."""
    domain, _, plain = name.rpartition("/")
    of_domain, key = f"device.capacity[{json.dumps(domain or driver)}]", json.dumps(plain)
    return f"{key} in {of_domain} && {of_domain}[{key}].compareTo(quantity({json.dumps(value)})) == 0"


def attribute_term(driver: str, name: str, value: str | int | bool) -> str:
    """Return a CEL term that is true for devices with this attribute, and fails on none. `name`: as published."""
    domain, _, plain = name.rpartition("/")
    of_domain, key = f"device.attributes[{json.dumps(domain or driver)}]", json.dumps(plain)
    return f"{key} in {of_domain} && {of_domain}[{key}] == {json.dumps(value, ensure_ascii=False)}"


def expressions_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the CEL expressions of a DeviceClass's spec, or of a request for devices."""
    selectors = row.get("selectors")
    rows = selectors if isinstance(selectors, list) else []
    return tuple(str(map_at(each, "cel").get("expression") or "false") for each in rows)
