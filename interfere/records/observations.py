"""Observations that a scheduler reports: progress, memory use, outcomes, rollbacks; and their results."""

import math
from enum import StrEnum

from interfere.errors import Violation
from interfere.records.checks import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    check,
    label_violations,
    number_violations,
    refused,
    text_violations,
)
from interfere.records.record import record
from interfere.records.served_model import OnlineState
from interfere.sharing_modes import SharingMode, set_sharing_mode


@record
class Progress:
    """The progress of one job in a window of time in which its co-located jobs did not change: either `steps` or
    `slowdown`.

    >>> from interfere import Progress
    >>> window = {"start_s": 0.0, "end_s": 60.0, "device_type": "cpu-core"}
    >>> Progress(observation_id="o1", job_id="j1", workload="gemm", company=("stream",), slowdown=1.4, **window).mode
    'timeslice'
    """

    observation_id: str
    job_id: str
    workload: str
    device_type: str
    start_s: float
    end_s: float
    company: tuple[str, ...] = ()  # workloads of the co-located jobs; empty: it ran alone
    steps: float = NAN
    slowdown: float = NAN
    device_id: str = ""
    mode: SharingMode = SharingMode.TIMESLICE
    reporter: str = ""  # who reports; reporters are trusted, weighed and rolled back one by one
    campaign: str = ""  # the software stack that it ran under (driver, framework, ...), as the site names it

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "job_id", "workload", "device_type")
        bad += label_violations(self, "reporter", "campaign")
        bad += number_violations(self, "steps", low=0.0) + _span_violations(self)
        if math.isnan(self.steps) == math.isnan(self.slowdown):
            value = f"{self.steps}, {self.slowdown}"
            bad.append(refused(self, "steps", "give exactly one of steps and slowdown", "drop one", value=value))
        if not math.isnan(self.slowdown) and not MIN_SLOWDOWN <= self.slowdown <= MAX_SLOWDOWN:
            what = f"must lie in [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
            bad.append(refused(self, "slowdown", what, "check the clock and the solo rate"))
        bad += set_sharing_mode(self)
        check(bad)


@record
class MemoryUsage:
    """The device memory that a job held in a window.

    It is compared with the job's grant, and later serves as the demand of its workload.
    """

    observation_id: str
    job_id: str
    workload: str
    device_type: str
    bytes: float  # largest amount at any time of the window
    start_s: float
    end_s: float
    device_id: str = ""
    min_bytes: float = NAN  # least amount at any time of the window; NaN where it was not watched
    reporter: str = ""

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "job_id", "workload", "device_type")
        bad += label_violations(self, "reporter")
        bad += number_violations(self, "bytes", nan=False) + number_violations(self, "min_bytes")
        if self.min_bytes > self.bytes:
            what, remedy = "must not exceed bytes, the largest amount of the window", "swap the two, or leave it out"
            value = f"{self.min_bytes:.0f} > {self.bytes:.0f}"
            bad.append(refused(self, "min_bytes", what, remedy, value=value))
        check(bad + _span_violations(self))


class OutcomeKind(StrEnum):
    """The ways in which a planned action, or a job, may end."""

    APPLIED = "applied"
    LOST_RACE = "lost_race"  # another job took the place first
    REFUSED = "refused"  # by the scheduler
    ENDED = "ended"  # the job has ended


@record
class Outcome:
    """The end of a planned action or of a job. The planner's ledger reads it."""

    observation_id: str
    job_id: str
    kind: OutcomeKind
    at_s: float
    decision_id: str = ""  # the decision that planned the action
    device_id: str = ""
    reason: str = ""  # finished, failed, out of memory, preempted, ...

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "job_id")
        bad += number_violations(self, "at_s", nan=False)
        if len(self.reason) > 256 or not self.reason.isprintable():
            value = repr(self.reason[:40])
            bad.append(refused(self, "reason", "must be printable and short", "at most 256 characters", value=value))
        if self.kind in (OutcomeKind.REFUSED, OutcomeKind.ENDED) and not self.reason:
            bad.append(refused(self, "reason", "is needed with refused and ended", "say why"))
        check(bad)


