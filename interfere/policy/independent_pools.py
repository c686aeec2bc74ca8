"""Splits a snapshot into independent subproblems by the pools that jobs may use.

A job that may use pools A and B joins both into one subproblem; pools that no chain of jobs connects are independent.
Solving each subproblem to its optimum, level by level, gives the optimum of the whole snapshot, and no cost of a job on
a device of another subproblem is ever computed.
Law: every job and every device is in exactly one subproblem.
"""

from collections.abc import Sequence
from dataclasses import replace

from interfere.policy.costs.objectives import objective_of
from interfere.records import Job, Snapshot


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
