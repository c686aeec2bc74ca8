"""Who holds how much memory: grants of jobs that run and of planned starts, in whole granules of their devices.

Law 1: on no device grants come to more granules than it has; who leaves, to move or to stop, holds nothing where it
leaves. Law 2: a job keeps its grant for as long as it runs where it was granted, and asks for no other; who came when
nobody knew what it needs keeps none, so that it is never held to what it has used so far. Law 3: who runs where there
is not enough left holds no grant: others were granted before. Pure: the clock is the snapshot's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.guarantees import is_deadline
from interfere.policy.device_class import DeviceClass
from interfere.policy.ledger.promises import PROMISED, Reconciled, Release, reconcile
from interfere.policy.rules.memory import device_slots
from interfere.policy.rules.text import format_bytes, format_demand
from interfere.records import Action, ActionKind, Device, DeviceSlots, Grant, Job, Promise, ScopeLedger, Snapshot

SHRUNK = "its device hands out less memory now"


@dataclass(slots=True, kw_only=True)
class Account:
    """Granules of each device that hands out memory, and how many of them are taken."""

    slots: Mapping[str, DeviceSlots]
    taken: dict[str, int] = field(default_factory=dict)

    def fits(self, grant: Grant) -> bool:
        """Is there enough left of each of its devices?"""
        return all(self._after(name, grant) <= self.slots[name].granules for name in self._places(grant))

    def take(self, grant: Grant, sign: int = 1) -> None:
        """Take its granules, or give them back (-1)."""
        for name in self._places(grant):
            self.taken[name] = self._after(name, grant, sign)

    def over(self) -> set[str]:
        """Devices with more taken than there is."""
        return {name for name, taken in self.taken.items() if taken > self.slots[name].granules}

    def _after(self, name: str, grant: Grant, sign: int = 1) -> int:
        return self.taken.get(name, 0) + sign * self.slots[name].needs(grant.bytes)

    def _places(self, grant: Grant) -> list[str]:
        return [] if math.isnan(grant.bytes) else [name for name in grant.device_ids if name in self.slots]


# --- what holds now ---------------------------------------------------------------------------------------------------


def holdings(ledger: ScopeLedger) -> tuple[Grant, ...]:
    """Every grant of a scope: of who runs and stays, then of planned starts and moves."""
    leaving = {promise.action.job_id for promise in ledger.promises if promise.from_device_id}
    staying = tuple(grant for name, grant in held_by(ledger).items() if name not in leaving)
    return (*staying, *(grant for grant in _planned(ledger.promises) if not math.isnan(grant.bytes)))


def held_by(ledger: ScopeLedger) -> dict[str, Grant]:
    """The grants of jobs that run."""
    return {grant.job_id: grant for grant in ledger.grants if not math.isnan(grant.bytes)}


def account_of(ledger: ScopeLedger) -> Account:
    """The devices of a scope, and what is taken of each."""
    account = Account(slots={one.device_id: one for one in ledger.slots})
    for grant in holdings(ledger):
        account.take(grant)
    return account


def _planned(promises: Iterable[Promise]) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            job_id=promise.action.job_id,
            workload="",
            device_ids=promise.action.places,
            bytes=promise.action.grant_bytes,
            since_s=promise.since_s,
            planned=True,
        )
        for promise in promises
        if promise.action.kind is not ActionKind.PREEMPT
    )


# --- what holds after a snapshot --------------------------------------------------------------------------------------


def reconciled(ledger: ScopeLedger, snapshot: Snapshot) -> Reconciled:
    """What became of planned starts and moves. Those on a device that hands out less than it has granted are over."""
    account = Account(slots=_slots(snapshot, ledger))
    for grant in holdings(ledger):
        account.take(grant)
    over = account.over()
    starts = [promise for promise in ledger.promises if not is_deadline(promise)]
    stale = [promise for promise in starts if over.intersection(promise.action.places)]
    gone = {promise.action.job_id for promise in stale}
    found = reconcile([promise for promise in starts if promise.action.job_id not in gone], snapshot)
    return replace(found, released=(*found.released, *(Release(promise=one, reason=SHRUNK) for one in stale)))


def regranted(context: PlanningContext, ledger: ScopeLedger, found: Reconciled) -> ScopeLedger:
    """The ledger with the grants of all that run, and the devices that grant them.

    First who held a grant where it runs, or was promised one, the oldest first; then who asks for another one; then
    whoever was started by others.
    """
    snapshot = context.snapshot
    account = Account(slots=_slots(snapshot, ledger))
    for grant in _planned(found.kept):
        account.take(grant)
    leaving = {promise.action.job_id for promise in found.kept if promise.from_device_id}
    runs = _running(snapshot, account.slots)
    held: dict[str, Grant] = {}
    for grant in sorted(_earlier(snapshot, ledger, found, runs), key=lambda one: (one.since_s, one.job_id)):
        if grant.job_id in leaving:
            held[grant.job_id] = grant  # its own again should it stay after all; meanwhile it takes nothing
        elif grant.job_id not in held and account.fits(grant):
            account.take(grant)
            held[grant.job_id] = grant
    new = sorted(runs.values(), key=lambda one: (one[0].id not in held, _since_s(one[0], snapshot), one[0].id))
    for job, devices in new:
        wanted = _wanted(job, devices, account.slots, context)
        had = held.get(job.id)
        if job.id in leaving or (had and (math.isnan(job.grant_bytes) or had.bytes == wanted.bytes)):
            continue
        if had:
            account.take(had, -1)
        if account.fits(wanted):
            held[job.id] = had = wanted
        if had:
            account.take(had)
    return replace(
        ledger,
        now_s=snapshot.now_s,
        promises=found.kept,
        grants=tuple(held.values()),
        slots=tuple(account.slots.values()),
    )


def with_held(snapshot: Snapshot, held: Mapping[str, Grant]) -> Snapshot:
    """The snapshot in which who runs asks for what it holds."""
    if not held:
        return snapshot

    def holds(job: Job, device: Device) -> Job:
        grant = held.get(job.id)
        mine = grant is not None and device.id in grant.device_ids
        return replace(job, grant_bytes=grant.bytes) if grant is not None and mine else job

    devices = tuple(
        replace(device, residents=tuple(holds(job, device) for job in device.residents)) for device in snapshot.devices
    )
    return replace(snapshot, devices=devices)


def granted(actions: Sequence[Action], context: PlanningContext) -> tuple[Action, ...]:
    """Starts and moves with the grants that they come with."""
    jobs, devices = context.jobs, context.devices
    told = []
    for action in actions:
        slots = device_slots(devices[action.device_id]) if action.device_id in devices else None
        if slots is None or action.kind not in PROMISED or action.kind is ActionKind.PREEMPT:
            told.append(action)
            continue
        needed = context.demand(jobs[action.job_id], DeviceClass.of(devices[action.device_id]))
        if math.isnan(needed.needed_bytes):
            told.append(replace(action, reason=f"{action.reason}; no grant: nobody knows its memory"))
            continue
        count = slots.needs(needed.needed_bytes)
        size = count * slots.granule_bytes
        why = f"granted {format_bytes(size)} ({count} granules) for {format_demand(needed)}"
        told.append(replace(action, grant_bytes=size, reason=f"{action.reason}; {why}"))
    return tuple(told)


def _slots(snapshot: Snapshot, ledger: ScopeLedger) -> dict[str, DeviceSlots]:
    """Of the devices that are there; those that a partial snapshot leaves out may still be."""
    seen = {device.id for device in snapshot.devices}
    found = {one.device_id: one for one in ledger.slots if snapshot.partial and one.device_id not in seen}
    return found | {one.device_id: one for one in map(device_slots, snapshot.devices) if one is not None}


def _running(snapshot: Snapshot, slots: Mapping[str, DeviceSlots]) -> dict[str, tuple[Job, list[Device]]]:
    """Who runs on devices that hand out memory, and on which."""
    runs: dict[str, tuple[Job, list[Device]]] = {}
    for device in snapshot.devices:
        for job in device.residents if device.id in slots else ():
            runs.setdefault(job.id, (job, []))[1].append(device)
    return runs


def _earlier(
    snapshot: Snapshot, ledger: ScopeLedger, found: Reconciled, runs: Mapping[str, tuple[Job, list[Device]]]
) -> list[Grant]:
    """Grants that were there or promised, of jobs that run there now; and of jobs that a partial snapshot leaves out
    with all their devices: a device that it lists tells all who are on it."""
    seen = {device.id for device in snapshot.devices}
    earlier = []
    for grant in ledger.grants:
        job, devices = runs.get(grant.job_id, (None, []))
        here, there = {device.id for device in devices}, set(grant.device_ids)
        expected = there & seen if snapshot.partial else there
        stays = job is not None and job.workload == grant.workload and here == expected
        if stays or (job is None and snapshot.partial and not expected):
            earlier.append(grant)
    for grant in _planned(found.fulfilled):
        job, _ = runs.get(grant.job_id, (None, []))
        if job is not None:
            earlier.append(replace(grant, workload=job.workload, planned=False))
    return earlier


def _since_s(job: Job, snapshot: Snapshot) -> float:
    return snapshot.now_s if math.isnan(job.since_s) else job.since_s


def _wanted(job: Job, devices: Sequence[Device], slots: Mapping[str, DeviceSlots], context: PlanningContext) -> Grant:
    """A new grant, from now on."""
    sizes = [
        slots[device.id].needs(needed.needed_bytes) * slots[device.id].granule_bytes
        for device in devices
        if not math.isnan((needed := context.demand(job, DeviceClass.of(device))).needed_bytes)
    ]
    return Grant(
        job_id=job.id,
        workload=job.workload,
        device_ids=tuple(device.id for device in devices),
        bytes=max(sizes, default=math.nan),
        since_s=context.now_s,
    )
