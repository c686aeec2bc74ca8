"""Parts of a snapshot that have nothing to do with one another, because every job names the pools that it may use.

A job that may use pools A and B joins these two; jobs and devices of pools that no job joins, not even over others, are
parts of their own. What is best for each part is best for all, level by level, so nothing is lost by planning them one
by one; what is gained is that no cost of a job on a device of another part is ever computed.
Law: every job and every device is in exactly one part.
"""

from collections.abc import Sequence
from dataclasses import replace

from interfere.policy.costs.objectives import objective_of
from interfere.records import Job, Snapshot


def independent_parts(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """The parts, in the order of their devices; the snapshot itself where it is one.

    It is one too where a limit of devices, a largest cost or the order of submission concerns all jobs together.
    """
    objective = objective_of(snapshot)
    whole = snapshot.limits.max_devices is not None or objective.is_min_max or objective.prices_waiting
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
    """The number of each pool's part: pools that one job may use are joined."""
    part_of = {pool: number for number, pool in enumerate(pools)}
    for names in {job.pools for job in jobs}:
        numbers = {part_of[pool] for pool in names if pool in part_of}
        if len(numbers) > 1:
            least = min(numbers)
            part_of = {pool: least if number in numbers else number for pool, number in part_of.items()}
    return part_of
