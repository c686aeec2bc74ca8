"""What is left to decide once some jobs have got their places."""

from collections.abc import Collection
from dataclasses import replace

from interfere.records import Snapshot


def rest_of(snapshot: Snapshot, jobs: Collection[str], places: Collection[str]) -> Snapshot:
    """Without these pending jobs and devices; the empty ones of these devices count against `max_devices`."""
    limits = snapshot.limits
    if limits.max_devices is not None:
        taken = sum(device.id in places and not device.residents for device in snapshot.devices)
        limits = replace(limits, max_devices=max(0, limits.max_devices - taken))
    return replace(
        snapshot,
        pending=tuple(job for job in snapshot.pending if job.id not in jobs),
        devices=tuple(device for device in snapshot.devices if device.id not in places),
        limits=limits,
    )
