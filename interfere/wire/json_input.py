"""JSON documents to records, with the path of every broken rule.

Law: the keys are the field names of the records; an unknown key is an error, an absent one takes its default.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from interfere.errors import InvalidInputError, Violation
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    KernelStat,
    Limits,
    MemoryUsage,
    ObjectiveKind,
    ObjectiveTerm,
    Observation,
    Outcome,
    OutcomeKind,
    Progress,
    ReporterWeight,
    Rollback,
    Snapshot,
    Window,
)
from interfere.records.limits import LIMIT_GROUPS
from interfere.sharing_modes import OptionalSharingMode, SharingMode
from interfere.wire.messages import JobRef, PairQuery
from interfere.wire.scalars import Inspection

T = TypeVar("T")
Reader = Callable[[Any], Any]


def read_json(source: str) -> Any:
    """The document in a file, or on standard input for `-`. Raises InvalidInputError."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise InvalidInputError(
            f"the file cannot be read ({error.strerror})",
            value=source,
            remedy="give a JSON file, or - for standard input",
        ) from None
    except ValueError as error:
        raise InvalidInputError(f"not JSON ({error})", value=source, remedy="send one JSON document") from None


def read_snapshot(document: object) -> Snapshot:
    """{"pending": [{"id", "workload", ...}], "devices": [{"id", "type", "residents": [...]}], "limits": {...}, ...}."""
    return _record(
        Snapshot,
        document,
        pending=_many(_job),
        devices=_many(_device),
        limits=_limits,
        objective=_objective,
        objective_terms=_many(_term),
    )


def read_pair_query(document: object) -> PairQuery:
    """{"jobs": ["workload", {"profile_id": ...}, {"profile": {...}}], "pairs": [[victim, neighbour], ...], ...}."""
    return _record(PairQuery, document, jobs=_many(_ref), pairs=_many(_pair))


def read_observations(document: object) -> tuple[Observation, ...]:
    """{"observations": [...]}, or the list itself. "what" names the kind of an observation; progress when left out."""
    if isinstance(document, Mapping) and set(document) == {"observations"}:
        document = document["observations"]
    inspection = Inspection()
    observations: tuple[Observation, ...] | None = inspection.read(
        "observations", lambda: _many(_observation)(document)
    )
    inspection.done()
    return observations or ()


# --- readers of parts ------------------------------------------------------------------------------------------------


def _record(record: type[T], document: object, /, **readers: Reader) -> T:
    """Build `record` from an object; `readers` take the fields that are not a text, number or truth value."""
    known = {f.name: f for f in fields(record)}  # type: ignore[arg-type]  # T is one of our dataclasses
    return record(**_values(record.__name__, known, document, readers))


