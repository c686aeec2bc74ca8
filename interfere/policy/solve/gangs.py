"""Jobs that take several devices at once (gangs), decided size by size.

To the planner for one device, a set of g devices is one device, and a running gang without neighbour is a free seat.
Sizes compete for empty devices: they are decided one after another on what those before them leave, in several orders;
the order that starts the most weight is kept, at the smallest cost of these. With several sizes the bound assumes that
each size had every empty device to itself, so the plan is BOUNDED.
Law 1: a gang starts on exactly g devices of one class, all empty or all those of one gang of the same size.
Law 2: a set of devices spans no more nodes than it must (`device_sets`).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.answer.merge import all_waiting, merge_plans
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.remaining import remaining_snapshot
from interfere.policy.rules.runtime import start_weights
from interfere.policy.solve.planner import plan_single_device_jobs
from interfere.records import Action, ActionKind, Device, Plan, Rule, RuleKind, Snapshot, SolveStatus
from interfere.records.cluster import MIN_TIME_BUDGET_S

MAX_SIZES_PERMUTED = 3  # every order of so many sizes is tried: 6 orders; of more sizes three orders are


def plan_all_sizes(context: PlanningContext) -> Plan:
    """The plan for jobs of all sizes, for a snapshot that does not contradict itself."""
    snapshot = context.snapshot
    residents = [job for device in snapshot.devices for job in device.residents]
    if all(job.gpus == 1 for job in (*snapshot.pending, *residents)):
        return plan_single_device_jobs(context)
    # 1. The orders in which sizes are decided.
    orders = _size_orders(snapshot)
    sizes = orders[0]
    if not sizes:
        return all_waiting((), context)
    # 2. Each order gets an equal share of the time budget, and one share is left for the bounds.
    budget_s = snapshot.limits.timing.time_budget_s
    if len(sizes) > 1 and not math.isnan(budget_s):
        share_s = max(budget_s / ((len(orders) + 1) * len(sizes)), MIN_TIME_BUDGET_S)
        snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=share_s))
    context = context.subproblem(snapshot)
    # 3. The best order; the first of equals.
    plans_by_order = [_plan_in_order(order, context) for order in orders]
    best = min(plans_by_order, key=lambda plans: _rank_key(plans, context))
    # 4. A bound that holds for any order.
    if len(sizes) > 1:
        best = {size: _with_independent_bound(best[size], size, context) for size in best}
    return merge_plans(list(best.values()), context)


def _plan_in_order(order: Sequence[int], context: PlanningContext) -> dict[int, Plan]:
    """The plan of each size, on the devices that the sizes before it leave."""
    snapshot, plans = context.snapshot, dict[int, Plan]()
    for size in order:
        plans[size] = _plan_size(size, context.subproblem(snapshot))
        planned = {job.id for job in snapshot.pending if job.gpus == size}
        taken = {device_id for action in plans[size].actions for device_id in action.places}
        snapshot = remaining_snapshot(snapshot, planned, taken)
    return plans


def _size_orders(snapshot: Snapshot) -> list[tuple[int, ...]]:
    """Orders of the sizes that wait; first by the heaviest job of each, the larger size first at equal weight."""
    heaviest: dict[int, float] = {}
    weights = start_weights(snapshot.pending, snapshot.now_s, snapshot.limits.timing.ageing_s).tolist()
    for job, weight in zip(snapshot.pending, weights, strict=True):
        heaviest[job.gpus] = max(heaviest.get(job.gpus, 0.0), weight)
    by_weight = sorted(heaviest, key=lambda size: (-heaviest[size], -size))
    if len(by_weight) <= MAX_SIZES_PERMUTED:
        return list(itertools.permutations(by_weight))
    return list(dict.fromkeys([tuple(by_weight), tuple(sorted(by_weight, reverse=True)), tuple(sorted(by_weight))]))


def _rank_key(plans: Mapping[int, Plan], context: PlanningContext) -> tuple[float, float]:
    """Weight that waits, then the objective's value: smaller is better."""
    snapshot = context.snapshot
    weights = start_weights(snapshot.pending, snapshot.now_s, snapshot.limits.timing.ageing_s).tolist()
    weight_of = dict(zip((job.id for job in snapshot.pending), weights, strict=True))
    merged = merge_plans(list(plans.values()), context)
    waiting = sum(weight_of[action.job_id] for action in merged.actions if action.kind is ActionKind.WAIT)
    return round(waiting, 9), merged.objective_value


# --- sets of devices --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSet:
    """g devices of one class that a gang takes together, shown to the planner as one device."""

    device: Device
    device_ids: tuple[str, ...]

    @classmethod
    def of(cls, devices: tuple[Device, ...]) -> "DeviceSet":
        """The set under the name of its first device; its residents count as jobs on one device."""
        first = devices[0]
        residents = tuple(replace(job, gpus=1) for job in first.residents)
        whole = replace(
            first,
            residents=residents,
            price_per_hour=first.price_per_hour * len(devices),
            power_w=first.power_w * len(devices),
        )
        return cls(device=whole, device_ids=tuple(device.id for device in devices))


