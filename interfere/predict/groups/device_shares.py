"""Slowdown of a job alone in a part of its device, from its profiles on the smaller MIG slices of the same GPU.

Between measured slices the step rate is interpolated linearly in the compute share. Below the smallest measured slice
the rate falls in proportion to the share, as for a job that fills the slice. For the smallest slice, and for devices
that have no slices, the slowdown is unknown.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from interfere.devices.gpus import slices_within
from interfere.predict.groups.composition import MAX_FURTHER, CopyShares
from interfere.records import JobProfile

Floats = NDArray[np.float64]
MAX_COPIES = MAX_FURTHER + 1  # most further copies in any measurement; a larger number counts as this one


@cache
def smaller_slices(device_type: str) -> tuple[tuple[str, float], ...]:
    """Return (device type, compute share) of every smaller slice of the same GPU; empty if there is none."""
    return slices_within(device_type)


def slowdowns_in_shares(profile: JobProfile, profile_on: Callable[[str], JobProfile | None]) -> Floats:
    """Return float64[1 + MAX_COPIES]: step time in 1 / (c + 1) of the device ÷ on the whole, by c; NaN if unknown.

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
    """Return each victim's known slowdowns beside copies; None if none is known. A group lists its victim first.

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
