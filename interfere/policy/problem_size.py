"""How large the problem of a snapshot is, before anything of it is computed.

What a decision costs is not the number of jobs and devices but of those that differ: interchangeable jobs, residents
and devices are counted, not planned one by one.
"""

from dataclasses import dataclass

from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.rules.runtime import start_weights
from interfere.records import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSize:
    """What differs in a snapshot."""

    jobs: int  # classes of pending jobs
    seats: int  # classes of residents without neighbour
    device_classes: int  # of empty devices

    @property
    def cells(self) -> int:
        """Costs of a pair or a seat that have to be computed."""
        return self.jobs * self.jobs * self.device_classes + self.jobs * self.seats


def problem_size(snapshot: Snapshot, max_classes_of_windows: int) -> ProblemSize:
    """The size of a snapshot's problem; of devices that close at different times at most so many classes count."""
    keys = JobKeys(snapshot)
    weights = start_weights(snapshot.pending, snapshot.now_s, snapshot.limits.timing.ageing_s).tolist()
    jobs = {(job.gpus, weight, keys.of(job)) for job, weight in zip(snapshot.pending, weights, strict=True)}
    empty: dict[object, set[object]] = {}
    seats = set()
    for device in snapshot.devices:
        kind = (
            device.type,
            device.mode,
            device.pool,
            str(device.memory_bytes),
            device.oversubscription_ratio,
            str(device.granule_bytes),
            str(device.price_per_hour),
            str(device.power_w),
            device.seats,
        )
        if not device.residents:
            empty.setdefault(kind, set()).add(device.windows)
        elif len(device.residents) == 1:
            seats.add((kind, device.windows, keys.of(device.residents[0])))
    return ProblemSize(
        jobs=len(jobs),
        seats=len(seats),
        device_classes=sum(min(len(windows), max_classes_of_windows + 1) for windows in empty.values()),
    )
