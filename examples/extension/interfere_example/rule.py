"""A rule of one's own: jobs of different tenants never share a device; a job's id is tenant/name."""

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.custom import SharedPairs, SharingRule


@np.vectorize
def tenant(job_id: str) -> str:
    """Return the part of an id before the first slash."""
    return job_id.partition("/")[0]


def are_strangers(pairs: SharedPairs) -> NDArray[np.bool_]:
    """bool[r, c]: do the job and its partner belong to different tenants?"""
    return np.asarray(tenant(pairs.job["id"]) != tenant(pairs.partner["id"]))


ONE_TENANT = SharingRule(
    reads=("id",),  # the rule gets these fields of the jobs and no others
    forbids=are_strangers,
    because="jobs of different tenants never share a device",
)
