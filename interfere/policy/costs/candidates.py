"""The candidates of one decision: pending jobs, empty devices, what each start costs there, and which rules allow it.

Jobs of one size, the number of devices that each takes, are candidates together: only they can share. To all of them a
set of devices of one class counts as one. Interchangeable jobs are classes (`JobKeys`): tables have one row for
each class.

Where the plan may choose the sharing mode of empty devices, each pair costs what it costs under its best mode. Every
empty device takes the mode of the pair that starts there, so the best plan under these costs is the best of all plans
and modes together. Law: a pair is forbidden where it is forbidden under every mode; the rule is then that of the
device's own mode. Of equal costs the device's own mode is kept.

Hosts are places where groups may start beside residents: devices that run jobs and have seats left. Jobs on several
devices join only residents that run on exactly the same devices.

Jobs that no rule and no cost tells apart are interchangeable: they agree in all that candidates are made from. Times
count only where something reads them: an objective of time, a deadline, a window, or the rule that guests end first.
Which members of a class start is decided afterwards, in the order of the queue.

A cap that a deadline leaves depends on how long the other job stays: beyond the deadline it makes no difference, and a
job that no deadline, window or objective of time concerns is otherwise not asked how long it takes. So jobs that stay
longer than every deadline are alike, exactly. Of shorter ones, where they have more than `MAX_LENGTHS` lengths, each
counts as the next of a few longer ones: a plan keeps every rule, but no bound that rests on the others is claimed.
"""

import math
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.objectives import Objective, objective_of
from interfere.policy.costs.paging import paging_of
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.custom import SharingRule, fields_read
from interfere.policy.rules.runtime import remaining_quantile_s, start_weights
from interfere.policy.slowdowns import all_residents, slowdowns_among_residents
from interfere.records import NAN, ActionKind, Device, Job, Snapshot
from interfere.records.cluster import DEFAULT_SEATS

_NAMES = attrgetter("workload", "profile_id", "pools", "priority", "preemptible")
_COSTS = ("weight",)
_NUMBERS = (
    "memory_peak_bytes",
    "memory_working_set_bytes",
    "max_slowdown",
    "latency_target_s",
    "grant_bytes",
)
_TIMES = ("deadline_s", "remaining_s", "remaining_p90_s", "checkpoint_s")


class JobKeys:
    """Equal keys for jobs that the candidates of a decision cannot tell apart."""

    def __init__(
        self,
        snapshot: Snapshot,
        custom_objective: Objective | None = None,
        custom_rules: Sequence[SharingRule] = (),
        *,
        rules_only: bool = False,
    ) -> None:
        """`custom_objective`: in place of the snapshot's; nobody knows what it reads, so no two jobs are alike.

        `custom_rules`: of other packages; the fields that they read count too.

        `rules_only`: equal keys also for jobs that differ in what their slowdown costs.
        """
        self._separate = custom_objective is not None and not rules_only
        fields = [*_NUMBERS] if rules_only else [*_COSTS, *_NUMBERS]
        if snapshot.limits.guest_ends_first or _has_windows_or_deadlines(snapshot):
            fields += _TIMES
        if not rules_only:
            fields += [name for name in objective_of(snapshot).required_fields if name not in fields]
        self._numbers = attrgetter(*fields)
        read = fields_read(custom_rules)
        self._read = attrgetter(*read) if read else None
        self._pack = struct.Struct(f"{len(fields)}d").pack

    def of(self, job: Job) -> Hashable:
        """The key of a pending or running job."""
        if self._separate:
            return job.id
        key = (_NAMES(job), self._pack(*self._numbers(job)))
        return (*key, repr(self._read(job))) if self._read else key  # repr: an absent number is not equal to itself


def _has_windows_or_deadlines(snapshot: Snapshot) -> bool:
    """Whether a device closes or a job has a deadline, which is never negative."""
    residents = [job for device in snapshot.devices for job in device.residents if job.deadline_s >= 0]
    waiting = [job for job in snapshot.pending if job.deadline_s >= 0]
    return bool(residents or waiting or [device for device in snapshot.devices if device.windows])


