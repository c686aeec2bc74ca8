"""Bounds on the texts, lists and numbers of a request, checked before any record is built from it.

The bounds are physical and generous: no device, job or clock comes near them, and no sum or product of bounded numbers
over a request of the largest size leaves the range of a double or of an unsigned 64-bit integer.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from interfere.errors import InvalidInputError, Violation

MAX_TEXT = 256  # characters of any name, id or reason
MAX_ENTRIES = 20_000  # of any list that `_MAX_ENTRIES` does not name
MAX_GRANULES = 10**9  # of one device: a granule of 80 bytes on a GPU of 80 GB
MAX_VIOLATIONS = 20  # of one answer
MAX_TIME_S = 1e11  # 3,000 years: a clock in milliseconds is a mistake
_MAX_ENTRIES = {
    "KernelStat.grid": 8,
    "KernelStat.block": 8,
    "JobProfile.busy_s": 100_000,
    "JobProfile.idle_s": 100_000,
    "OrderedPair.further": 64,
    "Job.pools": 64,
    "Job.sizes": 16,
    "Device.residents": 64,
    "Device.windows": 1_000,
    "Limits.allowed": 64,
    "Limits.choosable_modes": 64,
    "MatchRequest.objective_terms": 16,
    "RankPlacementsRequest.devices": 4_000,
    "AdviseModeRequest.jobs": 48,
    "SuggestProbesRequest.neighbours": 500,
    "Progress.company": 64,
    "ReportObservationsRequest.observations": 10_000,
    "RegisterProfilesRequest.profiles": 10_000,
}
# Largest absolute value by field; of a field that is not named, by the unit that its name ends with.
_MAX_NUMBER = {
    "KernelStat.mean_s": 1e7,
    "KernelStat.gap_s": 1e7,
    "KernelStat.sd_s": 1e7,
    "KernelStat.count": 1e12,
    "KernelStat.bytes": 1e18,  # traffic, not size
    "KernelStat.sm_used": 1e6,
    "KernelStat.compute_bound": 1.0,
    "JobProfile.step_time_s": 1e7,
    "JobProfile.step_time_sd_s": 1e7,
    "JobProfile.static_step_time_s": 1e7,
    "JobProfile.bytes_per_step": 1e18,
    "JobProfile.power_w": 1e6,
    "Job.weight": 1e6,
    "Job.gpus": 4_000,
    "JobSize.gpus": 4_000,
    "JobSize.speed": 1e6,
    "ObjectiveTerm.weight": 1e6,
    "Device.oversubscription_ratio": 1e3,
    "Limits.time_budget_s": 3_600.0,
    "Limits.move_factor": 1e6,
    "Limits.grant_tolerance": 1e3,
    "Progress.steps": 1e15,
    "Rollback.to_sequence": 2**62,
    "Rollback.undoes": 2**62,
    "ReporterWeight.weight": 1e6,
    "GetObservationLogRequest.at_sequence": 2**62,
}
_BY_UNIT = (
    ("_s", MAX_TIME_S),
    ("bytes", 1e15),
    ("_frac", 1e3),
    ("flops", 1e24),
    ("flops_per_step", 1e24),
    ("slowdown", 1e6),
    ("_cap", 1e6),
)
_ANY_NUMBER = 1e18
_LARGEST = {FieldDescriptor.TYPE_UINT32: 2**32, FieldDescriptor.TYPE_INT32: 2**31}  # of any number of these types
# Lists whose entries are checked one by one where they are read: a broken one is rejected alone.
_READ_ALONE = {"ReportObservationsRequest.observations"}

Check = Callable[[Any, str, list[Violation]], None]


class _Field(NamedTuple):
    """The checks of one field."""

    name: str
    max_entries: int  # 0 for a field that is no list
    check: Check | None  # of one value


class _Fields(NamedTuple):
    """The fields of a message type that are checked."""

    by_number: dict[int, _Field]
    only_list: _Field | None  # the one checked field, where it is a list of which only the length is checked


def check_bounds(message: Message) -> None:
    """Raise InvalidInputError where a text, a list or a number of the message is out of bounds."""
    violations: list[Violation] = []
    _check_message(message, "", violations)
    if violations:
        raise InvalidInputError.from_violations(violations)


def _check_message(message: Message, path: str, violations: list[Violation]) -> None:
    fields = _fields(message.DESCRIPTOR)
    if fields.only_list and len(getattr(message, fields.only_list.name)) <= fields.only_list.max_entries:
        return  # as every pair of thousands
    for descriptor, value in message.ListFields():
        if len(violations) >= MAX_VIOLATIONS:
            return
        field = fields.by_number.get(descriptor.number)
        if field is None:
            continue
        if not field.max_entries:
            if field.check is not None:
                field.check(value, path + field.name, violations)
        elif len(value) > field.max_entries:
            remedy = f"at most {field.max_entries:,} a request"
            what, found = "too many entries", f"{len(value):,}"
            violations.append(Violation(field=path + field.name, what=what, value=found, remedy=remedy))
        elif field.check is not None:
            for k, entry in enumerate(value):
                field.check(entry, f"{path}{field.name}[{k}]", violations)
                if len(violations) >= MAX_VIOLATIONS:
                    return
    if message.DESCRIPTOR.name == "Device":
        _check_granules(message, path, violations)


@cache
def _fields(message: Descriptor) -> _Fields:
    """Return the fields of a message type that are checked, compiled once."""
    checks = {field.number: _field(message, field) for field in message.fields}
    needed = {number: field for number, field in checks.items() if field.max_entries or field.check is not None}
    (first, *others) = needed.values() or (None,)
    is_only_list = first is not None and not others and first.max_entries > 0 and first.check is None
    return _Fields(needed, first if is_only_list else None)


def _field(message: Descriptor, field: FieldDescriptor) -> _Field:
    name = f"{message.name}.{field.name}"
    check: Check | None = None
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        check = None if name in _READ_ALONE else _check_entry
    elif field.type == FieldDescriptor.TYPE_STRING:
        check = _check_text
    elif field.type not in (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_BYTES):
        by_unit = (bound for ending, bound in _BY_UNIT if name.endswith(ending))
        bound = _MAX_NUMBER.get(name) or next(by_unit, _ANY_NUMBER)
        check = None if bound >= _LARGEST.get(field.type, math.inf) else _number_check(bound)
    return _Field(field.name, _MAX_ENTRIES.get(name, MAX_ENTRIES) if field.is_repeated else 0, check)


def _check_entry(message: Message, path: str, violations: list[Violation]) -> None:
    _check_message(message, f"{path}.", violations)


def _check_text(text: str, path: str, violations: list[Violation]) -> None:
    if len(text) > MAX_TEXT:
        what, remedy = "is too long", f"at most {MAX_TEXT} characters"
        violations.append(Violation(field=path, what=what, value=f"{len(text):,} characters", remedy=remedy))


def _number_check(bound: float) -> Check:
    def check(value: float, path: str, violations: list[Violation]) -> None:
        # whether a number that is not finite may be sent at all is said where it is read
        if abs(value) > bound and math.isfinite(value):
            what, remedy = f"is beyond ±{bound:g}", "check its unit: seconds, bytes and shares of 1 travel"
            violations.append(Violation(field=path, what=what, value=repr(value), remedy=remedy))

    return check


def _check_granules(device: Any, path: str, violations: list[Violation]) -> None:
    """Add a violation where a device would have too many granules. Where the sizes are valid, both are positive."""
    granules = device.memory_bytes * max(device.oversubscription_ratio, 1.0) / (device.granule_bytes or math.inf)
    if granules > MAX_GRANULES:
        what, remedy = f"makes more than {MAX_GRANULES:,} granules", "choose a larger granule: 64 MiB is a usual one"
        value = repr(device.granule_bytes)
        violations.append(Violation(field=f"{path}granule_bytes", what=what, value=value, remedy=remedy))


def shortened(texts: Iterable[str], limit: int = MAX_TEXT) -> tuple[str, ...]:
    """Return texts, each cut to at most `limit` characters."""
    return tuple(text if len(text) <= limit else text[: limit - 1] + "…" for text in texts)
