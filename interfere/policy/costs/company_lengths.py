"""Which lengths of jobs a rule can tell apart where they matter only as company of jobs with deadlines.

A cap that a deadline leaves depends on how long the other job stays: beyond the deadline it makes no difference, and a
job that no deadline, window or objective of time concerns is otherwise not asked how long it takes. So jobs that stay
longer than every deadline are alike, exactly. Of shorter ones, where they have more than `MAX_LENGTHS` lengths, each
counts as the next of a few longer ones: a plan keeps every rule, but no bound that rests on the others is claimed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs.objectives import Objective, objective_of
from interfere.policy.rules.custom import SharingRule, fields_read
from interfere.policy.rules.runtime import remaining_quantile_s
from interfere.records import NAN, Job, Snapshot

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
