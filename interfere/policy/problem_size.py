"""Estimates the size of a snapshot's placement problem before any cost is computed.

The planner counts interchangeable jobs, residents and devices instead of planning each, so the cost of a decision grows
with the number of distinct ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interfere.policy.costs.company_lengths import company_lengths
from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.device_class import device_facts
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.runtime import start_weights
from interfere.records import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSize:
    """The numbers of distinct pending jobs, distinct residents without a neighbour and empty device classes."""

    jobs: int  # classes of pending jobs
    seats: int  # classes of residents without a neighbour
    device_classes: int  # classes of empty devices

    @property
    def cells(self) -> int:
        """Return how many costs of pairs and of seats beside residents have to be computed."""
        return self.jobs * self.jobs * self.device_classes + self.jobs * self.seats


def problem_size(
    snapshot: Snapshot, max_classes_of_windows: int, custom_rules: Sequence[SharingRule] = ()
) -> ProblemSize:
    """Return the problem size; sets of windows per kind of empty device count up to `max_classes_of_windows` + 1."""
    snapshot = company_lengths(snapshot, custom_rules=custom_rules).snapshot
    keys = JobKeys(snapshot, custom_rules=custom_rules)
    weights = start_weights(snapshot.pending, snapshot.now_s, snapshot.limits.timing.ageing_s).tolist()
    jobs = {(job.gpus, weight, keys.of(job)) for job, weight in zip(snapshot.pending, weights, strict=True)}
    empty: dict[object, set[object]] = {}
    seats = set()
    for device in snapshot.devices:
        if len(device.residents) > 1:
            continue
        kind = device_facts(device)
        if not device.residents:
            empty.setdefault(kind, set()).add(device.windows)
        else:
            seats.add((kind, device.windows, keys.of(device.residents[0])))
    return ProblemSize(
        jobs=len(jobs),
        seats=len(seats),
        device_classes=sum(min(len(windows), max_classes_of_windows + 1) for windows in empty.values()),
    )
