"""The order in which a decision reads a snapshot, so that the order in which jobs and devices are sent says nothing.

Law: snapshots that differ only in the order of jobs, devices and residents give the same plan, except that a queue
whose jobs do not all tell when they were submitted (`elapsed_s`) is read in the order in which it was sent.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from interfere.records import Action, Device, Job, Snapshot


def in_canonical_order(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the pending jobs as they were submitted, and devices and residents by id."""
    pending = snapshot.pending
    if not any(math.isnan(job.elapsed_s) for job in pending):
        pending = tuple(sorted(pending, key=lambda job: (-job.elapsed_s, job.id)))
    devices = map(_with_sorted_residents, sorted(snapshot.devices, key=lambda device: device.id))
    return replace(snapshot, pending=pending, devices=tuple(devices))


def in_order_of(actions: Sequence[Action], pending: Sequence[Job]) -> tuple[Action, ...]:
    """Return the actions of pending jobs in the order in which the jobs were sent, then those of residents."""
    position = {job.id: k for k, job in enumerate(pending)}
    return tuple(sorted(actions, key=lambda action: position.get(action.job_id, len(position))))


def _with_sorted_residents(device: Device) -> Device:
    """Return the device with its residents by id."""
    names = [job.id for job in device.residents]
    if names == sorted(names):
        return device
    return replace(device, residents=tuple(sorted(device.residents, key=lambda job: job.id)))
