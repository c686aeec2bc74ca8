"""Turn Python values into what strict JSON can hold: no NaN, no infinities, no tuples, no numpy scalars, no records."""

import math
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any


def json_value(value: Any) -> Any:
    """Return a copy of `value` for `json.dumps`: NaN and infinities become null, tuples and sets lists, keys text.

    A numpy scalar becomes the Python number, a path its text, and a dataclass an object of its fields and of the
    properties that its `DERIVED` names, or of what its method `facts` returns where it has one. Anything else is
    returned as it is.

    >>> json_value({"gap": float("nan"), "pairs": (("a", "b"),)})
    {'gap': None, 'pairs': [['a', 'b']]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        names = (*(field.name for field in fields(value)), *getattr(value, "DERIVED", ()))
        return json_value(value.facts() if hasattr(value, "facts") else {name: getattr(value, name) for name in names})
    if isinstance(value, PurePath):
        return str(value)
    return value.item() if hasattr(value, "item") else value