MAX_LENGTHS = 256  # that are told apart exactly: beside 300 kinds of jobs a table of 80,000 cells a device class
KEPT_LENGTHS = 16
# A job that stays this many times longer than a deadline outlasts it, also at a predicted slowdown of a half.
OUTLASTS = 2.0
_CHANGED = {"remaining_s", "remaining_p90_s", "checkpoint_s"}  # fields of a job that counts as another length


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyLengths:
    """The snapshot with the lengths that count for its jobs, and whether some of them are longer than they are."""

    snapshot: Snapshot
    is_rounded: bool = False


def company_lengths(
    snapshot: Snapshot,
    custom_objective: Objective | None = None,
    custom_rules: Sequence[SharingRule] = (),
    *,
    rules_only: bool = False,
) -> CompanyLengths:
    """Return the snapshot with jobs of as few lengths as the rules on its deadlines need; again the same.

    `custom_objective`: in place of the snapshot's, which reads all. `rules_only`: the objective is not asked about the
    jobs. The lengths are as they are where a window, the rule that guests end first, a rule of another package, or an
    objective of time reads them.
    """
    residents = [job for device in snapshot.devices for job in device.residents]
    ends_s = [job.deadline_s for job in (*snapshot.pending, *residents) if job.deadline_s >= 0]
    objective = objective_of(snapshot)
    is_read = bool(objective.required_fields) or objective.deadline_miss_price > 0 or custom_objective is not None
    if not ends_s or (is_read and not rules_only) or snapshot.limits.guest_ends_first or math.isnan(snapshot.now_s):
        return CompanyLengths(snapshot=snapshot)
    if any(device.windows for device in snapshot.devices) or _CHANGED & set(fields_read(custom_rules)):
        return CompanyLengths(snapshot=snapshot)
    longest_s = OUTLASTS * max(0.0, max(ends_s) - snapshot.now_s)
    level = 1 - snapshot.limits.slowdown.risk

    def length_s(job: Job) -> float:
        return min(longest_s, remaining_quantile_s(job, level))

    counted = [job for job in (*snapshot.pending, *residents) if _is_company(job)]
    lengths = np.unique([length_s(job) for job in counted])
    kept = lengths
    if len(lengths) > MAX_LENGTHS:
        kept = lengths[np.linspace(0, len(lengths) - 1, KEPT_LENGTHS + 1).astype(np.int64)[1:]]
    counts_as = dict(zip(lengths.tolist(), kept[np.searchsorted(kept, lengths)].tolist(), strict=True))

    def shortened(job: Job) -> Job:
        if not _is_company(job):
            return job
        return replace(job, remaining_s=counts_as[length_s(job)], remaining_p90_s=NAN, checkpoint_s=NAN)

    return CompanyLengths(
        snapshot=replace(
            snapshot,
            pending=tuple(map(shortened, snapshot.pending)),
            devices=tuple(
                replace(device, residents=tuple(map(shortened, device.residents))) if device.residents else device
                for device in snapshot.devices
            ),
        ),
        is_rounded=len(kept) < len(lengths),
    )


