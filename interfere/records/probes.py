"""Probes: short runs of a new job beside chosen others, which teach most about all its pairs."""

from interfere.records.checks import check, refused
from interfere.records.predictions import JobRef
from interfere.records.record import record
from interfere.sharing_modes import SharingMode, set_sharing_mode

DEFAULT_PROBES, MAX_PROBES = 3, 16


@record
class ProbeQuery:
    """A request for the neighbours beside which a job should run first."""

    job: JobRef
    neighbours: tuple[JobRef, ...] = ()  # candidates; empty: all workloads of the model's training
    device_type: str = ""  # empty: the only one the model knows
    mode: SharingMode = SharingMode.TIMESLICE
    count: int = DEFAULT_PROBES

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self)
        if not 1 <= self.count <= MAX_PROBES:
            remedy = "three probes halve the error of a job of an unknown family"
            bad.append(refused(self, "count", f"must be 1 to {MAX_PROBES}", remedy))
        check(bad)


@record
class Probe:
    """One probe: both jobs run on one device for a window, and both slowdowns are reported."""

    neighbour: str  # its workload
    gain: float  # share of what is not known of the job's pairs (the expected squared error of speed) that it removes
    error_after: float  # expected absolute error of the speeds of the job's pairs, after this and all probes before it


@record
class ProbeAnswer:
    """Probes in the order in which they should run."""

    probes: tuple[Probe, ...]
    error_now: float  # expected absolute error of the speeds of the job's pairs, both directions
    model_version: str = ""
    device_type: str = ""
