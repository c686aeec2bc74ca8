"""Records as JSON or TOML documents, and back, by the names and types of their fields.

Law 1: from_document(type(r), to_document(r)) == r, for every record without arrays, with or without what is absent.
Law 2: whatever document arrives, `from_document` gives a valid record or InvalidInputError with the path of every
broken rule: an unknown key is an error, an absent one takes its default.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from enum import StrEnum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from interfere.errors import InvalidInputError, Violation, remedy_for_name
from interfere.records.checks import NAN
from interfere.records.record import (
    FieldReader,
    RecordField,
    RecordReader,
    compiled_once,
    fields_of,
    is_record,
    read_each,
)

T = TypeVar("T")
_AS_TEXT = {"JobRef": "workload"}  # a text in place of the record stands for one with this field


def to_json(record: object) -> str:
    """Return one line of JSON with the fields that are set. Equal records give equal texts."""
    return json.dumps(to_document(record, present_only=True), sort_keys=True, allow_nan=False)


def from_json(record_type: type[T], text: str) -> T:
    """Inverse of `to_json`; fields that the text does not have take their defaults."""
    return from_document(record_type, json.loads(text))


# --- writing ----------------------------------------------------------------------------------------------------------


def to_document(record: Any, *, present_only: bool = False) -> dict[str, Any]:
    """Return all fields by name. An absent number is null, and several values are a list.

    `present_only` leaves null values out, unless the field has no default.
    """
    names, values_of, writers, needed = _writers(type(record), present_only)
    document = {}
    for name, value, write, is_needed in zip(names, values_of(record), writers, needed, strict=True):
        written = value if write is None or value is None else write(value)
        if written is not None or is_needed or not present_only:
            document[name] = written
    return document


@compiled_once
def _writers(record_type: Any, present_only: bool) -> tuple[Any, ...]:
    """Return four tuples over all fields: names, a getter of all values, value writers, and whether each field is
    required.

    A writer is None where the value is written unchanged.
    """
    named = fields_of(record_type)
    get = attrgetter(*(each.path for each in named))
    values_of = get if len(named) > 1 else lambda record: (get(record),)
    writers = tuple(_writer(each, present_only) for each in named)
    return tuple(each.name for each in named), values_of, writers, tuple(each.default is MISSING for each in named)


def _writer(of: RecordField, present_only: bool) -> Callable[[Any], Any] | None:
    write = _value_writer(of.type, present_only)
    if of.collection is not None:
        collect = sorted if of.collection is frozenset else list
        return collect if write is None else lambda values: collect(map(write, values))
    return write


def _value_writer(kind: Any, present_only: bool) -> Callable[[Any], Any] | None:
    if kind is float:
        return _number_or_none
    if get_origin(kind) is tuple:
        return list
    if kind in (str, int, bool):
        return None
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str
    return partial(to_document, present_only=present_only)


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- reading ----------------------------------------------------------------------------------------------------------


def from_document(record_type: type[T], document: object) -> T:
    """Return the record of a document. Raises InvalidInputError with the path of every broken rule."""
    if type(document) is not dict:
        as_text = _AS_TEXT.get(record_type.__name__)
        if as_text is None or not isinstance(document, str):
            remedy = f"send {{…}} with the fields of {record_type.__name__}"
            raise _wrong("must be an object", document, remedy)
        document = {as_text: document}
    # An explicit null is an absent value, which numbers without a default may be as well.
    unknown_numbers = _numbers_without_default(record_type)
    made: T = _reader(record_type).build(
        [(name, value) for name, value in document.items() if value is not None or name in unknown_numbers]
    )
    return made


@compiled_once
def _reader(record_type: Any) -> RecordReader[Any]:
    readers = {each.name: _field_reader(each) for each in fields_of(record_type)}

    def unknown(name: object, value: object) -> Violation:
        remedy = remedy_for_name(str(name), readers)
        return Violation(field=str(name), what="unknown field", value=_short(value), remedy=remedy)

    return RecordReader(record_type, readers, {}, unknown=unknown)


@compiled_once
def _numbers_without_default(record_type: Any) -> frozenset[str]:
    return frozenset(each.name for each in fields_of(record_type) if each.type is float and each.default is MISSING)


def _field_reader(of: RecordField) -> FieldReader:
    read = _value_reader(of.type, may_be_empty=of.default == "")
    is_nested = is_record(of.type)
    if of.collection is frozenset:
        return FieldReader(of.name, lambda values: frozenset(read_each(read, listed(values))))
    if of.collection is tuple:
        return FieldReader(of.name, lambda values: read_each(read, listed(values)), is_nested)
    if of.default is MISSING and of.type is float:
        return FieldReader(of.name, lambda value: NAN if value is None else read(value))
    return FieldReader(of.name, read, is_nested)


def _value_reader(kind: Any, *, may_be_empty: bool = False) -> Callable[[Any], Any]:
    if get_origin(kind) is tuple:
        read_item = _value_reader(get_args(kind)[0])
        return lambda values: read_each(read_item, listed(values))
    if get_origin(kind) is Mapping:
        return _read_names
    if kind in _PLAIN:
        return _PLAIN[kind]
    if issubclass(kind, StrEnum):
        members = {member.value: member for member in kind} | ({"": ""} if may_be_empty else {})
        return partial(_read_word, members, re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower())
    return partial(from_document, kind)


def listed(value: object) -> list[Any]:
    """Return the value if it is a list. Raises InvalidInputError otherwise."""
    if not isinstance(value, list):
        raise _wrong("must be a list", value, "send […]")
    return value


def _read_number(value: object) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and abs(value) < 10**300:
        return value  # as it is: the id of a profile is made of its numbers as they were written
    raise _wrong("must be a number" if isinstance(value, str) else "must be a finite number", value, _remedy(value))


def _read_count(value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _wrong("must be a whole number", value, _remedy(value))


def _remedy(value: object) -> str:
    """Return what to do about a value that is no number."""
    return "drop the quotes" if isinstance(value, str) else "send one, or leave it out"


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _wrong("must be a text", value, "send one, or leave it out")


def _read_truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong("must be true or false", value, "send one, or leave it out")


def _read_path(value: object) -> Path:
    if isinstance(value, str | Path):
        return Path(value)
    raise _wrong("must be the path of a file or folder", value, "put it in quotes")


def _read_names(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return value
    raise _wrong("must map names to names", value, 'write lines like: "NVIDIA-A100-SXM4-80GB" = "a100"')


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    float: _read_number,
    int: _read_count,
    str: _read_text,
    bool: _read_truth,
    Path: _read_path,
}


def _read_word(members: Mapping[str, str], kind: str, value: object) -> str:
    """Return the member of an enumeration whose value this is. `kind`: the name of the enumeration, in words."""
    if isinstance(value, str) and value in members:
        return members[value]
    raise _wrong(f"unknown {kind}", value, f"one of {', '.join(members)}")


def _wrong(what: str, value: object, remedy: str) -> InvalidInputError:
    """Return an error for one value of a document. The code that reads the field adds its path."""
    return InvalidInputError.from_violations([Violation(field="", what=what, value=_short(value), remedy=remedy)])


def _short(value: object) -> str:
    return repr(value)[:80]
