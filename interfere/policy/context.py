"""The input of one placement decision: the snapshot indexed by id, the slowdown predictor and the job profiles."""

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.objectives import Objective, objective_of, relative_times
from interfere.policy.device_class import DeviceClass, DeviceClassMembers, device_facts, group_devices, with_seats
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.memory import memory_demand
from interfere.policy.rules.runtime import opening_times
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    Device,
    Job,
    JobProfile,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    MemoryDemand,
    Snapshot,
)
from interfere.records.record import copier
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from interfere.time_budget import UNLIMITED, TimeBudget

log = logging.getLogger(__name__)
Floats = NDArray[np.float64]
# Most distinct closing times in one decision; each further time is rounded down to a kept one. Every device class needs
# a table of costs: 300 jobs on 500 devices with 500 closing times would take 4 s, and take 0.5 s with this limit.
MAX_CLOSING_TIMES = 24


class JobCatalogue(Protocol):
    """Looks up job profiles and measured memory use, which a snapshot does not contain."""

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """Return the job's profile on a device type, or None where its workload was never profiled."""

    def measured_bytes(self, job: Job, device_type: str) -> float:
        """Return the measured peak memory of the job's workload on a device type, in bytes; NaN where unknown."""


def numbered(keys: Iterable[Hashable]) -> tuple[list[int], list[int]]:
    """Return a number for each key, equal ones alike, by first occurrence, and the place of the first of each."""
    number: dict[Hashable, int] = {}
    numbers = [number.setdefault(key, len(number)) for key in keys]
    first = dict(zip(reversed(numbers), range(len(numbers) - 1, -1, -1), strict=True))
    return numbers, [first[k] for k in range(len(number))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLookup:
    """A job catalogue made of a profile function (job, device type) and a table of bytes by (workload, device type)."""

    profiles: Callable[[Job, str], JobProfile | None]
    used_bytes: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """Return the job's profile on a device type, or None where there is none."""
        return self.profiles(job, device_type)

    def measured_bytes(self, job: Job, device_type: str) -> float:
        """Return the measured peak memory of the job's workload in bytes; NaN where none was measured."""
        return self.used_bytes.get((job.workload, device_type), NAN)


def assumed_mode(device_type: str, predictor: Predictor) -> SharingMode:
    """Return the mode of a device that states none: the first one that the model knows for its type."""
    return next((mode for mode in SharingMode if not predictor.knows(device_type, mode)), DEFAULT_MODE)


def log_failed_checks(snapshot: Snapshot, failed: Sequence[str]) -> None:
    """Log the claims of a search that an independent check did not confirm, with the snapshot that was planned."""
    log.error("%s; of the snapshot %r", "; ".join(failed), snapshot)


def _with_sorted_residents(device: Device) -> Device:
    """Return the device with its residents by id."""
    names = [job.id for job in device.residents]
    if names == sorted(names):
        return device
    return replace(device, residents=tuple(sorted(device.residents, key=lambda job: job.id)))


_with_mode = copier(Device, "mode")


@dataclass(frozen=True, kw_only=True)
class PlanningContext:
    """The frozen input of every stage of one decision. A stage that changes the snapshot builds a new context."""

    snapshot: Snapshot
    predictor: Predictor
    catalogue: JobCatalogue
    decision_id: str = ""
    other_device_types: tuple[str, ...] = ()  # in a subproblem: the device types of the whole scope
    latency_predictor: Predictor | None = None  # of the p99 of services, by which latency targets are judged
    custom_objective: Objective | None = None  # replaces the objective that the snapshot names
    custom_rules: tuple[SharingRule, ...] = ()  # of other packages, beside ours
    budget: TimeBudget = UNLIMITED  # time budget of the whole decision
    report_failed_checks: Callable[[Snapshot, Sequence[str]], None] = log_failed_checks
    _classes: dict[object, DeviceClass] = field(default_factory=dict, repr=False)  # device classes by all their facts
    # By the identity of the device, which the entry keeps alive.
    _class_of_device: dict[int, tuple[Device, DeviceClass]] = field(default_factory=dict, repr=False)
    _predictions: dict[object, tuple[MatrixBatch, MatrixPrediction]] = field(default_factory=dict, repr=False)
    _relative_times: dict[object, tuple[tuple[Job, ...], Floats]] = field(default_factory=dict, repr=False)
    assumed_modes: Mapping[str, SharingMode] = field(default_factory=dict)  # by device id

    def __post_init__(self) -> None:
        """Set the seats of every device, and the assumed sharing mode of every device that states none."""
        object.__setattr__(self, "snapshot", with_seats(self.snapshot))
        unnamed = [device for device in self.snapshot.devices if not device.mode]
        if not unnamed:
            return
        mode_of = {kind: assumed_mode(kind, self.predictor) for kind in dict.fromkeys(each.type for each in unnamed)}
        devices = (each if each.mode else _with_mode(each, mode_of[each.type]) for each in self.snapshot.devices)
        assumed = {device.id: mode_of[device.type] for device in unnamed}
        object.__setattr__(self, "snapshot", replace(self.snapshot, devices=tuple(devices)))
        object.__setattr__(self, "assumed_modes", {**self.assumed_modes, **assumed})

    def with_snapshot(self, snapshot: Snapshot) -> "PlanningContext":
        """Return this context with another snapshot of the whole scope."""
        if snapshot is self.snapshot and not self.other_device_types:
            return self
        return replace(self, snapshot=snapshot, other_device_types=())

    def in_canonical_order(self) -> "PlanningContext":
        """Return this context with the pending jobs as they were submitted, and devices and residents by id.

        Law: snapshots that differ only in the order of jobs, devices and residents give the same plan, except that a
        queue whose jobs do not all tell when they were submitted (`elapsed_s`) is read in the order in which it was
        sent.
        """
        pending = self.snapshot.pending
        if not any(math.isnan(job.elapsed_s) for job in pending):
            pending = tuple(sorted(pending, key=lambda job: (-job.elapsed_s, job.id)))
        devices = map(_with_sorted_residents, sorted(self.snapshot.devices, key=lambda device: device.id))
        return self.with_snapshot(replace(self.snapshot, pending=pending, devices=tuple(devices)))

    def subproblem(self, snapshot: Snapshot) -> "PlanningContext":
        """Return the context of a part of the snapshot; relative times τ still refer to all device types in scope."""
        return replace(self, snapshot=snapshot, other_device_types=self.device_types)

    @property
    def limits(self) -> Limits:
        """Return the limits that the snapshot sets for the plan."""
        return self.snapshot.limits

    @property
    def now_s(self) -> float:
        """Return the time of the decision on the caller's clock, in seconds; NaN where the caller gave none."""
        return self.snapshot.now_s

    @cached_property
    def objective(self) -> Objective:
        """Return the custom objective where one is set, else the objective that the snapshot names."""
        return self.custom_objective or objective_of(self.snapshot)

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Return every device type of the scope, each once."""
        return tuple(dict.fromkeys((*(device.type for device in self.snapshot.devices), *self.other_device_types)))

    @cached_property
    def pending(self) -> Mapping[str, Job]:
        """Return the pending jobs by job id."""
        return {job.id: job for job in self.snapshot.pending}

    @cached_property
    def residents(self) -> Mapping[str, Job]:
        """Return the running jobs by job id."""
        return {job.id: job for device in self.snapshot.devices for job in device.residents}

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        """Return all pending and running jobs by job id."""
        return {**self.pending, **self.residents}

    @cached_property
    def resident_devices(self) -> Mapping[str, tuple[Device, ...]]:
        """Return the devices of each running job, by job id, in the order of the snapshot."""
        devices: dict[str, tuple[Device, ...]] = {}
        for device in self.snapshot.devices:
            for job in device.residents:
                devices[job.id] = (*devices.get(job.id, ()), device)
        return devices

    @cached_property
    def devices(self) -> Mapping[str, Device]:
        """Return the devices by device id."""
        return {device.id: device for device in self.snapshot.devices}

    @cached_property
    def device_classes(self) -> tuple[DeviceClassMembers, ...]:
        """Return the devices in groups whose members are interchangeable now and at any later time."""
        return group_devices(self.snapshot.devices, self.device_class)

    def device_class(self, device: Device) -> DeviceClass:
        """Return the class of a device at the time of the decision; devices with equal facts share one record."""
        known = self._class_of_device.get(id(device))
        if known is not None and known[0] is device:
            return known[1]
        key = (*device_facts(device), device.windows, self.now_s if device.windows else 0.0)
        device_class = self._classes.get(key)
        if device_class is None:
            device_class = DeviceClass.of(device, self.now_s)
            if device_class.open_s in self._rounded_open_s:
                device_class = replace(device_class, open_s=self._rounded_open_s[device_class.open_s])
            self._classes[key] = device_class
        self._class_of_device[id(device)] = (device, device_class)
        return device_class

    @property
    def has_rounded_windows(self) -> bool:
        """Return whether a closing time is rounded down; an optimality proof then leaves out some placements."""
        return bool(self._rounded_open_s)

    @cached_property
    def _rounded_open_s(self) -> Mapping[float, float]:
        """Map seconds until closing to a rounded-down value; empty for up to `MAX_CLOSING_TIMES` distinct times."""
        closing = {opening_times(device, self.now_s)[0] for device in self.snapshot.devices if device.windows}
        distinct = sorted(open_s for open_s in closing if 0 < open_s < math.inf)
        if len(distinct) <= MAX_CLOSING_TIMES:
            return {}
        kept = np.array(distinct)[np.linspace(0, len(distinct) - 1, MAX_CLOSING_TIMES).astype(np.int64)]
        places = np.searchsorted(kept, distinct, side="right") - 1
        return {open_s: float(kept[place]) for open_s, place in zip(distinct, places, strict=True)}

    def predict_matrix(self, batch: MatrixBatch, quantile: float) -> MatrixPrediction:
        """Return the predicted slowdowns of a batch at a quantile; a repeated question is answered from a cache."""
        memory_bytes = batch.device_memory_bytes if batch.device_memory_bytes >= 0 else -1.0
        victims, neighbours = (tuple(map(id, side)) for side in (batch.victims, batch.neighbours))
        key = (victims, neighbours, batch.device_type, batch.mode, memory_bytes, batch.allow_extrapolation, quantile)
        known = self._predictions.get(key)
        if known is None:  # the entry keeps the batch, so that the ids of its profiles are not reused
            known = self._predictions[key] = (batch, self.predictor.predict_matrix(batch, quantile=quantile))
        return known[1]

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """Return the profile of a job on a device type, or None where its workload was never profiled."""
        return self.catalogue.profile(job, device_type)

    def profile_of_workload(self, workload: str, device_type: str) -> JobProfile | None:
        """Return the profile of a workload on a device type, whichever job runs it, or None where there is none."""
        return self.catalogue.profile(Job(id=workload, workload=workload), device_type)

    def relative_times(self, jobs: Sequence[Job]) -> Floats:
        """Return float64[n, t]: the relative time τ of n jobs on each of the t `device_types`; asked again, a cache."""
        key = (tuple(map(id, jobs)), self.device_types)
        known = self._relative_times.get(key)
        if known is None:  # the entry keeps the jobs, so that their ids are not reused
            kind_of, first = numbered((job.workload, job.profile_id) for job in jobs)
            profiles = [[self.profile(jobs[k], device_type) for device_type in self.device_types] for k in first]
            times = relative_times(profiles, self.device_types)[np.array(kind_of, dtype=np.int64)]
            known = self._relative_times[key] = (tuple(jobs), times)
        return known[1]

    def relative_times_on(self, device_type: str, jobs: Sequence[Job]) -> Floats:
        """Return float64[n]: the relative time τ of n jobs on one of `device_types`."""
        return self.relative_times(jobs)[:, self.device_types.index(device_type)]

    def demand(self, job: Job, device_class: DeviceClass) -> MemoryDemand:
        """Return the memory need of a job on a device class; measured use counts only on devices that grant memory."""
        device_type = device_class.type
        measured_bytes = self.catalogue.measured_bytes(job, device_type) if device_class.memory.grants_memory else NAN
        return memory_demand(job, self.profile(job, device_type), measured_bytes)
