"""Parts of a snapshot: the independent subproblems of its pools, their sizes, and the one in which a job was decided.

The planner counts interchangeable jobs, residents and devices instead of planning each, so the cost of a decision grows
with the number of distinct ones.

A job that may use pools A and B joins both into one subproblem; pools that no chain of jobs connects are independent.
Solving each subproblem to its optimum, level by level, gives the optimum of the whole snapshot, and no cost of a job on
a device of another subproblem is ever computed. Law: every job and every device is in exactly one subproblem.

In the subproblem in which a job was decided jobs of other sizes, promised jobs and migrating residents keep their
devices: a decision is made around promises, and migrations are planned after the starts (`decide`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.costs.candidates import JobKeys, company_lengths
from interfere.policy.costs.objectives import objective_of
from interfere.policy.device_class import device_facts
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.runtime import start_weights
from interfere.records import Action, ActionKind, Job, Plan, RuleKind, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSize:
    """The numbers of distinct pending jobs, distinct residents without a neighbour and empty device classes."""

    jobs: int  # classes of pending jobs
    seats: int  # classes of residents without a neighbour
    device_classes: int  # classes of empty devices

    @property
    def cells(self) -> int:
        """Return how many costs of pairs and of seats beside residents have to be computed."""
        return self.jobs * self.jobs * self.device_classes + self.jobs * self.seats


def problem_size(
    snapshot: Snapshot, max_classes_of_windows: int, custom_rules: Sequence[SharingRule] = ()
) -> ProblemSize:
    """Return the problem size; sets of windows per kind of empty device count up to `max_classes_of_windows` + 1."""
    snapshot = company_lengths(snapshot, custom_rules=custom_rules).snapshot
    keys = JobKeys(snapshot, custom_rules=custom_rules)
    weights = start_weights(snapshot.pending, snapshot.now_s, snapshot.limits.timing.ageing_s).tolist()
    jobs = {(job.gpus, weight, keys.of(job)) for job, weight in zip(snapshot.pending, weights, strict=True)}
    empty: dict[object, set[object]] = {}
    seats = set()
    for device in snapshot.devices:
        if len(device.residents) > 1:
            continue
        kind = device_facts(device)
        if not device.residents:
            empty.setdefault(kind, set()).add(device.windows)
        else:
            seats.add((kind, device.windows, keys.of(device.residents[0])))
    return ProblemSize(
        jobs=len(jobs),
        seats=len(seats),
        device_classes=sum(min(len(windows), max_classes_of_windows + 1) for windows in empty.values()),
    )


def independent_parts(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """Return the independent subproblems in the order of their devices, or the snapshot itself where it cannot be
    split.

    A device limit, a min-max objective, or a job without pools prevents a split.
    """
    objective = objective_of(snapshot)
    whole = snapshot.limits.max_devices is not None or objective.is_min_max
    if whole or not all(job.pools for job in snapshot.pending):
        return (snapshot,)
    part_of = _joined_pools(snapshot.pending, tuple(dict.fromkeys(device.pool for device in snapshot.devices)))
    numbers = tuple(dict.fromkeys(part_of.values()))
    if len(numbers) < 2:
        return (snapshot,)
    # A job whose pools have no device waits in any part.
    part_of_job = {
        job.id: next((part_of[pool] for pool in job.pools if pool in part_of), numbers[0]) for job in snapshot.pending
    }
    parts = (
        replace(
            snapshot,
            pending=tuple(job for job in snapshot.pending if part_of_job[job.id] == number),
            devices=tuple(device for device in snapshot.devices if part_of[device.pool] == number),
        )
        for number in numbers
    )
    return tuple(parts)


def _joined_pools(jobs: Sequence[Job], pools: Sequence[str]) -> dict[str, int]:
    """Return the subproblem number of each pool; two pools that one job may use get the same number."""
    part_of = {pool: number for number, pool in enumerate(pools)}
    for names in {job.pools for job in jobs}:
        numbers = {part_of[pool] for pool in names if pool in part_of}
        if len(numbers) > 1:
            least = min(numbers)
            part_of = {pool: least if number in numbers else number for pool, number in part_of.items()}
    return part_of


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
