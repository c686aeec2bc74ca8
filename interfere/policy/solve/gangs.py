"""Gangs: a job on g devices is planned as one job on one place, a place being g devices of one class.

Size by size: the free places of a size are cut from the empty devices, every gang of that size that runs alone on its
devices is a seat, and the planner for one device decides. Of several orders of the sizes the one that starts the most
weight is taken, at the least cost then. Where sizes compete for devices the whole is not proved best: its bound is
the sum of what each size would cost had it all of them.
Law 1: a gang starts on exactly g devices of one class, all empty or all those of one gang of the same size.
Law 2: a set of devices takes no more nodes than it must (`cut`).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.answer.merge import merged, nothing_starts
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.remaining import remaining_snapshot
from interfere.policy.rules.runtime import start_weights
from interfere.policy.solve.planner import plan_valid
from interfere.records import Action, ActionKind, Device, Job, Plan, Snapshot, SolveStatus
from interfere.records.cluster import MIN_TIME_BUDGET_S

MOST_SIZES = 3  # whose every order is tried: 6 orders; of more sizes three orders are


def plan_gangs(context: PlanningContext) -> Plan:
    """The decision for jobs of all sizes, for a snapshot that does not contradict itself."""
    snapshot = context.snapshot
    types = context.device_types
    if all(job.gpus == 1 for job in (*snapshot.pending, *(r for d in snapshot.devices for r in d.residents))):
        return plan_valid(context)
    orders = _orders(snapshot.pending, snapshot.now_s)
    sizes = orders[0]
    if not sizes:
        return nothing_starts((), context, "")
    if len(sizes) > 1 and not math.isnan(snapshot.limits.timing.time_budget_s):
        share_s = snapshot.limits.timing.time_budget_s / ((len(orders) + 1) * len(sizes))  # one more for the bounds
        snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=max(share_s, MIN_TIME_BUDGET_S)))
    context = context.with_snapshot(snapshot, types)
    tried = [_in_order(order, context) for order in orders]
    best = min(tried, key=lambda parts: _merit(parts, snapshot))  # the first of equals
    if len(sizes) > 1:
        best = {size: _proved_apart(best[size], size, context) for size in best}
    return merged(list(best.values()), context.snapshot)


def _in_order(
    order: Sequence[int],
    context: PlanningContext,
) -> dict[int, Plan]:
    """The plan of each size, each on what those before it leave."""
    snapshot = context.snapshot
    parts: dict[int, Plan] = {}
    for size in order:
        parts[size] = _of_size(size, context.with_snapshot(snapshot, context.device_types))
        mine = {job.id for job in snapshot.pending if job.gpus == size}
        snapshot = remaining_snapshot(
            snapshot, mine, {name for action in parts[size].actions for name in action.places}
        )
    return parts


def _orders(pending: Sequence[Job], now_s: float) -> list[tuple[int, ...]]:
    """Orders of the sizes that wait; first that of the heaviest job first, the larger at equal weight."""
    heaviest: dict[int, float] = {}
    for job, weight in zip(pending, start_weights(pending, now_s).tolist(), strict=True):
        heaviest[job.gpus] = max(heaviest.get(job.gpus, 0.0), weight)
    usual = sorted(heaviest, key=lambda size: (-heaviest[size], -size))
    if len(usual) <= MOST_SIZES:
        return list(itertools.permutations(usual))
    return list(dict.fromkeys([tuple(usual), tuple(sorted(usual, reverse=True)), tuple(sorted(usual))]))


def _merit(parts: Mapping[int, Plan], snapshot: Snapshot) -> tuple[float, float]:
    """Weight that waits, then what the objective says: less is better."""
    each = start_weights(snapshot.pending, snapshot.now_s).tolist()
    weight = dict(zip((job.id for job in snapshot.pending), each, strict=True))
    whole = merged(list(parts.values()), snapshot)
    waiting = sum(weight[action.job_id] for action in whole.actions if action.kind is ActionKind.WAIT)
    return round(waiting, 9), whole.objective_value


# --- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """g devices of one class, as one."""

    device: Device
    device_ids: tuple[str, ...]


def cut(empty: Sequence[Device], size: int, most: int) -> list[tuple[Device, ...]]:
    """At most `most` sets of `size` of these devices, which are of one class.

    Each takes the fewest nodes that are left to take: the node with the fewest free devices that holds it whole; where
    none does, the fullest nodes first and then the fewest free devices that hold the rest.
    """
    nodes: dict[str, list[Device]] = {}
    for device in empty:
        nodes.setdefault(device.node, []).append(device)
    found = []
    for _ in range(min(most, len(empty) // size)):
        taken: list[Device] = []
        while len(taken) < size:
            need = size - len(taken)
            holds = [node for node, free in nodes.items() if len(free) >= need]
            if holds:
                node = min(holds, key=lambda name: len(nodes[name]))
            else:
                node = max(nodes, key=lambda name: len(nodes[name]))
            taken += nodes[node][:need]
            nodes[node] = nodes[node][need:]
            if not nodes[node]:
                del nodes[node]
        found.append(tuple(taken))
    return found


def _places(snapshot: Snapshot, size: int, waiting: int) -> dict[str, Place]:
    """Where jobs of a size may go, by the name of the place: sets of empty devices, best first, and gangs alone."""
    empty: dict[DeviceClass, list[Device]] = {}
    company: dict[str, list[Device]] = {}  # of residents of this size
    crowded: set[str] = set()
    for device in snapshot.devices:
        if not device.residents:
            empty.setdefault(DeviceClass.of(device, snapshot.now_s), []).append(device)
        for job in device.residents:
            if job.gpus == size:
                company.setdefault(job.id, []).append(device)
                if len(device.residents) > 1:
                    crowded.add(job.id)
    sets = [group for devices in empty.values() for group in cut(devices, size, waiting)]
    for name, devices in company.items():
        alike = len({DeviceClass.of(device, snapshot.now_s) for device in devices}) == 1
        if name not in crowded and alike and len(devices) == size:  # in a partial snapshot some may be left out
            sets.append(tuple(devices))
    return {group[0].id: _as_one(group) for group in sets}


def _as_one(group: tuple[Device, ...]) -> Place:
    first = group[0]
    residents = tuple(replace(job, gpus=1) for job in first.residents)
    return Place(device=replace(first, residents=residents), device_ids=tuple(device.id for device in group))


# --- one size ---------------------------------------------------------------------------------------------------------


def of_size(snapshot: Snapshot, size: int) -> tuple[Snapshot, Mapping[str, Place]]:
    """The pending jobs of one size as jobs on one place each, and the places where they may go, by name."""
    jobs = tuple(replace(job, gpus=1) for job in snapshot.pending if job.gpus == size)
    places = _places(snapshot, size, len(jobs))
    limits = snapshot.limits
    if limits.max_devices is not None:
        limits = replace(limits, max_devices=limits.max_devices // size)
    if limits.most_shared_gpus is not None and size > limits.most_shared_gpus:
        limits = replace(limits, allowed=limits.allowed - {ActionKind.START_SHARED})
    devices = tuple(place.device for place in places.values())
    return replace(snapshot, pending=jobs, devices=devices, limits=limits), places


def _of_size(
    size: int,
    context: PlanningContext,
) -> Plan:
    """The plan for the jobs of one size, its actions on sets of devices."""
    snapshot = context.snapshot
    apart, places = of_size(snapshot, size)
    if not places:
        why = f"gang: no {size} free devices of one class" if size > 1 else "no device has a free seat"
        return nothing_starts([job.id for job in apart.pending], context, why)
    found = plan_valid(context.with_snapshot(apart, context.device_types))
    if size == 1:
        return found
    best = _best_first(found, places, snapshot.now_s)
    return replace(
        found,
        actions=tuple(_on_set(action, best, places, size) for action in found.actions),
        pairs=tuple(replace(pair, device_id=best.get(pair.device_id, pair.device_id)) for pair in found.pairs),
    )


def _best_first(found: Plan, places: Mapping[str, Place], now_s: float) -> dict[str, str]:
    """The places that are taken of each class, moved to the first of the class, which take the fewest nodes."""
    taken = {action.device_id for action in found.actions if action.device_id}
    of_class: dict[DeviceClass, list[str]] = {}
    for name, place in places.items():
        if not place.device.residents:
            of_class.setdefault(DeviceClass.of(place.device, now_s), []).append(name)
    moved: dict[str, str] = {}
    for names in of_class.values():
        used = [name for name in names if name in taken]
        moved |= dict(zip(used, names, strict=False))
    return moved


def _on_set(action: Action, best: Mapping[str, str], places: Mapping[str, Place], size: int) -> Action:
    if not action.device_id:
        return replace(action, reason=f"gang of {size}: {action.reason}")
    name = best.get(action.device_id, action.device_id)
    return replace(action, device_id=name, device_ids=places[name].device_ids)


# --- the whole --------------------------------------------------------------------------------------------------------


def _proved_apart(
    part: Plan,
    size: int,
    context: PlanningContext,
) -> Plan:
    """The plan with a bound that holds whatever other sizes take: the same jobs with every empty device for them."""
    started = {action.job_id for action in part.actions if action.device_id}
    pending = tuple(job for job in context.snapshot.pending if job.id in started)
    alone = context.with_snapshot(replace(context.snapshot, pending=pending), context.device_types)
    bound = _of_size(size, alone).lower_bound if started else part.lower_bound
    return replace(part, lower_bound=min(bound, part.objective_value), status=SolveStatus.BOUNDED)
