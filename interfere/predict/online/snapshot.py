"""A read-only copy of an online model, so that any number of readers predict while one writer goes on learning.

Law: a snapshot answers as the model did when it was taken, whatever the model learns later. The values in the model's
dictionaries are never changed in place (see `revertible`), so a copy of the dictionaries is enough: a million pairs
take about 10 ms.
"""

from collections import OrderedDict
from typing import Any, TypeVar, cast

from interfere.predict.residual import OnlineModel

T = TypeVar("T")
_LEARNING_MODULES = ("interfere.predict.online.", "interfere.predict.residual")


def snapshot_of(model: OnlineModel) -> OnlineModel:
    """A copy that shares the wrapped predictor and every learned value, but no dictionary and no set."""
    return _copy(model, {})


def _copy(value: T, copies: dict[int, Any]) -> T:
    """A copy of what learning changes; everything else is shared. `copies` keeps shared parts shared."""
    if id(value) in copies:
        return cast(T, copies[id(value)])
    copied: Any = value
    if isinstance(value, OrderedDict):
        copied = OrderedDict()  # a cache
    elif isinstance(value, dict):
        copied = dict.copy(value)
        if value and isinstance(next(iter(value.values())), set):
            copied = {key: set(members) for key, members in value.items()}
    elif isinstance(value, set):
        copied = set(value)
    elif type(value).__module__.startswith(_LEARNING_MODULES) and hasattr(value, "__dict__"):
        copied = object.__new__(type(value))
        copies[id(value)] = copied
        for name, part in vars(value).items():
            setattr(copied, name, _copy(part, copies))
    copies[id(value)] = copied
    return cast(T, copied)