def _is_company(job: Job) -> bool:
    """Whether a job has no deadline itself, and says how long it takes."""
    return math.isnan(job.deadline_s) and not math.isnan(job.remaining_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """A set of devices of one class that the same residents occupy, as many devices as each of them takes."""

    devices: tuple[Device, ...]
    residents: tuple[Job, ...]  # in the order of the classes of their host class


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The empty devices of a class, or places of a class whose residents are equal to every rule and prediction."""

    device_class: DeviceClass
    places: tuple[HostPlace, ...] = ()  # none for empty devices
    table: GroupTable | None = None  # of the costs beside residents; None for empty devices
    residents: tuple[int, ...] = ()  # places of its residents in the table

    @property
    def room(self) -> int:
        """Jobs that may still start."""
        return self.device_class.seats - len(self.residents)

    @property
    def resident_pairs(self) -> PairCosts | None:
        """The costs of pending jobs beside each resident of the table; None for empty devices."""
        return None if self.table is None else self.table.resident_pairs


def has_groups(snapshot: Snapshot) -> bool:
    """Does a device have other than two seats?"""
    return any(device.seats not in (None, DEFAULT_SEATS) for device in snapshot.devices)


def _host_places(context: PlanningContext, size: int, keys: JobKeys) -> dict[DeviceClass, list[tuple[HostPlace, ...]]]:
    """The places beside residents that have a free seat, by device class and class of residents."""
    number: dict[Hashable, int] = {}  # of each class of residents: gives them one order everywhere
    classes: dict[tuple[DeviceClass, tuple[int, ...]], list[HostPlace]] = {}
    for devices, residents in _shared_devices(context, size):
        device_class = context.device_class(devices[0])
        if any(context.device_class(device) != device_class for device in devices[1:]):
            continue
        if len(residents) < device_class.seats:
            kinds = [number.setdefault(keys.of(job), len(number)) for job in residents]
            order = sorted(range(len(kinds)), key=kinds.__getitem__)
            place = HostPlace(devices=devices, residents=tuple(residents[k] for k in order))
            classes.setdefault((device_class, tuple(kinds[k] for k in order)), []).append(place)
    places_on: dict[DeviceClass, list[tuple[HostPlace, ...]]] = {}
    for (device_class, _), places in classes.items():
        places_on.setdefault(device_class, []).append(tuple(places))
    return places_on


def _shared_devices(context: PlanningContext, size: int) -> list[tuple[tuple[Device, ...], Sequence[Job]]]:
    """Return sets of `size` devices on which the same residents run, each of them on exactly `size` devices.

    A single device needs a free seat.
    """
    if size == 1:
        return [
            ((device,), device.residents)
            for device in context.snapshot.devices
            if device.residents
            and len(device.residents) < (device.seats or DEFAULT_SEATS)
            and not [job for job in device.residents if job.gpus > 1]
        ]
    found: dict[frozenset[str], tuple[Device, ...]] = {}
    for device in context.snapshot.devices:
        if device.residents and not [job for job in device.residents if job.gpus != size]:
            ids = frozenset(job.id for job in device.residents)
            found[ids] = (*found.get(ids, ()), device)
    return [
        (devices, devices[0].residents)
        for devices in found.values()
        if len(devices) == size and all(len(context.resident_devices[job.id]) == size for job in devices[0].residents)
    ]


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The pending jobs of one size as k classes, in the order of the queue of their first members, and their costs."""

    size: int  # devices that each job takes
    job_classes: tuple[tuple[Job, ...], ...]  # k, the members of each in the order of the queue
    start_weight: Floats  # float64[k]: which jobs start first (`rules.runtime.start_weights`)
    empty_devices: Mapping[DeviceClass, tuple[Device, ...]]
    max_new_devices: int  # at most so many empty devices are taken, by jobs of all sizes
    tables: Mapping[DeviceClass, GroupTable]  # of the classes of empty devices, then of those with residents to join
    hosts: tuple[Host, ...]  # the places beside residents, by table

    @property
    def pending(self) -> tuple[Job, ...]:
        """The first member of each class, which stands for it."""
        return tuple(members[0] for members in self.job_classes)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[k]: jobs of each class."""
        return np.array([len(members) for members in self.job_classes], dtype=np.int64)

    @property
    def solo_cost(self) -> dict[DeviceClass, Floats]:
        """float64[k] by class of empty devices: the cost of each class of jobs alone there; inf: not allowed."""
        return {name: self.tables[name].solo_cost for name in self.empty_devices}

    @property
    def pair_tables(self) -> dict[DeviceClass, PairCosts]:
        """The costs of pairs of pending jobs, k × k, by class of empty devices."""
        return {name: self.tables[name].pending_pairs for name in self.empty_devices}

    def class_of(self, job_id: str) -> int:
        """The class of a pending job. Raises ValueError for another."""
        return next(i for i, members in enumerate(self.job_classes) if any(job.id == job_id for job in members))


def find_candidates(context: PlanningContext, size: int, keys: JobKeys, *, by_start_weight: bool) -> Candidates:
    """Return the context's pending jobs that take `size` devices, with their costs on all devices.

    `by_start_weight`: whether jobs of different start weight are of different classes. Where no job has to wait, who
    would wait first says nothing, and there are fewer classes without: ageing makes eight of one.
    """
    limits, snapshot = context.limits, context.snapshot
    # 1. Classes of pending jobs, and empty devices.
    queue = [job for job in snapshot.pending if job.gpus == size]
    ranks = start_weights(queue, context.now_s, limits.timing.ageing_s).tolist()
    classes: dict[Hashable, list[Job]] = {}
    for job, rank in zip(queue, ranks, strict=True):
        classes.setdefault((keys.of(job), rank if by_start_weight else 0.0), []).append(job)
    pending = [members[0] for members in classes.values()]
    empty: dict[DeviceClass, list[Device]] = {}
    for device in snapshot.devices:
        if not device.residents:
            empty.setdefault(context.device_class(device), []).append(device)
    most = sum(map(len, empty.values()))
    # 2. Tables of costs: of each class of residents one job.
    places_on = _host_places(context, size, keys)
    residents: dict[DeviceClass, dict[Hashable, Job]] = {
        name: {} for name in (*(name for name, devices in empty.items() if len(devices) >= size), *places_on)
    }
    for name, classes_of_places in places_on.items():
        for places in classes_of_places:
            for job in places[0].residents:
                residents[name].setdefault(keys.of(job), job)
    sized = _context_of_size(context, size)
    tables = {name: GroupTable(pending, list(jobs.values()), name, sized) for name, jobs in residents.items()}
    place_of = {name: {key: k for k, key in enumerate(jobs)} for name, jobs in residents.items()}
    return Candidates(
        size=size,
        job_classes=tuple(map(tuple, classes.values())),
        start_weight=start_weights(pending, context.now_s, limits.timing.ageing_s),
        empty_devices={name: tuple(devices) for name, devices in empty.items() if len(devices) >= size},
        max_new_devices=most if limits.max_devices is None else min(limits.max_devices, most),
        tables=tables,
        hosts=tuple(
            Host(
                device_class=name,
                places=places,
                table=table,
                residents=tuple(place_of[name][keys.of(job)] for job in places[0].residents),
            )
            for name, table in tables.items()
            for places in places_on.get(name, ())
        ),
    )


def _context_of_size(context: PlanningContext, size: int) -> PlanningContext:
    """The context in which jobs on more devices than may be shared share none."""
    limits = context.limits
    if limits.most_shared_gpus is None or size <= limits.most_shared_gpus:
        return context
    limits = replace(limits, allowed=limits.allowed - {ActionKind.START_SHARED})
    return context.subproblem(replace(context.snapshot, limits=limits))


def resident_floor(context: PlanningContext) -> float:
    """Return the largest cost of a resident as it runs now in a min-max objective; -inf without residents.

    On devices of two seats a neighbour that a resident has already is left aside.
    """
    if not context.objective.is_min_max:
        return -np.inf
    residents = all_residents(context)
    slowdown_of = slowdowns_among_residents(residents, context) if has_groups(context.snapshot) else {}
    jobs_on: dict[str, list[Job]] = {}
    paged: dict[str, float] = {}
    for device, job in residents:
        jobs_on.setdefault(device.type, []).append(job)
        if job.id in slowdown_of:
            paged[job.id] = slowdown_of[job.id] * paging_of(device.residents, device, context)
    floor = -np.inf
    for device_type, jobs in jobs_on.items():
        slowdowns = np.nan_to_num([paged.get(job.id, 1.0) for job in jobs], nan=1.0)
        times = context.relative_times_on(device_type, jobs) * slowdowns
        costs = context.objective.constant(jobs) + context.objective.rate(jobs) * times
        floor = max(floor, float(costs.max(initial=-np.inf)))
    return floor
