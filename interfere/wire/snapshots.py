"""Snapshots and their changes: what a request with a delta says, the bytes that a snapshot consists of, and what client
and server keep of earlier snapshots.

Law 1: `read_snapshot(changes_since(base, id, s), ...)` is the same snapshot as that of the whole request of `s`, in
every field and in its bytes. Law 2: the bytes are a `MatchRequest` that says the same, and do not depend on how the
request was sent: with times in columns or in jobs, whole or as a delta.
Law 3: what is kept is only a cache. A server that is sent changes of what it does not keep says so, and gets the whole.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isnan
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from interfere.errors import InvalidInputError, NotFoundError, Violation
from interfere.records import Device, Job, Snapshot
from interfere.v1 import policy_pb2 as pb
from interfere.wire.bounds import MAX_VIOLATIONS
from interfere.wire.converter import from_proto, to_proto
from interfere.wire.job_times import NAMES, column_of, jobs_of, times_of, with_times

T = TypeVar("T", Job, Device)
MIN_RECORDS = 100  # jobs and devices of a snapshot that is kept: smaller ones are read in a millisecond
MAX_OF_SCOPE = 2  # two clients, or one that got no answer to its last snapshot
MAX_BYTES = 8 * 2**20  # of all; as records they take about ten times as much
MAX_SCOPES = 16  # of a client, the newest: a scheduler has one scope for each of its partitions
MAX_CHANGED_SHARE = 0.5  # of the jobs and devices of a snapshot; where more changed the whole snapshot is sent
_MADE_OF_PARTS = ("pending", "devices", "times", "delta", "validate_only")


# --- reading ----------------------------------------------------------------------------------------------------------


class _Parts(NamedTuple, Generic[T]):
    """Pending jobs, or devices, each with its bytes in the request of the snapshot."""

    records: tuple[T, ...]
    contents: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class ReceivedSnapshot:
    """The snapshot of a request, split for comparison: the bytes of each job and device without times, and the bytes
    of everything else."""

    snapshot: Snapshot
    pending: tuple[bytes, ...]
    devices: tuple[bytes, ...]
    others: bytes
    base_id: str  # of the snapshot that the request changes; empty for a whole one

    @cached_property
    def content(self) -> bytes:
        """The bytes of the snapshot: a request that says the same, however it was sent."""
        return b"".join((self.others, *self.pending, *self.devices))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its bytes."""
        return hashlib.sha256(self.content).hexdigest()


def read_snapshot(request: pb.MatchRequest, base_of: Callable[[str, str], ReceivedSnapshot]) -> ReceivedSnapshot:
    """Return the snapshot of a request.

    `base_of` returns the snapshot of a scope by its base id; what it raises is raised. Raises InvalidInputError.
    """
    # 1. What was sent: the whole snapshot, or what changed.
    delta = request.delta if request.HasField("delta") else None
    sent = from_proto(Snapshot, request if delta is None else _without_delta(request))
    pending = _Parts(sent.pending, _contents(request, "pending", sent.pending, _job_content))
    devices = _Parts(sent.devices, _contents(request, "devices", sent.devices, _device_content))
    # 2. The snapshot that results.
    snapshot = sent
    if delta is not None:
        base = base_of(sent.scope, delta.base_id)
        known = _Parts(base.snapshot.pending, base.pending)
        pending = _changed("pending", known, pending, delta.removed_pending, delta.pending_order)
        known_devices = _Parts(base.snapshot.devices, base.devices)
        devices = _changed("devices", known_devices, devices, delta.removed_devices, delta.device_order)
        snapshot = with_times(replace(sent, pending=pending.records, devices=devices.records), request.times)
    # 3. Its bytes.
    others = pb.MatchRequest(times=times_of(jobs_of(snapshot)))
    for field, value in request.ListFields():
        if field.name not in _MADE_OF_PARTS:
            _set(others, field, value)
    others.scope = snapshot.scope
    return ReceivedSnapshot(
        base_id=delta.base_id if delta else "",
        snapshot=snapshot,
        pending=pending.contents,
        devices=devices.contents,
        others=others.SerializeToString(deterministic=True),
    )


def _without_delta(request: pb.MatchRequest) -> pb.MatchRequest:
    """Return what a request with a delta sends."""
    sent = pb.MatchRequest()
    sent.CopyFrom(request)
    sent.ClearField("delta")
    sent.ClearField("times")
    return sent


