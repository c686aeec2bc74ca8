"""The question which sharing mode a set of jobs should have on a device."""

from dataclasses import dataclass

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN
from interfere.records.checks import check, number_violations
from interfere.records.limits import DEFAULT_RISK, MAX_RISK, MIN_RISK
from interfere.wire.messages import JobRef

MIN_JOBS, MAX_JOBS = 2, 48  # as many as a device may have seats


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeJob:
    """A job that is to share a device."""

    job: JobRef
    latency_target_s: float = NAN  # that one step or request may take

    def __post_init__(self) -> None:
        bad = number_violations(self, "latency_target_s")
        if self.latency_target_s == 0:
            what, remedy = "must be > 0", "send the seconds that one step may take, or leave it out"
            bad.append(Violation(field="latency_target_s", what=what, value="0", remedy=remedy))
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
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
            bad.append(Violation(field="jobs", what=what, value=f"{len(self.jobs)} jobs", remedy=remedy))
        if not MIN_RISK <= self.risk <= MAX_RISK:
            what, remedy = f"must be in [{MIN_RISK}, {MAX_RISK}]", f"leave it out for {DEFAULT_RISK}"
            bad.append(Violation(field="risk", what=what, value=repr(self.risk), remedy=remedy))
        if bad:
            raise InvalidInputError.from_violations(bad)
