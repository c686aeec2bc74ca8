"""Classes of interchangeable jobs: jobs that no rule and no cost tells apart are planned as one class with a count.

Two jobs are interchangeable where they agree in all that candidates are made from. Times count only where something
reads them: an objective of time, a deadline, a window, or the rule that guests end first. Which members of a class
start is decided afterwards, in the order of the queue.
"""

import struct
from collections.abc import Hashable, Sequence
from operator import attrgetter

from interfere.policy.costs.objectives import Objective, objective_of
from interfere.policy.rules.custom import SharingRule, fields_read
from interfere.records import Job, Snapshot

_NAMES = attrgetter("workload", "profile_id", "pools", "priority", "preemptible")
_COSTS = ("weight",)
_NUMBERS = (
    "memory_peak_bytes",
    "memory_working_set_bytes",
    "max_slowdown",
    "latency_target_s",
    "grant_bytes",
)
_TIMES = ("deadline_s", "remaining_s", "remaining_p90_s", "checkpoint_s")


class JobKeys:
    """Equal keys for jobs that the candidates of a decision cannot tell apart."""

    def __init__(
        self,
        snapshot: Snapshot,
        custom_objective: Objective | None = None,
        custom_rules: Sequence[SharingRule] = (),
        *,
        rules_only: bool = False,
    ) -> None:
        """`custom_objective`: in place of the snapshot's; nobody knows what it reads, so no two jobs are alike.

        `custom_rules`: of other packages; the fields that they read count too.

        `rules_only`: equal keys also for jobs that differ in what their slowdown costs.
        """
        self._separate = custom_objective is not None and not rules_only
        fields = [*_NUMBERS] if rules_only else [*_COSTS, *_NUMBERS]
        if snapshot.limits.guest_ends_first or _has_windows_or_deadlines(snapshot):
            fields += _TIMES
        if not rules_only:
            fields += [name for name in objective_of(snapshot).required_fields if name not in fields]
        self._numbers = attrgetter(*fields)
        read = fields_read(custom_rules)
        self._read = attrgetter(*read) if read else None
        self._pack = struct.Struct(f"{len(fields)}d").pack

    def of(self, job: Job) -> Hashable:
        """The key of a pending or running job."""
        if self._separate:
            return job.id
        key = (_NAMES(job), self._pack(*self._numbers(job)))
        return (*key, repr(self._read(job))) if self._read else key  # repr: an absent number is not equal to itself


def _has_windows_or_deadlines(snapshot: Snapshot) -> bool:
    """Whether a device closes or a job has a deadline, which is never negative."""
    residents = [job for device in snapshot.devices for job in device.residents if job.deadline_s >= 0]
    waiting = [job for job in snapshot.pending if job.deadline_s >= 0]
    return bool(residents or waiting or [device for device in snapshot.devices if device.windows])
