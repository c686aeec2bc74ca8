"""Who would still be on a device when its resident is over: with `guest_ends_first` such a job may not join it.

A guest that outlasts its host keeps the devices, the next guest keeps them after that, and a gang that waits for whole
nodes may never see them empty. Replayed on a cluster of gangs of 128 devices, sharing without the rule nearly triples
the mean completion time, and with it takes off a twentieth (`make bench`, replay). Times are expected ones,
remaining · τ · median slowdown; a job that does not say how long it will run is not judged. Pure arrays.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.runtime import said
from interfere.records import Job

Floats = NDArray[np.float64]
EQUAL = 1e-9  # relative: two that end together


def lasting_s(jobs: Sequence[Job], times: Floats, slowdown: Floats) -> Floats:
    """float64[n, m]: seconds that job i runs on beside partner j; `times` float64[n] is τ. NaN where nobody knows."""
    remaining = np.array([job.remaining_s for job in jobs], dtype=np.float64)
    return np.asarray((remaining * times)[:, None] * slowdown)


def outlasts(guest_s: Floats | float, host_s: Floats | float) -> NDArray[np.bool_]:
    """bool[r, c]: does guest i stay after host j? False where either is NaN."""
    return np.asarray(guest_s > host_s * (1 + EQUAL))


def why_not(guest: Job, host: Job, guest_s: float, host_s: float) -> str:
    """The rule in words."""
    return f"guest_ends_first: {guest.id} would run {said(guest_s)} here, {host.id} ends after {said(host_s)}"
