"""Reserves devices for the job that has waited longest, so that these devices drain until the job can start.

Weights that grow with waiting time decide which job starts first. They do not help a job that may share a device with
no resident, or a gang that needs many empty devices: other jobs take each free seat at once, and no device ever drains.
Once a job's wait counts (`rules.runtime.AGEING_BEGINS`), the oldest such job of the highest priority gets the devices
of one class that have the fewest residents; no new job joins them. Only one job at a time has a reservation, and none
is made while a job with a deadline waits, because that job may need any device.
Law: the choice stays the same while the devices drain, because unreserved devices are filled again.
"""

import math
from dataclasses import dataclass

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import AGEING_BEGINS
from interfere.records import Device, Job, ObjectiveKind, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A job and the devices that accept no other job until this job can start."""

    job_id: str
    device_ids: frozenset[str]


def find_reservation(context: PlanningContext, plan: Plan) -> Reservation | None:
    """Return the devices to keep free for a job that the plan leaves waiting; None where no job has waited too long."""
    job = _longest_waiting(context, plan)
    if job is None:
        return None
    choices = _devices_by_class(job, context)
    if not choices or not all(any(device.residents for device in chosen) for chosen in choices):
        return None  # it may run nowhere, or enough devices are empty
    fewest = min(choices, key=lambda chosen: sum(len(device.residents) for device in chosen))
    return Reservation(job_id=job.id, device_ids=frozenset(device.id for device in fewest))


def _longest_waiting(context: PlanningContext, plan: Plan) -> Job | None:
    """Return the oldest waiting job of the highest priority if it has waited too long, else None."""
    ageing_s = context.limits.timing.ageing_s
    if ageing_s == 0 or _prices_waiting(context):
        return None
    if any(not math.isnan(job.deadline_s) for job in context.snapshot.pending):
        return None
    started = {action.job_id for action in plan.actions if action.places}
    waiting = [job for job in context.snapshot.pending if job.id not in started]
    highest = max((job.priority for job in waiting), default=0)
    too_long = [job for job in waiting if job.priority == highest and job.elapsed_s >= AGEING_BEGINS * ageing_s]
    return max(too_long, key=lambda job: job.elapsed_s, default=None)


def _prices_waiting(context: PlanningContext) -> bool:
    """Whether the objective itself charges waiting time; starvation is then prevented by the order of submission."""
    snapshot = context.snapshot
    is_named = context.custom_objective is None and not snapshot.objective_terms
    return is_named and snapshot.objective is ObjectiveKind.COMPLETION_TIME


def _devices_by_class(job: Job, context: PlanningContext) -> list[list[Device]]:
    """Return, for each class on which the job may run alone, as many devices as it needs, fewest residents first."""
    of_class: dict[DeviceClass, list[Device]] = {}
    for device in context.snapshot.devices:
        of_class.setdefault(context.device_class(device), []).append(device)
    choices = []
    for device_class, devices in of_class.items():
        times = context.relative_times_on(device_class.type, [job])
        if len(devices) < job.gpus or JobsOnClass.of([job], device_class, context, times, timed=True).solo_rule(0):
            continue
        devices.sort(key=lambda device: len(device.residents))  # stable: in the order of the snapshot
        choices.append(devices[: job.gpus])
    return choices