def _set(message: pb.MatchRequest, field: Any, value: Any) -> None:
    """Set a field of a message to a value of the same field of another."""
    if field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _changed(name: str, base: _Parts[T], sent: _Parts[T], removed: Iterable[str], order: Sequence[int]) -> _Parts[T]:
    """Return the base's jobs or devices after a change: sent entries replace or extend them, removed entries are left
    out. `order`: the place of each in the result before; empty for no other order."""
    gone = set(removed)
    parts = {record.id: (record, content) for record, content in zip(*base, strict=True)}
    violations = [
        Violation(field=f"delta.removed_{name}", what="is not in the base", value=repr(each), remedy="send it once")
        for each in sorted(gone - parts.keys())
    ]
    for each in gone & parts.keys():
        del parts[each]
    ids = [record.id for record in sent.records]
    if len(set(ids)) < len(ids):
        repeated = next(each for k, each in enumerate(ids) if each in ids[:k])
        violations.append(Violation(field=name, what="repeats an id", value=repr(repeated), remedy="send it once"))
    parts |= {record.id: (record, content) for record, content in zip(*sent, strict=True)}
    result = list(parts.values())
    if order:
        if sorted(order) == list(range(len(result))):
            result = [result[k] for k in order]
        else:
            what, remedy = f"is no order of {len(result)}", "send each place from 0 on once, or nothing"
            field = f"delta.{'pending' if name == 'pending' else 'device'}_order"
            violations.append(Violation(field=field, what=what, value=f"{len(order)} places", remedy=remedy))
    if violations:
        raise InvalidInputError.from_violations(violations[:MAX_VIOLATIONS])
    return _Parts(tuple(record for record, _ in result), tuple(content for _, content in result))


# --- bytes of parts ---------------------------------------------------------------------------------------------------

_TIMES_OF_JOB = attrgetter(*NAMES)


def _contents(
    request: pb.MatchRequest, name: str, records: Sequence[T], content: Callable[[Any, T, bool], bytes]
) -> tuple[bytes, ...]:
    """Return the bytes of each pending job or device in a request, without times."""
    tag = bytes([request.DESCRIPTOR.fields_by_name[name].number << 3 | 2])  # of a field with a length (protobuf, wire)
    has_columns = request.HasField("times")
    contents = (content(*each, has_columns) for each in zip(getattr(request, name), records, strict=True))
    return tuple(tag + _varint(len(each)) + each for each in contents)


def _job_content(message: pb.Job, job: Job, has_columns: bool) -> bytes:
    if has_columns or _has_times(job):
        message = _copy_of(message)
        _clear_times(message)
    return message.SerializeToString(deterministic=True)


def _device_content(message: pb.Device, device: Device, has_columns: bool) -> bytes:
    if has_columns or any(map(_has_times, device.residents)):
        message = _copy_of(message)
        for resident in message.residents:
            _clear_times(resident)
    return message.SerializeToString(deterministic=True)


def _has_times(job: Job) -> bool:
    return not all(map(isnan, _TIMES_OF_JOB(job)))


