"""How much device memory jobs need, and why several do not fit on one device.

Two fit when the sum of their peaks is at most capacity · (1 - headroom), and, where a misfit risk is given, when the
predicted probability that they do not fit is at most that risk. The prediction knows the memory that profiles measured,
not what a job says of itself. Where no peak is known, the peak that a static trace expects stands in, else the
working set. Alone a job may use all of a device. Unknown memory counts as none.

A device that grants its memory has floor(ρ · capacity / granule) granules. A job needs what it asks for, else its
demand, in whole granules: alone and with a co-located job they must not come to more. With ρ > 1 this replaces the sum
of peaks, and working sets must fit capacity · (1 - headroom) where they are known: what every step touches must not be
swapped. What is granted beyond the capacity is reserved on the host: (ρ - 1) · capacity. Where the host backs only R
bytes of it, ρ counts as min(ρ, 1 + R / capacity).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.group_rules import Group, GroupRule, values_at
from interfere.records import NAN, Device, DeviceSlots, Job, JobProfile, Limits, MemoryBasis, MemoryDemand, Rule
from interfere.records.promises import granules_for
from interfere.records.rules import RuleKind

# The driver of NVIDIA GPUs maps device memory in pages of 2 MiB (CUDA Driver API, cuMemGetAllocationGranularity).
DEFAULT_GRANULE_BYTES = 2.0 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of a device, and how it grants it to jobs.

    `granule_bytes` is 0 where it grants none, `memory_bytes` is below 0 where the capacity is not known.
    """

    memory_bytes: float
    oversubscription_ratio: float = 1.0
    granule_bytes: float = 0.0

    @classmethod
    def of(cls, device: Device) -> "DeviceMemory":
        """The memory of a device, with as much oversubscription as its host backs.

        A device that states only a ratio above 1 grants pages of the driver.
        """
        granule = device.granule_bytes
        if math.isnan(granule):
            granule = DEFAULT_GRANULE_BYTES if device.oversubscription_ratio > 1 else 0.0
        ratio = device.oversubscription_ratio
        if not math.isnan(device.host_reserve_bytes) and device.memory_bytes > 0:
            ratio = min(ratio, 1.0 + device.host_reserve_bytes / device.memory_bytes)
        return cls(
            memory_bytes=-1.0 if math.isnan(device.memory_bytes) else device.memory_bytes,
            oversubscription_ratio=ratio,
            granule_bytes=granule,
        )

    @property
    def grants_memory(self) -> bool:
        """Does every job on the device hold a grant?"""
        return self.granule_bytes > 0 and self.memory_bytes >= 0

    @property
    def granules(self) -> int:
        """Granules of the device in all. A millionth of one is rounding of the ratio."""
        return math.floor(self.memory_bytes * self.oversubscription_ratio / self.granule_bytes + 1e-6)

    @property
    def host_reserve_bytes(self) -> float:
        """The host memory that is reserved for what it grants beyond its own."""
        return max(0.0, (self.oversubscription_ratio - 1.0) * self.memory_bytes) if self.grants_memory else 0.0

    @property
    def allocatable_bytes(self) -> float:
        """What jobs may allocate on the device together."""
        return self.granules * self.granule_bytes if self.grants_memory else self.memory_bytes

    def granules_for(self, demand: MemoryDemand) -> int:
        """Granules that a demand takes; 0 where the demand is not known."""
        return 0 if math.isnan(demand.needed_bytes) else granules_for(demand.needed_bytes, self.granule_bytes)

    def shared_bytes(self, limits: Limits) -> float:
        """What two co-located jobs may hold together: the capacity less the headroom."""
        return self.memory_bytes * (1.0 - limits.memory.memory_headroom)


def device_slots(device: Device) -> DeviceSlots | None:
    """The granules that a device grants; None where it grants none."""
    if math.isnan(device.granule_bytes) and device.oversubscription_ratio <= 1:
        return None
    memory = DeviceMemory.of(device)
    if not memory.grants_memory:
        return None
    return DeviceSlots(
        device_id=device.id,
        device_type=device.type,
        granules=memory.granules,
        granule_bytes=memory.granule_bytes,
        oversubscription_ratio=memory.oversubscription_ratio,
        host_reserve_bytes=memory.host_reserve_bytes or NAN,
        node=device.node if memory.host_reserve_bytes else None,
    )


def memory_demand(job: Job, profile: JobProfile | None, measured_bytes: float = NAN) -> MemoryDemand:
    """The memory that a job needs: what it asks for; else its measured peak, an expected one, or its working set.

    What the job says of itself counts before its profile. `measured_bytes`, the most that its workload was seen to
    hold, counts where nothing else is known and where it is more.
    """
    known = [
        (job.grant_bytes, MemoryBasis.GRANT),
        (job.memory_peak_bytes, MemoryBasis.PEAK),
        (profile.memory_peak_bytes if profile else NAN, MemoryBasis.PEAK),
        (job.memory_working_set_bytes, MemoryBasis.WORKING_SET),
        (profile.static_memory_peak_bytes if profile else NAN, MemoryBasis.STATIC_TRACE),
        (profile.memory_working_set_bytes if profile else NAN, MemoryBasis.WORKING_SET),
    ]
    known_bytes, basis = next((source for source in known if not math.isnan(source[0])), (NAN, MemoryBasis.PEAK))
    working_set_bytes = job.memory_working_set_bytes
    if math.isnan(working_set_bytes) and profile is not None:
        working_set_bytes = profile.memory_working_set_bytes
    measured = not math.isnan(measured_bytes) and not measured_bytes <= known_bytes
    if basis is MemoryBasis.GRANT or not measured:
        return MemoryDemand(needed_bytes=known_bytes, basis=basis, working_set_bytes=working_set_bytes)
    return MemoryDemand(
        needed_bytes=measured_bytes,
        basis=MemoryBasis.MEASURED_USE,
        known_bytes=known_bytes,
        known_basis=basis,
        working_set_bytes=working_set_bytes,
    )


