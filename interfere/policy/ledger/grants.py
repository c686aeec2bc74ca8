"""Memory grants: the numbered slots of device memory that each running job and each planned start holds (`slots`).

Law 1: grants on a device never exceed its slots; a job that moves away from a device or stops holds nothing there.
Law 2: a job keeps its grant while it runs on the same devices, unless it requests another grant; a job that started
with unknown memory use has no grant, so that its past use never becomes its limit. Law 3: a job on a device with too
few granules left gets no grant, because earlier grants take precedence.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from interfere.policy.context import PlanningContext
from interfere.policy.ledger.promises import (
    PROMISED_KINDS,
    ReconciledPromises,
    ReleasedPromise,
    leaving_jobs,
    reconcile_promises,
)
from interfere.policy.ledger.slots import SlotAccount
from interfere.policy.rules.memory import device_slots
from interfere.policy.rules.text import format_demand
from interfere.records import Action, ActionKind, Device, DeviceSlots, Grant, Job, Promise, ScopeLedger, Snapshot
from interfere.reports.numbers import format_gib

# --- the grants of a ledger -------------------------------------------------------------------------------------------


def all_grants(ledger: ScopeLedger) -> tuple[Grant, ...]:
    """Return every grant of a scope: first of running jobs that stay, then of planned starts and moves."""
    leaving = leaving_jobs(ledger.promises)
    staying = tuple(grant for job_id, grant in running_grants(ledger).items() if job_id not in leaving)
    return (*staying, *(grant for grant in _planned_grants(ledger.promises) if not math.isnan(grant.bytes)))


def running_grants(ledger: ScopeLedger) -> dict[str, Grant]:
    """Return the grants of running jobs, by job id."""
    return {grant.job_id: grant for grant in ledger.grants if not math.isnan(grant.bytes)}


def slot_account(ledger: ScopeLedger) -> SlotAccount:
    """Return the account of the devices of a scope that grant memory, with all grants of the ledger taken."""
    account = SlotAccount(slots={slots.device_id: slots for slots in ledger.slots})
    account.take_all(all_grants(ledger))
    return account


def _planned_grants(promises: Iterable[Promise]) -> tuple[Grant, ...]:
    """Return the grants of planned starts and moves."""
    return tuple(
        Grant(
            job_id=promise.action.job_id,
            workload="",
            device_ids=promise.action.places,
            bytes=promise.action.grant_bytes,
            since_s=promise.since_s,
            planned=True,
            slots=promise.action.slots,
        )
        for promise in promises
        if promise.action.kind is not ActionKind.PREEMPT
    )


# --- the ledger against a snapshot ------------------------------------------------------------------------------------


def reconcile_ledger(ledger: ScopeLedger, context: PlanningContext) -> ReconciledPromises:
    """Return the reconciled promises of a ledger; a promise is void if its device has fewer slots than granted."""
    account = slot_account(replace(ledger, slots=tuple(_device_slots(context.snapshot, ledger).values())))
    void = [promise for promise in ledger.promises if account.overcommitted.intersection(promise.action.places)]
    void_jobs = {promise.action.job_id for promise in void}
    valid = [promise for promise in ledger.promises if promise.action.job_id not in void_jobs]
    reconciled = reconcile_promises(valid, context)
    reason = "its device grants less memory now"
    released = (*reconciled.released, *(ReleasedPromise(promise=promise, reason=reason) for promise in void))
    return replace(reconciled, released=released)


def renew_grants(context: PlanningContext, ledger: ScopeLedger, promises: ReconciledPromises) -> ScopeLedger:
    """Return the ledger with the kept promises, the grants of running jobs, and the devices that grant memory."""
    account = SlotAccount(slots=_device_slots(context.snapshot, ledger))
    running = _jobs_on_granting_devices(context.snapshot, account.slots)
    # 1. Planned starts and moves hold their slots.
    planned = {grant.job_id: grant for grant in account.take_all(_planned_grants(promises.kept))}
    # 2. Then running jobs that had a grant on their devices or were promised one: the oldest first. A grant of a job
    #    that leaves takes no slots now; it is valid again if the job stays after all.
    earlier = _earlier_grants(context.snapshot, ledger, promises, running)
    by_age = sorted(earlier, key=lambda grant: (grant.since_s, grant.job_id))
    leaving = {grant.job_id: grant for grant in reversed(by_age) if grant.job_id in promises.leaving_jobs}
    staying = {grant.job_id: grant for grant in reversed(by_age) if grant.job_id not in leaving}
    grants = leaving | {grant.job_id: grant for grant in account.take_all(reversed(staying.values()))}
    # 3. Then jobs that request another grant, and jobs that this planner did not start.
    present = sorted(running.values(), key=lambda entry: (entry[0].id not in grants, _age_key(entry[0], context)))
    for job, devices in present:
        if job.id not in promises.leaving_jobs:
            _grant_wanted(job, devices, grants, account, context)
    return replace(
        ledger,
        now_s=max(context.now_s, ledger.now_s),
        promises=tuple(_with_slots(promise, planned.get(promise.action.job_id)) for promise in promises.kept),
        grants=tuple(grants.values()),
        slots=tuple(account.slots.values()),
    )


def _with_slots(promise: Promise, grant: Grant | None) -> Promise:
    """Return a promise with the slots of its grant; a promise of an older version has none yet."""
    if grant is None or grant.slots == promise.action.slots:
        return promise
    return replace(promise, action=replace(promise.action, slots=grant.slots))


def _grant_wanted(
    job: Job, devices: Sequence[Device], grants: dict[str, Grant], account: SlotAccount, context: PlanningContext
) -> None:
    """Set the grant of a running job to the requested one, if the free slots suffice."""
    current, wanted = grants.get(job.id), _wanted_grant(job, devices, account.slots, context)
    if current is not None:
        if math.isnan(job.grant_bytes) or current.bytes == wanted.bytes:
            return
        account.give_back(current)
        wanted = replace(wanted, slots=current.slots)
    taken = account.take(wanted) or (current and account.take(current))
    if taken is not None:
        grants[job.id] = taken


def with_running_grants(snapshot: Snapshot, ledger: ScopeLedger) -> Snapshot:
    """Return the snapshot in which every resident requests its granted memory."""
    grants = running_grants(ledger)
    if not grants:
        return snapshot

    def granted(job: Job, device: Device) -> Job:
        grant = grants.get(job.id)
        is_granted_here = grant is not None and device.id in grant.device_ids
        return replace(job, grant_bytes=grant.bytes) if grant is not None and is_granted_here else job

    devices = tuple(
        replace(device, residents=tuple(granted(job, device) for job in device.residents))
        for device in snapshot.devices
    )
    return replace(snapshot, devices=devices)


def with_grants(actions: Sequence[Action], context: PlanningContext, ledger: ScopeLedger) -> tuple[Action, ...]:
    """Return the actions with a memory grant on each start and move onto a device that grants memory.

    `ledger`: with renewed grants. Who moves or is stopped by an action frees its slots before any other takes them.
    """
    account, grants = slot_account(ledger), {grant.job_id: grant for grant in all_grants(ledger)}
    for action in actions:
        if action.kind in (ActionKind.MOVE, ActionKind.PREEMPT) and action.job_id in grants:
            account.give_back(grants[action.job_id])
    return tuple(_with_grant(action, context, account) for action in actions)


def _with_grant(action: Action, context: PlanningContext, account: SlotAccount) -> Action:
    device = context.devices.get(action.device_id)
    slots = device_slots(device) if device is not None else None
    if device is None or slots is None or action.kind not in PROMISED_KINDS or action.kind is ActionKind.PREEMPT:
        return action
    demand = context.demand(context.jobs[action.job_id], context.device_class(device))
    if math.isnan(demand.needed_bytes):
        return replace(action, reason=f"{action.reason}; no grant: its memory demand is unknown")
    granules = slots.needs(demand.needed_bytes)
    grant = Grant(
        job_id=action.job_id, workload="", device_ids=action.places, bytes=granules * slots.granule_bytes, planned=True
    )
    taken = account.take(grant)
    if taken is None:
        return replace(action, reason=f"{action.reason}; no grant: too few slots are free")
    reason = f"granted {format_gib(grant.bytes)} ({granules} granules) for {format_demand(demand)}"
    return replace(action, grant_bytes=grant.bytes, slots=taken.slots, reason=f"{action.reason}; {reason}")


def _device_slots(snapshot: Snapshot, ledger: ScopeLedger) -> dict[str, DeviceSlots]:
    """Return the devices that grant memory, by id; the ledger adds those missing from a partial snapshot."""
    seen = {device.id for device in snapshot.devices}
    unseen = {slots.device_id: slots for slots in ledger.slots if snapshot.partial and slots.device_id not in seen}
    return unseen | {slots.device_id: slots for slots in map(device_slots, snapshot.devices) if slots is not None}


def _jobs_on_granting_devices(
    snapshot: Snapshot, slots: Mapping[str, DeviceSlots]
) -> dict[str, tuple[Job, list[Device]]]:
    """Return the running jobs on devices that grant memory, by id, each with these devices."""
    running: dict[str, tuple[Job, list[Device]]] = {}
    for device in snapshot.devices:
        for job in device.residents if device.id in slots else ():
            running.setdefault(job.id, (job, []))[1].append(device)
    return running


def _earlier_grants(
    snapshot: Snapshot,
    ledger: ScopeLedger,
    promises: ReconciledPromises,
    running: Mapping[str, tuple[Job, list[Device]]],
) -> list[Grant]:
    """Return the earlier grants of jobs that still run on the granted devices, and the grants of fulfilled promises.

    A job missing from a partial snapshot keeps its grant if all its devices are missing too, because a listed device
    lists all its residents.
    """
    seen = {device.id for device in snapshot.devices}
    earlier = []
    for grant in ledger.grants:
        job, devices = running.get(grant.job_id, (None, []))
        expected_devices = set(grant.device_ids) & seen if snapshot.partial else set(grant.device_ids)
        devices_match = {device.id for device in devices} == expected_devices
        still_runs = job is not None and job.workload == grant.workload and devices_match
        may_run_unseen = job is None and snapshot.partial and not expected_devices
        if still_runs or may_run_unseen:
            earlier.append(grant)
    for grant in _planned_grants(promises.fulfilled):
        job, _ = running.get(grant.job_id, (None, []))
        if job is not None:
            earlier.append(replace(grant, workload=job.workload, planned=False))
    return earlier


def _age_key(job: Job, context: PlanningContext) -> tuple[float, str]:
    """Return the sort key of running jobs by age, oldest first; a job of unknown age counts as new."""
    return (context.now_s if math.isnan(job.since_s) else job.since_s), job.id


def _wanted_grant(
    job: Job, devices: Sequence[Device], slots: Mapping[str, DeviceSlots], context: PlanningContext
) -> Grant:
    """Return the grant for the memory demand of a running job; `bytes` is NaN where the demand is unknown."""
    sizes = [
        slots[device.id].needs(demand.needed_bytes) * slots[device.id].granule_bytes
        for device in devices
        if not math.isnan((demand := context.demand(job, context.device_class(device))).needed_bytes)
    ]
    return Grant(
        job_id=job.id,
        workload=job.workload,
        device_ids=tuple(device.id for device in devices),
        bytes=max(sizes, default=math.nan),
        since_s=context.now_s,
    )
