"""The actions of jobs that start alone or beside another job, with the cost and the rule of each start."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from interfere.policy.context import PlanningContext
from interfere.policy.rules.predictability import unprofiled_rule
from interfere.policy.rules.slowdown_caps import latency_rule
from interfere.policy.rules.text import render
from interfere.records import NAN, Action, ActionKind, Device, Job, Pairing, Rule, RuleKind
from interfere.sharing_modes import DEFAULT_MODE, OptionalSharingMode


def start_alone(
    job: Job,
    devices: Sequence[Device],
    context: PlanningContext,
    *,
    cost: float | None = None,
    rule: Rule | None = None,
) -> Action:
    """Return the action that starts a job alone.

    Defaults: `cost` is the job's cost in the objective, `rule` says that a device is free.
    """
    device = devices[0]
    if rule is None:
        profile = context.profile(job, device.type)
        by_p99 = context.latency_predictor is not None
        rule = latency_rule(job, profile, by_p99=by_p99) or Rule(kind=RuleKind.DEVICE_FREE, job_id=job.id)
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
        cost=job_objective_cost(job, 1.0, device.type, context) if cost is None else cost,
        reason=render(rule),
        rule=rule,
    )


def start_beside(
    job: Job,
    devices: Sequence[Device],
    partner: Job,
    slowdowns: tuple[float, float],
    context: PlanningContext,
    *,
    interval: tuple[float, float] = (NAN, NAN),
) -> Action:
    """Return the action that starts a job beside a partner that starts or runs on the same devices.

    `slowdowns`: of the job and of its partner; `interval`: (lower, upper) slowdown of the job. For a resident partner
    only the added cost counts.
    """
    slowdown, partner_slowdown = slowdowns
    device_type = devices[0].type
    cost = job_objective_cost(job, slowdown, device_type, context)
    cost += job_objective_cost(partner, partner_slowdown, device_type, context)
    if partner.id in context.residents:
        cost -= job_objective_cost(partner, 1.0, device_type, context)
    return start_shared(job, devices, [partner], slowdown, [partner_slowdown], cost=cost, interval=interval)


def start_shared(
    job: Job,
    devices: Sequence[Device],
    partners: Sequence[Job],
    slowdown: float,
    partner_slowdowns: Sequence[float],
    *,
    cost: float,
    interval: tuple[float, float],
    mode: OptionalSharingMode = "",
) -> Action:
    """Return the action that starts a job beside partners, a resident first; `cost`: of the group."""
    partner, several = partners[0], len(partners) > 1
    rule = Rule(
        kind=RuleKind.LEAST_COST,
        job_id=job.id,
        partner_id=partner.id,
        partner_workload=partner.workload,
        slowdown=slowdown,
        partner_slowdown=partner_slowdowns[0],
    )
    return Action(
        kind=ActionKind.START_SHARED,
        job_id=job.id,
        device_id=devices[0].id,
        device_ids=gang_device_ids(devices),
        partner_id=partner.id,
        slowdown=slowdown,
        slowdown_lower=interval[0],
        slowdown_upper=interval[1],
        partner_slowdown=partner_slowdowns[0],
        partner_ids=tuple(other.id for other in partners) if several else (),
        partner_slowdowns=tuple(partner_slowdowns) if several else (),
        cost=cost,
        mode=mode,
        reason=render(rule),
        rule=rule,
    )


def job_objective_cost(job: Job, slowdown: float, device_type: str, context: PlanningContext) -> float:
    """Return the cost of one job in the objective at a slowdown on a device type.

    The relative time τ counts as 1 on a device type that is not in scope.
    """
    objective, types = context.objective, context.device_types
    times = context.relative_times([job])[0]
    stretch = slowdown * (times[types.index(device_type)] if device_type in types else 1.0)
    return float(objective.constant([job])[0] + objective.rate([job])[0] * stretch)


def gang_device_ids(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the ids of all devices of a gang; empty for a job on one device."""
    return tuple(device.id for device in devices) if len(devices) > 1 else ()


def group_costs(starts: Iterable[Action]) -> dict[frozenset[str], float]:
    """Return the cost of each group of jobs that share devices, by the set of their job ids."""
    return {frozenset((action.job_id, *action.partners)): action.cost for action in starts}


def pairings(starts: Iterable[Action]) -> tuple[Pairing, ...]:
    """Return the distinct pairs among the starts."""
    pairs = {
        frozenset((action.job_id, action.partner_id)): Pairing(
            job_id=action.job_id, partner_id=action.partner_id, device_id=action.device_id, weight=action.cost
        )
        for action in starts
        if len(action.partners) == 1
    }
    return tuple(pairs.values())


def tell_assumed_modes(actions: Iterable[Action], context: PlanningContext) -> tuple[Action, ...]:
    """Return the actions with the chosen or assumed sharing mode of the device named in each shared start.

    Slowdowns are predicted for that mode. An assumed mode of timeslice is not named.
    """
    return tuple(_with_assumed_mode(action, context) for action in actions)


def _with_assumed_mode(action: Action, context: PlanningContext) -> Action:
    if action.mode:
        rule = None if action.rule is None else replace(action.rule, sharing_mode=action.mode)
        return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {action.mode}, chosen for its device")
    mode = context.assumed_modes.get(action.device_id, DEFAULT_MODE)
    if mode is DEFAULT_MODE or action.kind is not ActionKind.START_SHARED:
        return action
    rule = None if action.rule is None else replace(action.rule, sharing_mode=mode)
    return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {mode}, for its device names none")
