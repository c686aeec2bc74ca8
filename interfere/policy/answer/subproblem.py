"""The part of a decision in which one job was decided: with the jobs planned together with it, all else as it was.

Jobs of other sizes, those whose start had been promised before, and residents that move keep what they got; a decision
is made size by size around promises, moves come after the starts (`scope`, `gangs`).
"""

import math
from collections.abc import Mapping

from interfere.policy.deadlines.guarantees import HELD_BACK
from interfere.policy.remaining import remaining_snapshot
from interfere.policy.solve.gangs import subproblem_of_size
from interfere.records import Action, ActionKind, Plan, Snapshot


def part_of(snapshot: Snapshot, decided: Plan, job_id: str) -> Snapshot | None:
    """That part as jobs on one device each, a gang's set being one. None where nothing was planned for the job: it runs
    already, its start was told again, or no device was left for it."""
    size = {job.id: job.gpus for job in snapshot.pending}
    told = {action.job_id: action for action in decided.actions}
    if job_id not in size or job_id not in told or told_again(told[job_id], snapshot):
        return None
    if _left_out(told[job_id]):
        return None
    others = [a for name, a in told.items() if name in size and _apart(a, size[name] != size[job_id], snapshot)]
    gone, places = {a.job_id for a in others}, {name for a in others for name in a.places} | _moving(told, snapshot)
    left = remaining_snapshot(snapshot, gone, places)
    sizes = {job.gpus for job in (*left.pending, *(r for device in left.devices for r in device.residents))}
    part = left if sizes == {1} else subproblem_of_size(left, size[job_id])[0]
    return part if part.devices else None


def _apart(action: Action, other_size: bool, snapshot: Snapshot) -> bool:
    """Was a pending job decided without the others?"""
    return other_size or _left_out(action) or told_again(action, snapshot)


def _left_out(action: Action) -> bool:
    """Was nothing planned for a pending job at all?"""
    return action.kind is ActionKind.DECLINE or action.reason.startswith(HELD_BACK)


def _moving(told: Mapping[str, Action], snapshot: Snapshot) -> set[str]:
    """Devices that residents leave, those that they move to, and those where one is to end."""
    here: dict[str, set[str]] = {}
    for device in snapshot.devices:
        for job in device.residents:
            here.setdefault(job.id, set()).add(device.id)
    moved = [(at, set(told[name].places)) for name, at in here.items() if name in told]
    ending = {name for action in told.values() if action.kind is ActionKind.END for name in action.places}
    return ending | {name for at, to in moved if to and to != at for name in at | to}


def told_again(action: Action, snapshot: Snapshot) -> bool:
    """Whether a start was promised by an earlier decision: those of this one expire a whole time to live from now."""
    by_s = action.promised_by_s
    return not math.isnan(by_s) and by_s < snapshot.now_s + snapshot.limits.timing.promise_ttl_s
