"""How much longer a job takes alone in a part of its device, from its profiles on the smaller MIG slices of that GPU.

Between measured slices the rate of steps is interpolated in proportion to their compute, and below the smallest one it
falls in proportion to the share, as that of a job that fills it. On the smallest slice, and on devices that are not
divided, nothing is known.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from interfere.devices.mig import slices_within
from interfere.predict.groups.composition import MAX_FURTHER, CopyShares
from interfere.records import JobProfile

Floats = NDArray[np.float64]
MAX_COPIES = MAX_FURTHER + 1  # further jobs of which copies were measured; more count as many


@cache
def smaller_slices(device_type: str) -> tuple[tuple[str, float], ...]:
    """(device type, its share of the compute) of every smaller slice of the same GPU; none where it has no slices."""
    return slices_within(device_type)


def slowdowns_in_shares(profile: JobProfile, profile_on: Callable[[str], JobProfile | None]) -> Floats:
    """float64[1 + MAX_COPIES]: step time in 1 / (c + 1) of the device ÷ that on it, by c; NaN where unknown.

    `profile_on`: the profile of the same workload on another device type, or None. Nondecreasing in c, and at least 1.
    """
    unknown = np.full(1 + MAX_COPIES, np.nan)
    rates = {0.0: 0.0}
    for device_type, share in smaller_slices(profile.device_type):
        smaller = profile_on(device_type)
        if smaller is not None and np.isfinite(smaller.step_time_s):
            rates[share] = 1.0 / smaller.step_time_s
    if len(rates) == 1 or not np.isfinite(profile.step_time_s):
        return unknown
    rates[1.0] = 1.0 / profile.step_time_s
    shares, values = zip(*sorted(rates.items()), strict=True)
    in_share = np.interp(1.0 / np.arange(1, 2 + MAX_COPIES), shares, values)
    slowdown = np.maximum.accumulate(np.maximum(rates[1.0] / in_share, 1.0))
    slowdown[0] = np.nan  # no copy beside it
    return np.asarray(slowdown)


def copy_shares(
    groups: Sequence[Sequence[JobProfile | None]], profile_on: Callable[[str, str], JobProfile | None]
) -> CopyShares | None:
    """Of each group, victim first, what is known beside copies; None where nothing is, as on most devices.

    `profile_on`: (workload, device type) -> profile, or None.
    """
    known: dict[int, Floats] = {}
    slowdown, alone = np.full(len(groups), np.nan), np.zeros(len(groups), dtype=bool)
    for k, (victim, *neighbours) in enumerate(groups):
        if victim is None or not smaller_slices(victim.device_type):
            continue
        count = sum(other is not None and other.workload == victim.workload for other in neighbours)
        if not count:
            continue
        if id(victim) not in known:
            known[id(victim)] = slowdowns_in_shares(victim, partial(profile_on, victim.workload))
        slowdown[k], alone[k] = known[id(victim)][min(count, MAX_COPIES)], count == len(neighbours)
    return CopyShares(slowdown, alone) if np.isfinite(slowdown).any() else None
