"""Groups of one size of jobs on one host as columns: who is in them, what each job costs, and what they take."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.group_master.problem import Bools, Floats, Ints
from interfere.policy.costs.candidates import Candidates
from interfere.policy.device_class import DeviceClass
from interfere.policy.groups.tables import GroupCosts, GroupTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """Groups of one size on one host."""

    block: int
    host: int
    takes: int
    members: Ints  # int64[g, m]
    allowed: Bools
    job_cost: Floats  # float64[m + r, g]
    priority: Ints  # int64 of each class of pending jobs
    resident_priority: tuple[int, ...]  # r
    largest: Floats

    def cost(self, priority: int | None) -> Floats:
        """float64[g]: of the jobs of one priority, of all without."""
        m = self.members.shape[1]
        if priority is None:
            return np.asarray(self.job_cost.sum(axis=0))
        total = np.where(self.priority[self.members.T] == priority, self.job_cost[:m], 0.0).sum(axis=0)
        for cost, of in zip(self.job_cost[m:], self.resident_priority, strict=True):
            total += cost if of == priority else 0.0
        return np.asarray(total)


def jobs_alone(candidates: Candidates, name: DeviceClass, *, block: int, host: int) -> GroupPart:
    """Each job alone on an empty device."""
    solo = candidates.solo_cost[name]
    at = np.flatnonzero(np.isfinite(solo))
    return GroupPart(
        block=block,
        host=host,
        takes=candidates.size,
        members=at[:, None],
        allowed=np.ones(len(at), dtype=bool),
        job_cost=solo[at][None, :],
        priority=np.array([job.priority for job in candidates.pending], dtype=np.int64),
        resident_priority=(),
        largest=solo[at],
    )


def groups_on_host(
    candidates: Candidates,
    members: Ints,
    costs: GroupCosts,
    table: GroupTable,
    residents: Sequence[int],
    *,
    block: int,
    host: int,
    takes: int,
) -> GroupPart:
    """The groups that no rule forbids. `residents`: their places in the table, after the pending classes."""
    keep: Bools | slice = slice(None) if costs.allowed.all() else costs.allowed
    priority = np.array([job.priority for job in table.jobs.jobs], dtype=np.int64)
    k = len(candidates.pending)
    return GroupPart(
        block=block,
        host=host,
        takes=takes,
        members=members[keep],
        allowed=costs.allowed[keep],
        job_cost=costs.cost[:, keep],
        priority=priority[:k],
        resident_priority=tuple(priority[[k + place for place in residents]].tolist()),
        largest=costs.largest[keep],
    )
