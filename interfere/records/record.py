"""Records: frozen classes with slots and named fields, printed with the fields that are set, and their fields as data.

Law 1: `repr` leaves out exactly the fields that equal their defaults, NaN equal to NaN. Law 2: `fields_of` names every
field once, under the name that the field has in documents and messages.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import Inspection

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_IN_PLACE = "in_place"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, Field))
def record(cls: type[T] | None = None, *, weakref_slot: bool = False) -> Any:
    """Make a class a record: a frozen dataclass with slots and keyword arguments, shown by the fields that are set."""
    if cls is None:
        return partial(record, weakref_slot=weakref_slot)
    cls.__repr__ = _set_fields_text  # type: ignore[method-assign]
    return dataclass(frozen=True, slots=True, kw_only=True, repr=False, weakref_slot=weakref_slot)(cls)


def in_place(group: type[T]) -> T:
    """Declare a field that holds another record, whose fields are written inline in documents and messages."""
    made: T = field(default_factory=group, metadata={_IN_PLACE: group})
    return made


def _set_fields_text(self: Any) -> str:
    shown = (
        f"{each.name}={_value_text(getattr(self, each.name))}"
        for each in fields(self)
        if not _equal(getattr(self, each.name), default_of(each))
    )
    return f"{type(self).__name__}({', '.join(shown)})"


def _value_text(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_value_text, value))}{',' if len(value) == 1 else ''})"
    is_plain_enum = isinstance(value, Enum) and repr(value).startswith("<")
    return f"{type(value).__name__}.{value.name}" if is_plain_enum else repr(value)  # type: ignore[attr-defined]


def _equal(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    return bool(value == default or (isinstance(value, float) and math.isnan(value) and math.isnan(default)))


def default_of(of: Field[Any]) -> Any:
    """Return the default of a field; MISSING where a value must be given."""
    return of.default if of.default_factory is MISSING else of.default_factory()


def copier(record_type: type[T], *names: str) -> Callable[..., T]:
    """Return a function that copies a record with other values of some fields, which it does not check: a fifth of the
    time of `dataclasses.replace`."""
    kept = [each.name for each in fields(record_type) if each.name not in names]  # type: ignore[arg-type]
    get = attrgetter(*kept)
    setters = [record_type.__dict__[name].__set__ for name in (*kept, *names)]

    def copy(record: T, *values: Any) -> T:
        made = object.__new__(record_type)
        for set_, value in zip(setters, (*get(record), *values)):  # noqa: B905 - as many, and a large snapshot waits
            set_(made, value)
        return made

    return copy


# --- fields as data -----------------------------------------------------------------------------------------------


def compiled_once(function: F) -> F:
    """Decorate a function of a record type, so that its result is computed once for each record type."""
    return cast(F, cache(function))


class RecordField(NamedTuple):
    """What converters know of one field of a record."""

    name: str
    path: str  # from the record to the value: "slowdown.risk" for a field of a record that stands in place
    type: Any  # of the value, or of one of several: a class; for a union of records, the union
    collection: type | None  # tuple or frozenset where the field holds several values
    default: Any  # MISSING where a value must be given


@compiled_once
def fields_of(record_type: Any) -> tuple[RecordField, ...]:
    """Return the fields of a record in their order. A field that holds an in-place record is replaced by the fields
    of that record."""
    hints = get_type_hints(record_type)
    named: list[RecordField] = []
    for each in fields(record_type):
        if (group := each.metadata.get(_IN_PLACE)) is not None:
            named += (inner._replace(path=f"{each.name}.{inner.path}") for inner in fields_of(group))
            continue
        kind, collection = _type_of_value(hints[each.name]), None
        if get_origin(kind) in (tuple, frozenset):
            collection, kind = get_origin(kind), get_args(kind)[0]
        named.append(RecordField(each.name, each.name, kind, collection, default_of(each)))
    return tuple(named)


def optional_numbers(record_type: Any, *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the fields that hold one number, NaN where it is absent, except the names in `but`."""
    return tuple(
        each.name
        for each in fields_of(record_type)
        if each.type is float and isinstance(each.default, float) and math.isnan(each.default) and each.name not in but
    )


def groups_of(record_type: type) -> dict[str, type]:
    """Return the types of the in-place records of a record, by the name of the field that holds each."""
    return {each.name: each.metadata[_IN_PLACE] for each in fields(record_type) if _IN_PLACE in each.metadata}


