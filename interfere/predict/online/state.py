"""The learned state of an online model as bytes and back, so that a start need not replay a long log of observations.

The state is one list of numbers, written and read by the types of its fields: a record as its fields, a table or a
tuple as its length and its items, an array as its shape and its values, a text as its place in a table of all texts.

Law: a model restored from the state of another one answers, and goes on learning, as that one does.
"""

import gc
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from interfere.predict.online.belief_state import BeliefState
from interfere.predict.residual import OnlineModel
from interfere.records import Progress
from interfere.records.documents import from_json, to_json
from interfere.sharing_modes import SharingMode, parse_sharing_mode

FORMAT = 12  # raised whenever learning or this layout changes: states of an older format are then ignored


def dump_state(model: OnlineModel, *, facts: str = "") -> bytes:
    """Return the learned state as one .npz file without pickles.

    `facts`: a digest of the profiles it was learned with.
    """
    numbers, texts = list[float](), dict[str, int]()
    _write(model.state, numbers, texts)
    document = json.dumps({"facts": facts, "texts": list(texts)}).encode()
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        numbers=np.array(numbers, dtype=np.float64),
        document=np.frombuffer(document, dtype=np.uint8),
    )
    return buffer.getvalue()


def restore_state(model: OnlineModel, content: bytes) -> str:
    """Load a learned state into a model with the same prior that has learned nothing yet, and return its `facts`.

    Raises ValueError, or what a broken file makes numpy and its zip archive raise.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        document, numbers = json.loads(arrays["document"].tobytes()), arrays["numbers"].tolist()
    was_enabled = gc.isenabled()
    gc.disable()  # none of the millions of small objects made here is garbage, and looking for it doubles the time
    try:
        model.state = _reader_of(BeliefState)(_Source(numbers, document["texts"]))
    except StopIteration:
        raise ValueError("the numbers of a stored state end too early") from None
    finally:
        if was_enabled:
            gc.enable()
    return str(document["facts"])


def _write(value: Any, numbers: list[float], texts: dict[str, int]) -> None:
    """Append a value to the numbers, and the texts that it holds to the table of texts."""
    if isinstance(value, str):
        numbers.append(texts.setdefault(str(value), len(texts)))
    elif isinstance(value, int | float):
        numbers.append(value)
    elif isinstance(value, np.ndarray):
        numbers += [value.ndim, *value.shape, *value.ravel().tolist()]
    elif isinstance(value, Progress):
        _write(to_json(value), numbers, texts)
    elif is_dataclass(value):
        for field in fields(value):
            _write(getattr(value, field.name), numbers, texts)
    elif isinstance(value, Mapping):
        numbers.append(len(value))
        for key, item in value.items():
            _write(key, numbers, texts)
            _write(item, numbers, texts)
    else:  # a named tuple, another one, or a set
        items = sorted(value) if isinstance(value, set | frozenset) else value
        if not hasattr(value, "_fields"):
            numbers.append(len(items))
        for item in items:
            _write(item, numbers, texts)


class _Source:
    """What is left to read of a stored state."""

    def __init__(self, numbers: Sequence[float], texts: Sequence[str]) -> None:
        self._numbers, self._texts = iter(numbers), texts
        self.next = self._numbers.__next__

    def text(self) -> str:
        """Return the next text."""
        return self._texts[int(self.next())]

    def many(self, read: Callable[["_Source"], Any]) -> list[Any]:
        """Return as many items as the next number says."""
        return [read(self) for _ in range(int(self.next()))]

    def array(self) -> Any:
        """Return the next array, float64[...]."""
        shape = [int(self.next()) for _ in range(int(self.next()))]
        return np.array(list(islice(self._numbers, math.prod(shape))), dtype=np.float64).reshape(shape)


@cache
def _reader_of(kind: Any) -> Callable[[_Source], Any]:
    """Return the function that reads values of a type, the inverse of `_write`."""
    origin, parts = get_origin(kind), get_args(kind)
    scalars: dict[Any, Callable[[_Source], Any]] = {
        float: lambda source: source.next(),
        int: lambda source: int(source.next()),
        bool: lambda source: bool(source.next()),
        str: _Source.text,
        SharingMode: lambda source: parse_sharing_mode(source.text()),
        Progress: lambda source: from_json(Progress, source.text()),
    }
    if kind in scalars:
        return scalars[kind]
    if origin is np.ndarray:
        return _Source.array
    if origin is None:
        return _record_reader(kind)
    if origin is tuple and parts[1:] != (...,):
        items = [_reader_of(part) for part in parts]
        return lambda source: tuple([read(source) for read in items[: int(source.next())]])
    if origin in (tuple, set, frozenset):
        item = _reader_of(parts[0])
        return lambda source: origin(source.many(item))
    key, value = map(_reader_of, parts)
    return lambda source: dict(source.many(lambda each: (key(each), value(each))))


def _record_reader(kind: Any) -> Callable[[_Source], Any]:
    """Return the function that reads records of a type, which may hold records of its own type."""
    readers: dict[str, Callable[[_Source], Any]] = {}

    def read(source: _Source) -> Any:
        if not readers:
            readers.update({name: _reader_of(hint) for name, hint in get_type_hints(kind).items()})
        return kind(**{name: of_field(source) for name, of_field in readers.items()})

    return read
