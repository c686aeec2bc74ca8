"""How large a snapshot's placement problem is, and the independent subproblems into which its pools split it.

The planner counts interchangeable jobs, residents and devices instead of planning each, so the cost of a decision grows
with the number of distinct ones.

A job that may use pools A and B joins both into one subproblem; pools that no chain of jobs connects are independent.
Solving each subproblem to its optimum, level by level, gives the optimum of the whole snapshot, and no cost of a job on
a device of another subproblem is ever computed. Law: every job and every device is in exactly one subproblem.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from interfere.policy.costs.job_classes import JobKeys, company_lengths
from interfere.policy.costs.objectives import objective_of
from interfere.policy.device_class import device_facts
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.runtime import start_weights
from interfere.records import Job, Snapshot


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