def is_record(kind: Any) -> bool:
    """Whether a type of values is a record."""
    return isinstance(kind, type) and is_dataclass(kind)


def _type_of_value(hint: Any) -> Any:
    """Return the type of a field without None and without the empty text, where the field allows these."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    others = tuple(each for each in get_args(hint) if each is not NoneType and get_origin(each) is not Literal)
    return others[0] if len(others) == 1 else hint


# --- records from named values ----------------------------------------------------------------------------------------


class FieldReader(NamedTuple):
    """How the value of one field is read."""

    name: str
    read: Callable[[Any], Any] | None  # of the value; None where it is taken as it is
    is_nested: bool = False  # whether its value is a record, or several


class RecordReader(Generic[T]):
    """Builds records from named values. Where a value is invalid, every broken rule is reported with its path."""

    def __init__(
        self,
        record_type: type[T],
        readers: dict[Any, FieldReader],
        absent: dict[str, Any],
        *,
        unknown: Callable[[Any, Any], Violation] | None = None,
    ) -> None:
        """Prepare the reader of a record type.

        `readers`: how to read each value, by its key. `absent`: values for absent fields that differ from their
        defaults. `unknown`: makes the violation for a value without a reader; None: such values are ignored.
        """
        has_groups = bool(groups_of(record_type))
        self._make: Callable[..., T] = getattr(record_type, "of") if has_groups else record_type  # noqa: B009
        self._readers, self._absent, self._unknown = readers, absent, unknown
        self._needed = {each.name for each in fields_of(record_type) if each.default is MISSING} - set(absent)

    def build(self, values: Collection[tuple[Any, Any]], given: Mapping[str, Any] | None = None) -> T:
        """Return the record built from these values and the `given` ones. Raises InvalidInputError with all
        violations."""
        named = {**self._absent, **given} if given else self._absent.copy()
        reader_of = self._readers.get
        try:
            for key, value in values:
                if (reader := reader_of(key)) is not None:
                    name, read, _ = reader
                    named[name] = read(value) if read else value
                elif self._unknown is not None:
                    break
            else:
                return self._make(**named)
        except (InvalidInputError, TypeError):
            pass  # once more, for the paths of all that is broken
        return self._inspect(values, self._absent | dict(given or {}))

    def _inspect(self, values: Collection[tuple[Any, Any]], named: dict[str, Any]) -> T:
        """Build the record slowly and collect all violations; violations inside nested records come first.

        A value that cannot be read is replaced by its default, so that rules about the other fields are checked too.
        """
        inspection = Inspection()
        unreadable = set()
        known = [(self._readers[key], value) for key, value in values if key in self._readers]
        for (name, read, _), value in sorted(known, key=lambda pair: not pair[0].is_nested):
            made = value if read is None else inspection.read(name, partial(read, value))
            named |= {name: made} if made is not None else {}
            unreadable |= {name} if made is None else set()
        if self._unknown is not None:
            for key, value in values:
                if key not in self._readers:
                    inspection.note(self._unknown(key, value))
        missing = self._needed - named.keys()
        for name in sorted(missing - unreadable):
            inspection.note(Violation(field=name, what="is needed", value="nothing", remedy="add it"))
        made = None if missing else inspection.read("", lambda: self._made_of_readable(named, unreadable))
        inspection.done()
        assert made is not None
        return made

    def _made_of_readable(self, named: dict[str, Any], unreadable: set[str]) -> T | None:
        """Build a record. Returns None where it breaks rules, all of them about the fields named `unreadable`."""
        try:
            return self._make(**named)
        except InvalidInputError as error:
            others = [violation for violation in error.violations if violation.field not in unreadable]
            if len(others) == len(error.violations):
                raise
            if others:
                raise InvalidInputError.from_violations(others) from None
            return None


def read_each(read: Callable[[Any], T], values: Iterable[Any]) -> tuple[T, ...]:
    """Return the result of `read` for each of several values. Raises InvalidInputError with the index of each
    invalid value."""
    try:
        return tuple(map(read, values))
    except InvalidInputError:
        pass  # once more, for the places of all that are broken
    inspection = Inspection()
    records = [inspection.read(f"[{k}]", partial(read, value)) for k, value in enumerate(values)]
    inspection.done()
    return tuple(record for record in records if record is not None)
