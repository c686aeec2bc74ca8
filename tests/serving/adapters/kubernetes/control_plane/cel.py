"""CEL expressions as kube-scheduler and the API server evaluate them, by Google's implementation of the language."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

DEVICE, OBJECT = "device", "object"  # the variable of a device selector, of a webhook's match condition


def compile_error(expression: str, variable: str) -> str:
    """Why an expression is refused; empty for a good one."""
    try:
        _compiled(expression, variable)
    except RuntimeError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _compiled(expression: str, variable: str) -> Any:
    return cel.NewEnv(variables={variable: cel.Type.DYN}).compile(expression)


def evaluate(expression: str, variable: str, value: Any) -> bool:
    """The result. Raises ValueError for an error while it is evaluated, such as a key that is not there."""
    result = _compiled(expression, variable).eval(data={variable: value})
    if result.type() != cel.Type.BOOL:
        raise ValueError(str(result.value()))
    return bool(result.value())


def device_variable(driver: str, device: dict[str, Any], domains: Iterable[str]) -> dict[str, Any]:
    """`device` of a selector: attributes by domain, the driver's own where a name has none. A domain without attributes
    is empty, not an error."""
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in (*domains, driver)}
    for name, value in (device.get("attributes") or {}).items():
        domain, slash, plain = name.rpartition("/")
        attributes.setdefault(domain if slash else driver, {})[plain] = next(iter(value.values()))
    shared = bool(device.get("allowMultipleAllocations"))
    return {"driver": driver, "attributes": attributes, "capacity": {}, "allowMultipleAllocations": shared}
