"""The subproblem that remains after some jobs and devices are decided."""

from collections.abc import Collection
from dataclasses import replace

from interfere.records import Snapshot


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
