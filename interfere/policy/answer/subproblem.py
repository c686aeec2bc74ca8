"""The subproblem of a decision in which one job was decided: with the jobs planned together with it, all else fixed.

Jobs of other sizes, jobs whose start had been promised before, and residents that move keep what they got: a decision
is made around promises, and moves come after the starts (`decide`).
"""

import math
from collections.abc import Mapping

from interfere.policy.remaining import remaining_snapshot
from interfere.records import Action, ActionKind, Plan, RuleKind, Snapshot


def subproblem_of(snapshot: Snapshot, decided: Plan, job_id: str) -> Snapshot | None:
    """The subproblem: pending jobs of the job's size, and the devices that none of the others has.

    None where nothing was planned for the job: it runs already, its start was repeated, or no device was left for it.
    """
    size_of = {job.id: job.gpus for job in snapshot.pending}
    action_of = {action.job_id: action for action in decided.actions}
    if job_id not in size_of or job_id not in action_of:
        return None
    if is_repeated(action_of[job_id], snapshot) or _is_left_out(action_of[job_id]):
        return None
    # Take out the jobs that were decided apart, with their devices, and the devices of residents that move or end.
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
    """Was a start promised by an earlier decision? Promises of this decision expire a whole time to live from now."""
    by_s = action.promised_by_s
    return not math.isnan(by_s) and by_s < snapshot.now_s + snapshot.limits.timing.promise_ttl_s


def _is_left_out(action: Action) -> bool:
    """Was nothing planned for a pending job at all?"""
    held_back = action.rule is not None and action.rule.kind is RuleKind.ACCEPTED_DEADLINE
    return held_back or action.kind is ActionKind.DECLINE


def _changing_devices(action_of: Mapping[str, Action], snapshot: Snapshot) -> set[str]:
    """Devices that residents leave, those that they move to, and those where one is to end."""
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
