"""How many jobs may share a device: what it says, else the slots of its grants, else two.

A site that divides the memory of a device into granules says how many jobs it may hold: one a granule at most. A ratio
of oversubscription without a granule says nothing of that: the pages of the driver are no slots.
Objectives and limits that know pairs only are refused where a device says other than two seats; where seats only follow
from grants, such a decision goes on in pairs.
"""

import math
from dataclasses import replace

from interfere.policy.costs.objectives import Objective, objective_of
from interfere.policy.rules.memory import DeviceMemory
from interfere.records import Device, Snapshot
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS


def seats_of_grants(device: Device) -> int | None:
    """The granules of a device that names their size, at most `MAX_SEATS`; None for a device without."""
    memory = DeviceMemory.of(device)
    if math.isnan(device.granule_bytes) or not memory.grants_memory:
        return None
    return min(MAX_SEATS, max(1, memory.granules))


def pairs_only(snapshot: Snapshot, custom_objective: Objective | None = None) -> tuple[str, ...]:
    """What a snapshot asks for that knows pairs only, by name; empty where groups of any size may be planned."""
    objective = custom_objective or objective_of(snapshot)
    asked = {
        "completion_time, whose price of waiting is projected in pairs": objective.prices_waiting,
        "deadline_misses, whose probability of a miss is that of a pair": objective.deadline_miss_price > 0,
        "pairs_past_cap, which counts pairs": objective.soft_cap_price > 0,
        "cost or energy, whose time of occupation is that of a pair": objective.prices_occupancy,
        "limits.misfit_risk, a probability of a pair": not math.isnan(snapshot.limits.memory.misfit_risk),
        "limits.choosable_modes, a choice for pairs": bool(snapshot.limits.choosable_modes),
        "limits.guest_ends_first, a rule of a pair": snapshot.limits.guest_ends_first,
    }
    return tuple(name for name, present in asked.items() if present)


def with_seats(snapshot: Snapshot, custom_objective: Objective | None = None) -> Snapshot:
    """The snapshot in which every device says its seats that has other than two."""
    granting = {
        device.id: seats
        for device in snapshot.devices
        if device.seats is None and (seats := seats_of_grants(device)) not in (None, DEFAULT_SEATS)
    }
    if not granting or pairs_only(snapshot, custom_objective):
        return snapshot
    devices = (replace(each, seats=granting[each.id]) if each.id in granting else each for each in snapshot.devices)
    return replace(snapshot, devices=tuple(devices))
