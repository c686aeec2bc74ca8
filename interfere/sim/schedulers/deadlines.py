"""What schedulers of deadlines ask: can a waiting job still meet its deadline, and on which devices?

They go by an estimate of run times, and know speeds, and the windows of devices as far as these are announced. A
deadline is given up only where even an optimistic run time misses it.
"""

import math
from collections.abc import Iterable

from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.duration_estimates import Estimate
from interfere.sim.world import ALWAYS, LATE_S, SimDevice, Windows


def is_infeasible(state: JobState, cluster: Cluster, estimate: Estimate) -> bool:
    """Would a waiting job miss its deadline even if it started now on a device of speed 1?"""
    return cluster.now_s + estimate.optimistic_s(state, cluster) > state.job.deadline_s + LATE_S


def next_infeasible_s(states: Iterable[JobState], cluster: Cluster, estimate: Estimate) -> float:
    """Return when the next of these waiting jobs becomes infeasible; inf where none does."""
    moments_s = (state.job.deadline_s - estimate.optimistic_s(state, cluster) + 2 * LATE_S for state in states)
    return min((moment_s for moment_s in moments_s if moment_s > cluster.now_s), default=math.inf)


def find_timely_devices(
    free: FreeDevices, state: JobState, cluster: Cluster, node_gpus: int, estimate: Estimate
) -> tuple[Device, ...]:
    """Return free devices on which a job meets its deadline before they leave; empty where there are not enough.

    A job without a deadline gets any free devices.
    """
    if not state.job.has_deadline:
        return free.find(state.job.gpus, state.job.pools, node_gpus)
    timely, remaining_s = [], estimate.optimistic_s(state, cluster)
    for device in free:
        sim_device = cluster.devices[device.id]
        end_s = cluster.now_s + remaining_s / sim_device.speed - LATE_S
        until_s = windows_from(sim_device, cluster.now_s)[0][1]
        if end_s <= min(state.job.deadline_s, until_s):
            timely.append(device)
    return free.only(timely).find(state.job.gpus, state.job.pools, node_gpus)


def windows_from(device: SimDevice, now_s: float) -> Windows:
    """Return the known windows of a device from now on; at least one."""
    return device.known_windows(now_s) or ALWAYS
