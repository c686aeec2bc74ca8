"""Turn Python values into what strict JSON can hold: no NaN, no infinities, no tuples, no numpy scalars."""

import math
from typing import Any


def json_value(value: Any) -> Any:
    """Return a copy of `value` for `json.dumps`: NaN and infinities become null, tuples and sets lists, keys text.

    A numpy scalar becomes the Python number. Anything else is returned as it is.

    >>> json_value({"gap": float("nan"), "pairs": (("a", "b"),)})
    {'gap': None, 'pairs': [['a', 'b']]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(inner) for inner in value]
    return value.item() if hasattr(value, "item") else value
