"""What one decision is made from: the snapshot, indexed by id, the predictor and what is known of jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.objectives import Objective, objective_of, relative_times
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import memory_demand
from interfere.protocols import Predictor
from interfere.records import NAN, Device, Job, JobProfile, Limits, MemoryDemand, Snapshot

Floats = NDArray[np.float64]


class JobCatalogue(Protocol):
    """What is known of jobs besides what the snapshot says."""

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """The profile to predict from on a device type; None for a workload that nobody profiled."""

    def measured_bytes(self, job: Job, device_type: str) -> float:
        """The most memory that the job's workload was measured to hold on a device type; NaN where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLookup:
    """A catalogue of a function from (job, device type) to its profile, and of measured memory by workload and type."""

    profiles: Callable[[Job, str], JobProfile | None]
    used_bytes: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """The profile to predict from."""
        return self.profiles(job, device_type)

    def measured_bytes(self, job: Job, device_type: str) -> float:
        """The most memory that was measured."""
        return self.used_bytes.get((job.workload, device_type), NAN)


@dataclass(frozen=True, kw_only=True)
class PlanningContext:
    """Everything that the stages of one decision read. A stage that changes the snapshot makes a new context."""

    snapshot: Snapshot
    predictor: Predictor
    catalogue: JobCatalogue
    decision_id: str = ""
    other_device_types: tuple[str, ...] = ()  # of the scope, where the snapshot is a subproblem of it

    def with_snapshot(self, snapshot: Snapshot, other_device_types: Sequence[str] = ()) -> "PlanningContext":
        """The same decision about another snapshot."""
        return replace(self, snapshot=snapshot, other_device_types=tuple(other_device_types))

    @property
    def limits(self) -> Limits:
        """The limits of the snapshot."""
        return self.snapshot.limits

    @property
    def now_s(self) -> float:
        """The caller's clock; NaN without one."""
        return self.snapshot.now_s

    @cached_property
    def objective(self) -> Objective:
        """What the decision minimises."""
        return objective_of(self.snapshot)

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Every device type of the scope, once."""
        return tuple(dict.fromkeys((*(device.type for device in self.snapshot.devices), *self.other_device_types)))

    @cached_property
    def pending(self) -> Mapping[str, Job]:
        """Pending jobs by id."""
        return {job.id: job for job in self.snapshot.pending}

    @cached_property
    def residents(self) -> Mapping[str, Job]:
        """Running jobs by id."""
        return {job.id: job for device in self.snapshot.devices for job in device.residents}

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        """Every job by id."""
        return {**self.pending, **self.residents}

    @cached_property
    def devices(self) -> Mapping[str, Device]:
        """Devices by id."""
        return {device.id: device for device in self.snapshot.devices}

    def profile(self, job: Job, device_type: str) -> JobProfile | None:
        """The profile of a job on a device type; None for a workload that nobody profiled."""
        return self.catalogue.profile(job, device_type)

    def relative_times(self, jobs: Sequence[Job]) -> Floats:
        """float64[n, t]: τ of n jobs on each of `device_types`."""
        return relative_times(
            [[self.profile(job, name) for name in self.device_types] for job in jobs], self.device_types
        )

    def relative_times_on(self, device_type: str, jobs: Sequence[Job]) -> Floats:
        """float64[n]: τ of n jobs on one of `device_types`."""
        return self.relative_times(jobs)[:, self.device_types.index(device_type)]

    def demand(self, job: Job, device_class: DeviceClass) -> MemoryDemand:
        """Memory that a job needs on such a device. Measured use counts where the device grants memory."""
        device_type = device_class.type
        measured_bytes = self.catalogue.measured_bytes(job, device_type) if device_class.memory.grants_memory else NAN
        return memory_demand(job, self.profile(job, device_type), measured_bytes)