def device_sets(empty: Sequence[Device], size: int, max_sets: int) -> list[tuple[Device, ...]]:
    """At most `max_sets` sets of `size` of these devices, which are of one class.

    Each set spans as few nodes as possible: it takes the node with the fewest free devices that holds it whole; where
    none does, the nodes with the most free devices first, and then the node with the fewest that holds what is missing.
    """
    free_by_node: dict[str, list[Device]] = {}
    for device in empty:
        free_by_node.setdefault(device.node, []).append(device)
    sets = []
    for _ in range(min(max_sets, len(empty) // size)):
        members: list[Device] = []
        while len(members) < size:
            missing = size - len(members)
            sufficient = [node for node, free in free_by_node.items() if len(free) >= missing]
            if sufficient:
                node = min(sufficient, key=lambda name: len(free_by_node[name]))
            else:
                node = max(free_by_node, key=lambda name: len(free_by_node[name]))
            members += free_by_node[node][:missing]
            free_by_node[node] = free_by_node[node][missing:]
            if not free_by_node[node]:
                del free_by_node[node]
        sets.append(tuple(members))
    return sets


def _sets_for_size(snapshot: Snapshot, size: int, max_sets: int) -> dict[str, DeviceSet]:
    """Where jobs of a size may go, by the first device: sets of empty devices, then gangs that run without
    neighbour."""
    empty: dict[DeviceClass, list[Device]] = {}
    devices_of: dict[str, list[Device]] = {}  # of running gangs of this size
    with_neighbour: set[str] = set()
    for device in snapshot.devices:
        if not device.residents:
            empty.setdefault(DeviceClass.of(device, snapshot.now_s), []).append(device)
        for job in device.residents:
            if job.gpus == size:
                devices_of.setdefault(job.id, []).append(device)
                if len(device.residents) > 1:
                    with_neighbour.add(job.id)
    sets = [group for devices in empty.values() for group in device_sets(devices, size, max_sets)]
    for job_id, devices in devices_of.items():
        same_class = len({DeviceClass.of(device, snapshot.now_s) for device in devices}) == 1
        is_complete = len(devices) == size  # a partial snapshot may leave some out
        if job_id not in with_neighbour and same_class and is_complete:
            sets.append(tuple(devices))
    return {group[0].id: DeviceSet.of(group) for group in sets}


# --- one size ---------------------------------------------------------------------------------------------------------


def subproblem_of_size(snapshot: Snapshot, size: int) -> tuple[Snapshot, Mapping[str, DeviceSet]]:
    """The pending jobs of one size as jobs on one device each, and the sets of devices where they may go."""
    jobs = tuple(replace(job, gpus=1) for job in snapshot.pending if job.gpus == size)
    sets = _sets_for_size(snapshot, size, len(jobs))
    limits = snapshot.limits
    if limits.max_devices is not None:
        limits = replace(limits, max_devices=limits.max_devices // size)
    if limits.most_shared_gpus is not None and size > limits.most_shared_gpus:
        limits = replace(limits, allowed=limits.allowed - {ActionKind.START_SHARED})
    devices = tuple(device_set.device for device_set in sets.values())
    return replace(snapshot, pending=jobs, devices=devices, limits=limits), sets


def _plan_size(size: int, context: PlanningContext) -> Plan:
    """The plan for the jobs of one size, its actions on sets of devices."""
    subproblem, sets = subproblem_of_size(context.snapshot, size)
    if not sets:
        gang_rule = Rule(kind=RuleKind.GANG, gpus=size)
        rule = gang_rule if size > 1 else Rule(kind=RuleKind.NO_FREE_SEAT)
        return all_waiting([job.id for job in subproblem.pending], context, rule)
    plan = plan_single_device_jobs(context.subproblem(subproblem))
    if size == 1:
        return plan
    best = _compact_sets(plan, sets, context.now_s)
    return replace(
        plan,
        actions=tuple(_on_device_set(action, best, sets, size) for action in plan.actions),
        pairs=tuple(replace(pair, device_id=best.get(pair.device_id, pair.device_id)) for pair in plan.pairs),
    )


def _compact_sets(plan: Plan, sets: Mapping[str, DeviceSet], now_s: float) -> dict[str, str]:
    """Each taken set -> the set to take instead: the first of its class, which span the fewest nodes."""
    taken = {action.device_id for action in plan.actions if action.device_id}
    sets_of_class: dict[DeviceClass, list[str]] = {}
    for name, device_set in sets.items():
        if not device_set.device.residents:
            sets_of_class.setdefault(DeviceClass.of(device_set.device, now_s), []).append(name)
    replacement: dict[str, str] = {}
    for names in sets_of_class.values():
        used = [name for name in names if name in taken]
        replacement |= dict(zip(used, names, strict=False))
    return replacement


def _on_device_set(action: Action, best: Mapping[str, str], sets: Mapping[str, DeviceSet], size: int) -> Action:
    """The action on all devices of its set."""
    if not action.device_id:
        return replace(action, reason=f"gang of {size}: {action.reason}")
    name = best.get(action.device_id, action.device_id)
    return replace(action, device_id=name, device_ids=sets[name].device_ids)


# --- the bound over all sizes -----------------------------------------------------------------------------------------


def _with_independent_bound(plan: Plan, size: int, context: PlanningContext) -> Plan:
    """The plan with a bound that holds whatever other sizes take: the same jobs with every empty device for them."""
    started = {action.job_id for action in plan.actions if action.device_id}
    pending = tuple(job for job in context.snapshot.pending if job.id in started)
    relaxed = context.subproblem(replace(context.snapshot, pending=pending))
    lower_bound = _plan_size(size, relaxed).lower_bound if started else plan.lower_bound
    return replace(plan, lower_bound=min(lower_bound, plan.objective_value), status=SolveStatus.BOUNDED)