def solo_memory_rule(job_id: str, demand: MemoryDemand, memory: DeviceMemory) -> Rule | None:
    """Return the rule by which a job does not fit a device even alone; None where it fits or sizes are unknown."""
    if memory.grants_memory and memory.granules_for(demand) > memory.granules:
        return _grant_rule(memory, job_id, [demand])
    if memory.oversubscription_ratio > 1:
        if not 0 <= memory.memory_bytes < demand.working_set_bytes:
            return None
        kind = RuleKind.WORKING_SET
    elif 0 <= memory.memory_bytes < demand.needed_bytes:
        kind = RuleKind.MEMORY
    else:
        return None
    capacity = memory.memory_bytes
    return Rule(kind=kind, job_id=job_id, demand=demand, capacity_bytes=capacity, device_memory_bytes=capacity)


def memory_rules(
    ids: Sequence[str],
    demands: Sequence[MemoryDemand],
    group: Group,
    memory: DeviceMemory,
    limits: Limits,
    fit_probability: NDArray[np.float64] | None = None,
) -> Iterator[GroupRule]:
    """Rules on the memory of jobs that share a device, in the order in which they bind.

    `ids` and `demands`: of all jobs among which `group` has places. `fit_probability` is float64[...], NaN where it is
    not predicted, None for groups of which it is not. A device of unknown capacity has no such rule.
    """
    if memory.memory_bytes < 0:
        return
    # 1. Grants of all members must not exceed the granules of the device.
    if memory.grants_memory:
        granules = np.array([memory.granules_for(demand) for demand in demands], dtype=np.int64)
        exceeds = np.asarray(sum(granules[member] for member in group) > memory.granules)
        yield GroupRule.of_kind(
            RuleKind.GRANT, exceeds, lambda *index: _grant_rule(memory, *_of_group(ids, demands, group, index))
        )
    # 2. Their peaks, or with oversubscription their working sets, must leave the headroom free.
    oversubscribed = memory.oversubscription_ratio > 1
    sizes = np.nan_to_num([each.working_set_bytes if oversubscribed else each.needed_bytes for each in demands])
    kind = RuleKind.WORKING_SET if oversubscribed else RuleKind.MEMORY

    def rule(*index: int) -> Rule:
        job_id, (demand, *others), partner_id = _of_group(ids, demands, group, index)
        return Rule(
            kind=kind,
            job_id=job_id,
            partner_id=partner_id,
            demand=demand,
            partner_demand=_together(others),
            capacity_bytes=memory.shared_bytes(limits),
            device_memory_bytes=memory.memory_bytes,
            memory_headroom=limits.memory.memory_headroom,
        )

    exceeds = np.asarray(sum(sizes[member] for member in group) > memory.shared_bytes(limits))
    yield GroupRule.of_kind(kind, exceeds, rule)
    # 3. The predicted probability that they do not fit must not exceed the risk.
    if fit_probability is not None and not math.isnan(limits.memory.misfit_risk):
        misfit = 1.0 - fit_probability

        def misfit_rule(*index: int) -> Rule:
            job_id, _, partner_id = _of_group(ids, demands, group, index)
            return Rule(
                kind=RuleKind.MISFIT_RISK,
                job_id=job_id,
                partner_id=partner_id,
                misfit_probability=float(misfit[index]),
                max_misfit_probability=limits.memory.misfit_risk,
                capacity_bytes=memory.allocatable_bytes,
            )

        yield GroupRule.of_kind(RuleKind.MISFIT_RISK, misfit > limits.memory.misfit_risk, misfit_rule)


def _of_group(
    ids: Sequence[str], demands: Sequence[MemoryDemand], group: Group, index: tuple[int, ...]
) -> tuple[str, list[MemoryDemand], str]:
    """Return the id of the first member of one group, the demands of all, and the id of the second member."""
    places = values_at(group, index)
    return ids[places[0]], [demands[place] for place in places], ids[places[1]]


def _together(demands: Sequence[MemoryDemand]) -> MemoryDemand:
    """Return the demand of one job as it is, and the sums of the known demands of several."""
    if len(demands) == 1:
        return demands[0]
    return MemoryDemand(
        needed_bytes=float(np.nansum([demand.needed_bytes for demand in demands])),
        working_set_bytes=float(np.nansum([demand.working_set_bytes for demand in demands])),
    )


def _grant_rule(memory: DeviceMemory, job_id: str, demands: Sequence[MemoryDemand], partner_id: str = "") -> Rule:
    """Return the rule by which the grants of jobs exceed the device; the demands are those of the first job first."""
    demand, *others = demands
    return Rule(
        kind=RuleKind.GRANT,
        job_id=job_id,
        partner_id=partner_id,
        demand=demand,
        partner_demand=_together(others) if others else None,
        needed_granules=memory.granules_for(demand),
        partner_needed_granules=sum(map(memory.granules_for, others)) if others else None,
        capacity_granules=memory.granules,
        granule_bytes=memory.granule_bytes,
        device_memory_bytes=memory.memory_bytes,
        oversubscription_ratio=memory.oversubscription_ratio,
    )
