"""Columns of a decision: groups of jobs of one size on one host, what each member costs, and what the group takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.problem import Bools, Floats, Ints
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.group_tables import GroupCosts, GroupTable
from interfere.policy.device_class import DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumns:
    """Groups of equally many jobs of one size on one host."""

    block: int
    host: int
    takes: int
    members: Ints  # int64[g, m]
    allowed: Bools
    job_cost: Floats  # float64[m + r, g]
    shared: Floats  # float64[g]: what belongs to no single member; it counts at the highest priority of the members
    priority: Ints  # int64 of each class of pending jobs
    resident_priority: tuple[int, ...]  # r
    largest: Floats

    def cost(self, priority: int | None) -> Floats:
        """float64[g]: what each group costs the jobs of one priority; all jobs where `priority` is None."""
        m = self.members.shape[1]
        if priority is None:
            return np.asarray(self.job_cost.sum(axis=0) + self.shared)
        of_jobs = self.priority[self.members.T]
        total = np.where(of_jobs == priority, self.job_cost[:m], 0.0).sum(axis=0)
        for cost, of in zip(self.job_cost[m:], self.resident_priority, strict=True):
            total += cost if of == priority else 0.0
        highest = np.maximum(of_jobs.max(axis=0), max(self.resident_priority, default=int(self.priority.min())))
        return np.asarray(total + np.where(highest == priority, self.shared, 0.0))


def jobs_alone(candidates: Candidates, name: DeviceClass, *, block: int, host: int) -> GroupColumns:
    """The columns of each class of jobs alone on an empty device of a class."""
    solo = candidates.solo_cost[name]
    at = np.flatnonzero(np.isfinite(solo))
    return GroupColumns(
        block=block,
        host=host,
        takes=candidates.size,
        members=at[:, None],
        allowed=np.ones(len(at), dtype=bool),
        job_cost=solo[at][None, :],
        shared=np.zeros(len(at)),
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
) -> GroupColumns:
    """The columns of the groups that no rule forbids. `residents`: their places among the residents of the table."""
    keep: Bools | slice = slice(None) if costs.allowed.all() else costs.allowed
    k = len(candidates.pending)
    priority = np.array([job.priority for job in table.members], dtype=np.int64)
    return GroupColumns(
        block=block,
        host=host,
        takes=takes,
        members=members[keep],
        allowed=costs.allowed[keep],
        job_cost=costs.cost[:, keep],
        shared=costs.shared[keep],
        priority=priority[:k],
        resident_priority=tuple(priority[[k + place for place in residents]].tolist()),
        largest=costs.largest[keep],
    )
