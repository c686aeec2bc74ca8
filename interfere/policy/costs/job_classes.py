"""Which jobs count as alike: jobs that no rule and no cost tells apart are planned as one class with a count.

Two jobs are interchangeable where they agree in all that candidates are made from. Times count only where something
reads them: an objective of time, a deadline, a window, or the rule that guests end first. Which members of a class
start is decided afterwards, in the order of the queue.

A cap that a deadline leaves depends on how long the other job stays: beyond the deadline it makes no difference, and a
job that no deadline, window or objective of time concerns is otherwise not asked how long it takes. So jobs that stay
longer than every deadline are alike, exactly. Of shorter ones, where they have more than `MAX_LENGTHS` lengths, each
counts as the next of a few longer ones: a plan keeps every rule, but no bound that rests on the others is claimed.
"""

import math
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from interfere.policy.costs.objectives import Objective, objective_of
from interfere.policy.rules.custom import SharingRule, fields_read
from interfere.policy.rules.runtime import remaining_quantile_s
from interfere.records import NAN, Job, Snapshot

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


MAX_LENGTHS = 256  # that are told apart exactly: beside 300 kinds of jobs a table of 80,000 cells a device class
KEPT_LENGTHS = 16
# A job that stays this many times longer than a deadline outlasts it, also at a predicted slowdown of a half.
OUTLASTS = 2.0
_CHANGED = {"remaining_s", "remaining_p90_s", "checkpoint_s"}  # fields of a job that counts as another length


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyLengths:
    """The snapshot with the lengths that count for its jobs, and whether some of them are longer than they are."""

    snapshot: Snapshot
    is_rounded: bool = False


def company_lengths(
    snapshot: Snapshot,
    custom_objective: Objective | None = None,
    custom_rules: Sequence[SharingRule] = (),
    *,
    rules_only: bool = False,
) -> CompanyLengths:
    """Return the snapshot with jobs of as few lengths as the rules on its deadlines need; again the same.

    `custom_objective`: in place of the snapshot's, which reads all. `rules_only`: the objective is not asked about the
    jobs. The lengths are as they are where a window, the rule that guests end first, a rule of another package, or an
    objective of time reads them.
    """
    residents = [job for device in snapshot.devices for job in device.residents]
    ends_s = [job.deadline_s for job in (*snapshot.pending, *residents) if job.deadline_s >= 0]
    objective = objective_of(snapshot)
    is_read = bool(objective.required_fields) or objective.deadline_miss_price > 0 or custom_objective is not None
    if not ends_s or (is_read and not rules_only) or snapshot.limits.guest_ends_first or math.isnan(snapshot.now_s):
        return CompanyLengths(snapshot=snapshot)
    if any(device.windows for device in snapshot.devices) or _CHANGED & set(fields_read(custom_rules)):
        return CompanyLengths(snapshot=snapshot)
    longest_s = OUTLASTS * max(0.0, max(ends_s) - snapshot.now_s)
    level = 1 - snapshot.limits.slowdown.risk

    def length_s(job: Job) -> float:
        return min(longest_s, remaining_quantile_s(job, level))

    counted = [job for job in (*snapshot.pending, *residents) if _is_company(job)]
    lengths = np.unique([length_s(job) for job in counted])
    kept = lengths
    if len(lengths) > MAX_LENGTHS:
        kept = lengths[np.linspace(0, len(lengths) - 1, KEPT_LENGTHS + 1).astype(np.int64)[1:]]
    counts_as = dict(zip(lengths.tolist(), kept[np.searchsorted(kept, lengths)].tolist(), strict=True))

    def shortened(job: Job) -> Job:
        if not _is_company(job):
            return job
        return replace(job, remaining_s=counts_as[length_s(job)], remaining_p90_s=NAN, checkpoint_s=NAN)

    return CompanyLengths(
        snapshot=replace(
            snapshot,
            pending=tuple(map(shortened, snapshot.pending)),
            devices=tuple(
                replace(device, residents=tuple(map(shortened, device.residents))) if device.residents else device
                for device in snapshot.devices
            ),
        ),
        is_rounded=len(kept) < len(lengths),
    )


def _is_company(job: Job) -> bool:
    """Whether a job has no deadline itself, and says how long it takes."""
    return math.isnan(job.deadline_s) and not math.isnan(job.remaining_s)
