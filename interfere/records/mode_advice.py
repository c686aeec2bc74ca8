"""Advice on the sharing mode of one device for a set of jobs: what each mode would do to them, and which one to take.

Relative throughput of k jobs = Σ 1/slowdown over the jobs: 1 is what they do one after the other on the whole device.
A job counts in the throughput within targets only where it keeps its latency target.
"""

from enum import StrEnum

from interfere.records.checks import NAN, check, number_violations, refused
from interfere.records.limits import DEFAULT_RISK, MAX_RISK, MIN_RISK, risk_violation
from interfere.records.predictions import JobRef
from interfere.records.record import record
from interfere.sharing_modes import OptionalSharingMode, SharingMode

MIN_JOBS, MAX_JOBS = 2, 48  # as many as a device may have seats


class ModeSource(StrEnum):
    """The source of the slowdowns under a mode."""

    MEASURED = "measured"  # these jobs were measured together under the mode
    PREDICTED = "predicted"  # by the model, which knows the device type under the mode
    DERIVED = "derived"  # from measurements of each job alone in slices of the device, which share nothing
    ABSTAINED = "abstained"  # nothing is known


class ModeReasonKind(StrEnum):
    """The reason why a mode is recommended, or why no mode is."""

    HIGHEST_THROUGHPUT = "highest_throughput"  # of the known modes, within the latency targets
    ONLY_KNOWN_MODE = "only_known_mode"
    SHARING_LOSES = "sharing_loses"  # one after the other the jobs do as much as under any known mode
    TARGETS_EXCLUDE_MODES = "targets_exclude_modes"  # every known mode that gains is too likely to break a target
    DOES_NOT_FIT = "does_not_fit"  # the jobs do not fit the memory of the device under any known mode
    NOTHING_KNOWN = "nothing_known"


class ModeMeasurementKind(StrEnum):
    """The kinds of measurements that would reduce the uncertainty of the advice."""

    TOGETHER = "together"  # the jobs, on the device type under the mode
    ALONE = "alone"  # one job, on a device type or a slice of it


@record
class ModeMeasurement:
    """A measurement that would make the advice surer."""

    kind: ModeMeasurementKind
    workloads: tuple[str, ...]
    device_type: str  # the device, or a MIG slice
    mode: OptionalSharingMode = ""  # that it informs; empty: every mode
    # Of relative throughput, from knowing the mode exactly; NaN where nothing is known of it.
    expected_gain: float = NAN


@record
class JobUnderMode:
    """The predicted effect of a mode on one job. Numbers are NaN where nothing is known."""

    workload: str
    slowdown: float = NAN  # median
    lower: float = NAN  # 5 % quantile
    upper: float = NAN  # 95 % quantile
    source: ModeSource = ModeSource.ABSTAINED
    miss_probability: float = NAN  # that its step takes longer than its latency target; NaN without a target
    slice_type: str = ""  # the MIG slice that it gets
    reason: str = ""  # why nothing is known


@record
class ModeOutlook:
    """One sharing mode: the predicted effect on every job, and the total throughput of the jobs."""

    mode: SharingMode
    source: ModeSource  # the weakest of its jobs'
    jobs: tuple[JobUnderMode, ...]  # in the order of the question
    throughput: float = NAN  # relative, median
    lower: float = NAN  # 5 % quantile
    upper: float = NAN  # 95 % quantile
    throughput_within_targets: float = NAN  # expected; counts a job only where it keeps its latency target
    feasibility: float = NAN  # probability that the jobs fit the memory; NaN where unknown
    probability_best: float = NAN  # that no other known mode does more within the targets
    reason: str = ""  # why nothing is known, and what to do about it
    measure: tuple[ModeMeasurement, ...] = ()

    @property
    def known(self) -> bool:
        """Whether anything is known about the mode."""
        return self.source is not ModeSource.ABSTAINED


@record
class ModeRecommendation:
    """The mode to take and why; without a mode the jobs run one after the other, or nothing is known."""

    kind: ModeReasonKind
    mode: OptionalSharingMode = ""
    throughput: float = NAN  # expected, within targets, of what is recommended
    other_mode: OptionalSharingMode = ""  # the next best known; under TARGETS_EXCLUDE_MODES the best that is excluded
    other_throughput: float = NAN
    probability_best: float = NAN
    miss_probability: float = NAN  # the largest of a job with a latency target, under `mode` or the excluded one
    risk: float = NAN  # the largest miss probability that the question allows
    reason: str = ""  # the same in words


@record
class ModeAdvice:
    """All sharing modes, the recommended mode, and useful further measurements, the most useful first."""

    device_type: str
    modes: tuple[ModeOutlook, ...]
    recommendation: ModeRecommendation
    measure: tuple[ModeMeasurement, ...]
    model_version: str = ""


@record
class ModeJob:
    """A job that is to share a device."""

    job: JobRef
    latency_target_s: float = NAN  # that one step or request may take

    def __post_init__(self) -> None:
        bad = number_violations(self, "latency_target_s")
        if self.latency_target_s == 0:
            remedy = "send the seconds that one step may take, or leave it out"
            bad.append(refused(self, "latency_target_s", "must be > 0", remedy))
        check(bad)


@record
class ModeQuery:
    """A set of jobs and the device that they would share."""

    jobs: tuple[ModeJob, ...]
    device_type: str = ""  # empty: the only one the model knows
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False
    risk: float = DEFAULT_RISK  # largest probability with which a job may miss a latency target that it keeps alone

    def __post_init__(self) -> None:
        bad = number_violations(self, "device_memory_bytes", low=1.0)
        if not MIN_JOBS <= len(self.jobs) <= MAX_JOBS:
            what = f"must be {MIN_JOBS} to {MAX_JOBS} jobs"
            remedy = "name each job that shares the device; list a job twice for two copies of it"
            bad.append(refused(self, "jobs", what, remedy, value=f"{len(self.jobs)} jobs"))
        if not MIN_RISK <= self.risk <= MAX_RISK:
            bad.append(risk_violation(self))
        check(bad)
