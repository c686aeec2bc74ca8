"""Times of the jobs of a snapshot as columns: one number for each job, the pending ones first, then all residents.

Times change from round to round where nothing else does, and as columns they are read in a tenth of the time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isnan
from operator import attrgetter, is_

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN, Device, Job, Snapshot
from interfere.records.record import copier
from interfere.v1 import policy_pb2 as pb
from interfere.wire.bounds import MAX_TIME_S, MAX_VIOLATIONS

NAMES = tuple(field.name for field in pb.JobTimes.DESCRIPTOR.fields)
_FLOAT = np.dtype("<f8")


def jobs_of(snapshot: Snapshot) -> list[Job]:
    """Return all jobs of a snapshot in the order of the columns."""
    return [*snapshot.pending, *(job for device in snapshot.devices for job in device.residents)]


def column_of(jobs: Sequence[Job], name: str) -> bytes:
    """Return one column."""
    return np.fromiter(map(attrgetter(name), jobs), _FLOAT, len(jobs)).tobytes()


def times_of(jobs: Sequence[Job]) -> pb.JobTimes:
    """Return the columns of which some number is present."""
    columns = {name: column_of(jobs, name) for name in NAMES}
    absent = np.full(len(jobs), NAN, _FLOAT).tobytes()
    return pb.JobTimes(**{name: column for name, column in columns.items() if column != absent})


def with_times(snapshot: Snapshot, times: pb.JobTimes) -> Snapshot:
    """Return a snapshot with the times of the columns. Raises InvalidInputError where a column does not fit the jobs,
    or breaks the rules of a job's numbers."""
    names = tuple(name for name in NAMES if getattr(times, name))
    if not names:
        return snapshot
    jobs = jobs_of(snapshot)
    numbers = {name: _numbers(name, getattr(times, name), len(jobs)) for name in names}
    _check(snapshot, jobs, numbers)
    columns = [[NAN if isnan(value) else value for value in numbers[name].tolist()] for name in names]
    copy, get = copier(Job, *names), attrgetter(*names)
    before = map(get, jobs) if len(names) > 1 else ((get(job),) for job in jobs)
    made = iter(
        [
            job if old == new else copy(job, *new)
            for job, old, new in zip(jobs, before, zip(*columns, strict=True), strict=True)
        ]
    )
    pending = tuple(next(made) for _ in snapshot.pending)
    return replace(snapshot, pending=pending, devices=tuple(_with_residents(snapshot.devices, made)))


def _numbers(name: str, data: bytes, count: int) -> NDArray[np.float64]:
    """float64[count]: the numbers of a column."""
    if len(data) != count * _FLOAT.itemsize:
        what, remedy = f"is not one double for each of {count} jobs", "send 8 bytes for each pending job and resident"
        violation = Violation(field=f"times.{name}", what=what, value=f"{len(data)} bytes", remedy=remedy)
        raise InvalidInputError.from_violations([violation])
    return np.frombuffer(data, _FLOAT)


def _check(snapshot: Snapshot, jobs: Sequence[Job], numbers: dict[str, NDArray[np.float64]]) -> None:
    """Raise InvalidInputError where a time is no time, or a 90 % quantile lies below its median."""
    bad = {
        name: (~(np.isnan(column) | ((column >= 0.0) & (column <= MAX_TIME_S))), f"must be from 0 to {MAX_TIME_S:g}")
        for name, column in numbers.items()
    }
    if {"remaining_s", "remaining_p90_s"} & numbers.keys():
        median_s, high_s = (
            numbers[name] if name in numbers else np.array([getattr(job, name) for job in jobs])
            for name in ("remaining_s", "remaining_p90_s")
        )
        bad["remaining_p90_s"] = (~np.isnan(high_s) & ~(high_s >= median_s), "must be ≥ remaining_s, which it needs")
    broken = [(k, name, what) for name, (where, what) in bad.items() for k in np.flatnonzero(where).tolist()]
    if broken:
        paths = list(_paths(snapshot))
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field=f"{paths[k]}.{name}",
                    what=what,
                    value=repr(float(numbers[name][k])) if name in numbers else repr(getattr(jobs[k], name)),
                    remedy="send seconds, and NaN in the column where they are not known",
                )
                for k, name, what in broken[:MAX_VIOLATIONS]
            ]
        )


def _paths(snapshot: Snapshot) -> Iterator[str]:
    """Yield the path of each job in the order of the columns."""
    yield from (f"pending[{k}]" for k in range(len(snapshot.pending)))
    for k, device in enumerate(snapshot.devices):
        yield from (f"devices[{k}].residents[{r}]" for r in range(len(device.residents)))


def _with_residents(devices: Sequence[Device], residents: Iterator[Job]) -> Iterator[Device]:
    """Yield the devices with the next residents in place of theirs; the same object where all of them are the same."""
    copy = copier(Device, "residents")
    for device in devices:
        if device.residents:
            now = tuple(next(residents) for _ in device.residents)
            yield device if all(map(is_, now, device.residents)) else copy(device, now)
        else:
            yield device
