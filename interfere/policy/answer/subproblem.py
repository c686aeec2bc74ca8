"""The subproblem in which one job was decided: the jobs that were planned together with it, and their devices.

Jobs of other sizes, promised jobs and migrating residents keep their devices: a decision is made around promises,
and migrations are planned after the starts (`decide`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from interfere.records import Action, ActionKind, Plan, RuleKind, Snapshot


def subproblem_of(snapshot: Snapshot, decided: Plan, job_id: str) -> Snapshot | None:
    """Return the pending jobs of the same size as the job, and the devices that no other action uses.

    None where the job was not planned: it runs already, its promised start was repeated, or no device was left for it.
    """
    size_of = {job.id: job.gpus for job in snapshot.pending}
    action_of = {action.job_id: action for action in decided.actions}
    if job_id not in size_of or job_id not in action_of:
        return None
    if is_repeated(action_of[job_id], snapshot) or _is_left_out(action_of[job_id]):
        return None
    # Remove jobs that were decided separately, with their devices, and devices of residents that migrate or end.
    apart = [
        action
        for name, action in action_of.items()
        if name in size_of
        and (size_of[name] != size_of[job_id] or _is_left_out(action) or is_repeated(action, snapshot))
    ]
    taken = {name for action in apart for name in action.places} | _changing_devices(action_of, snapshot)
    remaining = remaining_snapshot(snapshot, {action.job_id for action in apart}, taken)
    return remaining if remaining.devices else None


def is_repeated(action: Action, snapshot: Snapshot) -> bool:
    """Return whether an action repeats a start promised by an earlier decision.

    A promise of the present decision expires a whole `promise_ttl_s` from now, an earlier promise sooner.
    """
    by_s = action.promised_by_s
    return not math.isnan(by_s) and by_s < snapshot.now_s + snapshot.limits.timing.promise_ttl_s


def _is_left_out(action: Action) -> bool:
    """Return whether a pending job was left out of planning: declined, or held back by an accepted deadline."""
    held_back = action.rule is not None and action.rule.kind is RuleKind.ACCEPTED_DEADLINE
    return held_back or action.kind is ActionKind.DECLINE


def _changing_devices(action_of: Mapping[str, Action], snapshot: Snapshot) -> set[str]:
    """Return the ids of devices that residents leave or migrate to, and of devices on which a resident is to end."""
    devices_of: dict[str, set[str]] = {}
    for device in snapshot.devices:
        for resident in device.residents:
            devices_of.setdefault(resident.id, set()).add(device.id)
    changing = {name for action in action_of.values() if action.kind is ActionKind.END for name in action.places}
    for job_id, current in devices_of.items():
        planned = set(action_of[job_id].places) if job_id in action_of else set()
        if planned and planned != current:
            changing |= current | planned
    return changing


def remaining_snapshot(snapshot: Snapshot, job_ids: Collection[str], device_ids: Collection[str]) -> Snapshot:
    """Return the snapshot without the given pending jobs and devices.

    The given devices that are empty count as used: `max_devices` of the remaining snapshot is lowered by their number.
    """
    limits = snapshot.limits
    if limits.max_devices is not None:
        taken = sum(device.id in device_ids and not device.residents for device in snapshot.devices)
        limits = replace(limits, max_devices=max(0, limits.max_devices - taken))
    return replace(
        snapshot,
        pending=tuple(job for job in snapshot.pending if job.id not in job_ids),
        devices=tuple(device for device in snapshot.devices if device.id not in device_ids),
        limits=limits,
    )
