"""The action of a job that starts with its devices to itself, and the rule that tells why."""

from collections.abc import Sequence

from interfere.policy.context import PlanningContext
from interfere.policy.rules.predictability import unprofiled_rule
from interfere.policy.rules.slowdown_caps import latency_rule
from interfere.policy.rules.text import render
from interfere.records import Action, ActionKind, Device, Job, Rule, RuleKind


def start_alone(job: Job, devices: Sequence[Device], cost: float, context: PlanningContext) -> Action:
    """Start a job alone on these devices, at a cost."""
    device = devices[0]
    profile = context.profile(job, device.type)
    rule = latency_rule(job, profile) or Rule(kind=RuleKind.DEVICE_FREE, job_id=job.id)
    if profile is None:
        rule = unprofiled_rule(job, device.type)
    return Action(
        kind=ActionKind.START_ALONE,
        job_id=job.id,
        device_id=device.id,
        device_ids=gang_device_ids(devices),
        slowdown=1.0,
        slowdown_lower=1.0,
        slowdown_upper=1.0,
        cost=cost,
        reason=render(rule),
        rule=rule,
    )


def gang_device_ids(devices: Sequence[Device]) -> tuple[str, ...]:
    """All devices of a gang; none for a job on one device."""
    return tuple(device.id for device in devices) if len(devices) > 1 else ()
