"""Values of the API server as plain ones: parts of objects, quantities, times and addresses. Pure functions.

Source: apimachinery, `resource.Quantity` (binary suffixes Ki…Ei, decimal suffixes n, u, m, k…E, exponents).
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from interfere.records import NAN

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?")
_FACTORS = {suffix: 1024.0 ** (k + 1) for k, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_FACTORS |= {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
_FACTORS |= {suffix: 1000.0 ** (k + 1) for k, suffix in enumerate(("k", "M", "G", "T", "P", "E"))}


def map_at(row: object, *path: str) -> dict[str, Any]:
    """Return the object at a path of keys; empty where there is none."""
    for key in path:
        row = row.get(key) if isinstance(row, Mapping) else None
    return row if isinstance(row, dict) else {}


def list_at(row: object, *path: str) -> list[Any]:
    """Return the list at a path of keys; empty where there is none."""
    found = map_at(row, *path[:-1]).get(path[-1])
    return found if isinstance(found, list) else []


def maps_at(row: object, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the list at a path of keys; empty where there is no list of objects."""
    return [each if isinstance(each, dict) else {} for each in list_at(row, *path)]


def quantity(value: object) -> float:
    """Return a Kubernetes quantity such as `30Gi` as a number; NaN for anything else."""
    found = _QUANTITY.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    if found is None or isinstance(value, bool):
        return NAN
    suffix = found[2] or ""
    return float(found[1]) * (_FACTORS[suffix] if suffix in _FACTORS else 10.0 ** int(suffix[1:]))


def bytes_text(amount: float) -> str:
    """Return a number of bytes as a quantity, rounded down to whole MiB where it is at least one MiB."""
    mebibytes = math.floor(amount / 2**20)
    return f"{mebibytes}Mi" if mebibytes else str(math.floor(amount))


def unix_s(text: object) -> float:
    """Return a timestamp (RFC 3339) in unix seconds; 0 where there is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except ValueError:
        return 0.0


def timestamp(at_s: float) -> str:
    """Return unix seconds as a timestamp with microseconds, as the API server writes it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def number(text: str) -> float:
    """Return a number that the adapter wrote into an annotation; 0 for any other text."""
    try:
        return float(text)
    except ValueError:
        return 0.0
