"""The obligations of a scope: promises of planned starts and moves, accepted deadlines, and memory grants.

A promise reserves the devices of an action that the scheduler may be carrying out; no other job gets them until the
promise ends.
"""

import math

from interfere.records.checks import NAN
from interfere.records.plans import Action, SlotRange
from interfere.records.record import record


@record
class Promise:
    """A planned start, move or preemption, kept for its job until `action.promised_by_s`."""

    action: Action
    decision_ids: tuple[str, ...]  # the decision that made the promise, then the decisions that repeated it
    from_device_id: str = ""  # the device that a resident leaves; empty for a start
    since_s: float = NAN  # time of the decision that made it; the grant of its action holds since then

    @property
    def places(self) -> tuple[str, ...]:
        """The ids of all devices that the promise reserves, including the device that a resident leaves."""
        return (*self.action.places, self.from_device_id) if self.from_device_id else self.action.places


@record
class AcceptedDeadline:
    """A deadline guarantee: no job of equal or lower priority starts where that would make this job miss it."""

    job_id: str
    deadline_s: float  # that was accepted, on the caller's clock; the job may move its own to a later time
    decision_ids: tuple[str, ...]  # the decision that accepted it


@record
class EndPromise:
    """The end that a job was promised when it was first seen; plans that keep all bounds go before others."""

    job_id: str
    latest_end_s: float  # on the caller's clock; never widened


@record
class Grant:
    """Memory that a job holds on each of its devices."""

    job_id: str
    workload: str
    device_ids: tuple[str, ...]
    bytes: float = NAN  # whole granules; NaN: no grant, because the job's memory was unknown when it came
    since_s: float = NAN  # on the caller's clock
    planned: bool = False  # whether the job is still to start on these devices
    slots: tuple[SlotRange, ...] | None = None  # that hold it, of each of its devices; absent before it has numbers


@record
class DeviceSlots:
    """The granules of memory that a device can grant: its slots, numbered from 0."""

    device_id: str
    device_type: str
    granules: int
    granule_bytes: float
    oversubscription_ratio: float  # as far as the host backs it
    host_reserve_bytes: float = NAN  # host memory reserved for what it grants beyond its own memory; NaN: none
    node: str | None = None  # whose memory that is

    def needs(self, memory_bytes: float) -> int:
        """Return the number of granules that hold this much memory."""
        return granules_for(memory_bytes, self.granule_bytes)


def granules_for(memory_bytes: float, granule_bytes: float) -> int:
    """Return the fewest whole granules, at least one, that hold this much memory. An excess of a millionth of a
    granule counts as rounding."""
    return max(1, math.ceil(memory_bytes / granule_bytes - 1e-6))


@record
class ScopeLedger:
    """The promises, accepted deadlines and memory grants of one scope.

    `revision` grows by one with every write; it is 0 before the first.
    """

    scope: str
    revision: int = 0
    now_s: float = 0.0  # the caller's clock at the last decision
    promises: tuple[Promise, ...] = ()
    accepted_deadlines: tuple[AcceptedDeadline, ...] = ()
    grants: tuple[Grant, ...] = ()  # of running jobs; a planned start holds the grant of its action
    slots: tuple[DeviceSlots, ...] = ()  # of the devices that grant memory
    end_promises: tuple[EndPromise, ...] = ()  # of jobs that wait or run
    planned_order: tuple[str, ...] = ()  # ids of waiting jobs in the order in which the last plan starts them


@record
class DeviceGrants(DeviceSlots):
    """The granules of memory of one device: how many there are, are granted, and are free."""

    granted: int
    free: int


@record
class GrantLine:
    """Memory granted to a job on one device, and how the job uses it."""

    job_id: str
    device_id: str
    granules: int
    bytes: float
    since_s: float  # on the caller's clock
    planned: bool = False  # the job has still to start there or to move there
    last_use_bytes: float = NAN  # in the last window since the grant
    # Windows since the grant that used more, among the newest that `interfere.serving.decisions` reads.
    times_exceeded: int = 0
    slots: tuple[SlotRange, ...] = ()  # of the device, that hold it


@record
class GrantTables:
    """The memory granted in one scope as of its last decision with a clock, at `now_s` (0 before the first)."""

    scope: str
    now_s: float
    devices: tuple[DeviceGrants, ...]
    grants: tuple[GrantLine, ...]