@record
class Rollback:
    """Return to an earlier point of the log, for all reporters or for one reporter; or undo an earlier rollback.

    Later entries stay in the log, but the model does not learn from them.
    """

    observation_id: str
    to_sequence: int  # the last entry that is still learned from
    reason: str
    reporter: str = ""  # the only reporter whose entries are rolled back; "" for all
    undoes: int = 0  # sequence number of the rollback that is taken back; 0 for a rollback

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "reason") + label_violations(self, "reporter")
        for name in ("to_sequence", "undoes"):
            if getattr(self, name) < 0:
                bad.append(refused(self, name, "must be 0 or more", "a sequence number of `interfere observe log`"))
        check(bad)


@record
class ReporterWeight:
    """The weight of later windows of one reporter in learning: 1 like any other reporter, 0 muted."""

    observation_id: str
    reporter: str
    weight: float
    reason: str

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "reporter", "reason")
        if not 0.0 <= self.weight <= 1.0:
            bad.append(refused(self, "weight", "must lie in [0, 1]", "0 mutes the reporter, 1 trusts it as any"))
        check(bad)


Observation = Progress | MemoryUsage | Outcome | Rollback | ReporterWeight
OBSERVATION_TYPES: dict[str, type[Observation]] = {
    "progress": Progress,
    "memory_usage": MemoryUsage,
    "outcome": Outcome,
    "rollback": Rollback,
    "reporter_weight": ReporterWeight,
}
"""Every kind of observation by its name: in documents, in the store and on the wire."""
_KINDS = {of_kind: name for name, of_kind in OBSERVATION_TYPES.items()}


def observation_kind(observation: Observation) -> str:
    """Return the name of the kind of an observation: progress, memory_usage, outcome, rollback or reporter_weight."""
    return _KINDS[type(observation)]


class ObservationResult(StrEnum):
    """The result of one observation."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    PENDING_SOLO = "pending_solo"  # stored; applied without further request once the solo rate is known
    REJECTED = "rejected"
    QUARANTINED = "quarantined"  # stored, and learned with a low weight: it contradicts what other windows say


def _span_violations(window: Progress | MemoryUsage) -> list[Violation]:
    """Return the violations of the times of a window: both finite and ≥ 0, the end after the start."""
    bad = [
        refused(window, name, "must be a finite number ≥ 0", "send unix seconds")
        for name in ("start_s", "end_s")
        if not 0 <= getattr(window, name) < math.inf
    ]
    if not window.end_s > window.start_s:
        bad.append(refused(window, "end_s", "must be after start_s", "send a window of positive length"))
    return bad


@record
class Unreadable:
    """An observation that breaks a rule: it is rejected by itself, and the rest of its batch is processed."""

    observation_id: str
    reason: str


Reported = Observation | Unreadable


@record
class ObservationAnswer:
    """The result of one observation; `reason` says why where it was not applied."""

    observation_id: str
    result: ObservationResult
    reason: str = ""
    weight: float = NAN  # with which a window of a pair was learned, between 0 and 1; NaN for all others


@record
class LogEntry:
    """One entry of the observation log. The model learns nothing from an entry that was rolled back."""

    sequence: int
    observation: Observation
    result: ObservationResult
    reason: str
    received_s: float
    rolled_back: bool = False


@record
class Correction:
    """The learned correction of one ordered pair: log of the factor on its predicted slowdown."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    log_factor: float
    sd: float


@record
class ObservationLog:
    """The newest entries up to a point of the log, newest first, and the online state at that point."""

    entries: tuple[LogEntry, ...]
    online: OnlineState
    corrections: tuple[Correction, ...]