def _values(
    name_of_record: str, known: Mapping[str, Field[Any]], document: object, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """The value of every known field that the object has."""
    if not isinstance(document, Mapping):
        raise _wrong("must be an object", document, f"send {{…}} with the fields of {name_of_record}")
    inspection = Inspection()
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            inspection.note(Violation(field=str(name), what="unknown field", value=_short(value), remedy=remedy))
        elif value is not None:
            reader = readers.get(name) or _plain(known[name].type)
            values[name] = inspection.read(name, partial(reader, value))
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            inspection.note(Violation(field=name, what="is needed", value="nothing", remedy="add it"))
    inspection.done()
    return values


def _wrong(what: str, value: object, remedy: str) -> InvalidInputError:
    """A violation; its reader adds the path."""
    return InvalidInputError.from_violations([Violation(field="", what=what, value=_short(value), remedy=remedy)])


def _short(value: object) -> str:
    return repr(value)[:80]


def _plain(kind: object) -> Reader:
    """Reader of one text, number or truth value; records find the sharing mode that a text spells."""
    kind = str if kind in (SharingMode, OptionalSharingMode) else kind

    def read(value: object) -> object:
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        if kind is not float and isinstance(value, kind if isinstance(kind, type) else int):
            return value
        name = kind.__name__ if isinstance(kind, type) else "int"
        words = {"float": "a finite number", "str": "a text", "bool": "true or false", "int": "a whole number"}
        raise _wrong(f"must be {words.get(name, name)}", value, "send one, or leave it out")

    return read


def _many(read: Reader) -> Reader:
    """Reader of a list, with the place of every broken item."""

    def read_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _wrong("must be a list", value, "send […]")
        inspection = Inspection()
        items = inspection.read_all("", value, read)
        inspection.done()
        return items

    return read_all


_texts = _many(_plain(str))
_seconds = _many(_plain(float))
_sizes = _many(_plain(int))


def _job(value: object) -> Job:
    return _record(Job, value, pools=_texts)


def _device(value: object) -> Device:
    return _record(Device, value, residents=_many(_job), windows=_many(_window))


def _window(value: object) -> Window:
    return _record(Window, value)


# The document is flat: `max_slowdown` and the like stand beside `allowed`.
_LIMIT_FIELDS: dict[str, Field[Any]] = {
    limit.name: limit
    for record in (Limits, *LIMIT_GROUPS.values())
    for limit in fields(record)
    if limit.name not in LIMIT_GROUPS
}


def _limits(value: object) -> Limits:
    readers: dict[str, Reader] = {
        "allowed": lambda names: frozenset(_many(_action)(names)),
        "choosable_modes": lambda names: frozenset(_texts(names)),
    }
    return Limits.of(**_values("Limits", _LIMIT_FIELDS, value, readers))


def _action(value: object) -> ActionKind:
    if value not in list(ActionKind):
        raise _wrong("unknown action", value, f"one of {', '.join(ActionKind)}")
    return ActionKind(str(value))


def _objective(value: object) -> ObjectiveKind:
    if value not in list(ObjectiveKind):
        raise _wrong("unknown objective", value, f"one of {', '.join(ObjectiveKind)}")
    return ObjectiveKind(str(value))


def _term(value: object) -> ObjectiveTerm:
    return _record(ObjectiveTerm, value, kind=_objective)


def _pair(value: object) -> tuple[int, ...]:
    indices = _sizes(value)
    if len(indices) < 2:
        raise _wrong("must be [victim, neighbour]", value, "two or more indices into jobs, counted from 0")
    return tuple(indices)


def _ref(value: object) -> JobRef:
    return JobRef(workload=value) if isinstance(value, str) else _record(JobRef, value, profile=_profile)


def _profile(value: object) -> JobProfile:
    return _record(JobProfile, value, busy_s=_seconds, idle_s=_seconds, kernels=_many(_kernel))


def _kernel(value: object) -> KernelStat:
    return _record(KernelStat, value, grid=_sizes, block=_sizes)


# The word of each kind of observation, in its field "what".
OBSERVATION_KINDS: dict[str, type[Observation]] = {
    "progress": Progress,
    "memory_usage": MemoryUsage,
    "outcome": Outcome,
    "rollback": Rollback,
    "reporter_weight": ReporterWeight,
}


def _outcome_kind(value: object) -> OutcomeKind:
    if value not in list(OutcomeKind):
        raise _wrong("unknown outcome", value, f"one of {', '.join(OutcomeKind)}")
    return OutcomeKind(str(value))


_OBSERVATION_READERS: dict[str, dict[str, Reader]] = {
    "progress": {"company": _texts},
    "outcome": {"kind": _outcome_kind},
}


def _observation(value: object) -> Observation:
    if not isinstance(value, Mapping):
        raise _wrong("must be an object", value, "send {…} with the fields of an observation")
    what = value.get("what", "progress")
    if not isinstance(what, str) or what not in OBSERVATION_KINDS:
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field="what",
                    what="unknown kind",
                    value=_short(what),
                    remedy=f"one of {', '.join(OBSERVATION_KINDS)}",
                )
            ]
        )
    fields_of = {name: inner for name, inner in value.items() if name != "what"}
    made: Observation = _record(OBSERVATION_KINDS[what], fields_of, **_OBSERVATION_READERS.get(what, {}))
    return made