def _copy_of(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _clear_times(message: pb.Job) -> None:
    for name in NAMES:
        message.ClearField(name)


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths: seven bits a byte, the lowest first."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


# --- changes ----------------------------------------------------------------------------------------------------------


def changes_since(base: Snapshot, base_id: str, snapshot: Snapshot) -> pb.MatchRequest | None:
    """Return the request for a snapshot that says what changed since a base; None where the whole snapshot has to be
    sent, or is hardly larger."""
    pending = _changes(base.pending, snapshot.pending, _same_job)
    devices = _changes(base.devices, snapshot.devices, _same_device)
    if pending is None or devices is None:
        return None
    most = MAX_CHANGED_SHARE * (len(snapshot.pending) + len(snapshot.devices))
    if len(pending.sent) + len(devices.sent) > most:
        return None
    request = to_proto(replace(snapshot, pending=pending.sent, devices=devices.sent), pb.MatchRequest)
    request.delta.base_id = base_id
    request.delta.removed_pending.extend(pending.removed)
    request.delta.removed_devices.extend(devices.removed)
    request.delta.pending_order.extend(pending.order)
    request.delta.device_order.extend(devices.order)
    jobs = jobs_of(snapshot)
    known = [*pending.before, *(job for device in devices.before for job in device.residents)]
    for name in NAMES:
        if (column := column_of(jobs, name)) != column_of(known, name):
            setattr(request.times, name, column)
    return request


class _Changes(NamedTuple, Generic[T]):
    """What changed of the pending jobs, or of the devices."""

    sent: tuple[T, ...]  # new or changed
    removed: tuple[str, ...]
    order: tuple[int, ...]  # empty where it is that of the base, with the new ones at its end
    before: tuple[T, ...]  # each as the base has it where it is not sent


def _changes(base: Sequence[T], present: Sequence[T], same: Callable[[T, T], bool]) -> _Changes[T] | None:
    """Return what changed, times aside; None where an id is given twice."""
    ids = [record.id for record in present]
    now = set(ids)
    if len(now) < len(ids):
        return None
    known = {record.id: record for record in base}
    before = tuple(
        old if (old := known.get(record.id)) is not None and same(old, record) else record for record in present
    )
    sent = tuple(record for record, old in zip(present, before, strict=True) if known.get(record.id) is not old)
    in_order = [name for name in known if name in now] + [name for name in ids if name not in known]
    place = {} if in_order == ids else {name: k for k, name in enumerate(in_order)}
    return _Changes(
        sent=sent,
        removed=tuple(name for name in known if name not in now),
        order=tuple(place[name] for name in ids) if place else (),
        before=before,
    )


_JOB_FACTS = attrgetter(*(each.name for each in fields(Job) if each.name not in NAMES))
_DEVICE_FACTS = attrgetter(*(each.name for each in fields(Device) if each.name != "residents"))


def _same_job(one: Job, other: Job) -> bool:
    return one is other or _JOB_FACTS(one) == _JOB_FACTS(other)


def _same_device(one: Device, other: Device) -> bool:
    if one is other:
        return True
    if len(one.residents) != len(other.residents) or _DEVICE_FACTS(one) != _DEVICE_FACTS(other):
        return False
    return all(map(_same_job, one.residents, other.residents))


# --- both ends --------------------------------------------------------------------------------------------------------


class SentSnapshots:
    """The snapshots that a client sent and the server keeps. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, Snapshot]] = OrderedDict()  # by scope, the least used first

    def request(self, snapshot: Snapshot) -> pb.MatchRequest:
        """Return the request for a snapshot: what changed since the last one, or the whole of it."""
        with self._lock:
            base_id, base = self._kept.get(snapshot.scope, ("", snapshot))
        changes = changes_since(base, base_id, snapshot) if base_id else None
        return to_proto(snapshot, pb.MatchRequest) if changes is None else changes

    def keep(self, snapshot: Snapshot, base_id: str) -> None:
        """Remember the id under which the server keeps a snapshot. With an empty id the server does not keep it."""
        with self._lock:
            self._kept.pop(snapshot.scope, None)
            if base_id:
                self._kept[snapshot.scope] = base_id, snapshot
            while len(self._kept) > MAX_SCOPES:
                self._kept.popitem(last=False)


class KnownSnapshots:
    """The snapshots that later requests may be based on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], ReceivedSnapshot] = OrderedDict()  # by scope and base id, oldest first
        self._bytes = 0

    def read(self, request: pb.MatchRequest) -> ReceivedSnapshot:
        """Return the snapshot of a request. Raises InvalidInputError, and NotFoundError for the changes of a snapshot
        that is not kept."""
        return read_snapshot(request, self._base)

    def _base(self, scope: str, base_id: str) -> ReceivedSnapshot:
        with self._lock:
            base = self._kept.get((scope, base_id))
        if base is None:
            what = "the snapshot that these changes are based on is not kept here"
            raise NotFoundError(what, value=base_id, remedy="send the whole snapshot")
        return base

    def keep(self, received: ReceivedSnapshot) -> str:
        """Keep a decided snapshot in place of its base, and return its id; empty where it is not kept."""
        snapshot = received.snapshot
        if len(snapshot.pending) + len(snapshot.devices) < MIN_RECORDS or len(received.content) > MAX_BYTES:
            return ""
        with self._lock:
            self._drop((snapshot.scope, received.base_id))
            self._drop((snapshot.scope, received.digest))
            others = [key for key in self._kept if key[0] == snapshot.scope]
            for key in others[: max(0, len(others) + 1 - MAX_OF_SCOPE)]:
                self._drop(key)
            self._kept[snapshot.scope, received.digest] = received
            self._bytes += len(received.content)
            while self._bytes > MAX_BYTES:
                self._drop(next(iter(self._kept)))
        return received.digest

    def _drop(self, key: tuple[str, str]) -> None:
        if (dropped := self._kept.pop(key, None)) is not None:
            self._bytes -= len(dropped.content)
