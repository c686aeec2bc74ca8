"""Observations that a scheduler reports: progress, memory use, outcomes, rollbacks; and their results."""

import math
from dataclasses import dataclass
from enum import StrEnum

from interfere.errors import Violation
from interfere.records.checks import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    check,
    number_violations,
    text_violations,
)
from interfere.sharing_modes import SharingMode, set_sharing_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One window of one job during which its co-located jobs did not change. Give `steps` or `slowdown`.

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
        bad += _label_violations(self, "reporter", "campaign")
        bad += number_violations(self, "steps", low=0.0) + _span_violations(self.start_s, self.end_s)
        if math.isnan(self.steps) == math.isnan(self.slowdown):
            bad.append(
                Violation(
                    field="steps",
                    what="give exactly one of steps and slowdown",
                    value=f"{self.steps}, {self.slowdown}",
                    remedy="drop one",
                )
            )
        if not math.isnan(self.slowdown) and not MIN_SLOWDOWN <= self.slowdown <= MAX_SLOWDOWN:
            bad.append(
                Violation(
                    field="slowdown",
                    what=f"must lie in [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]",
                    value=repr(self.slowdown),
                    remedy="check the clock and the solo rate",
                )
            )
        bad += set_sharing_mode(self)
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUsage:
    """Device memory that a job held in a window: compared with its grant, and later the demand of its workload."""

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
        bad += _label_violations(self, "reporter")
        bad += number_violations(self, "bytes", nan=False) + number_violations(self, "min_bytes")
        if self.min_bytes > self.bytes:
            bad.append(
                Violation(
                    field="min_bytes",
                    what="must not exceed bytes, the largest amount of the window",
                    value=f"{self.min_bytes:.0f} > {self.bytes:.0f}",
                    remedy="swap the two, or leave min_bytes out",
                )
            )
        check(bad + _span_violations(self.start_s, self.end_s))


class OutcomeKind(StrEnum):
    """How a planned action, or a job, ended."""

    APPLIED = "applied"
    LOST_RACE = "lost_race"  # another job took the place first
    REFUSED = "refused"  # by the scheduler
    ENDED = "ended"  # the job has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a planned action, or a job, ended: read by the planner's ledger."""

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
            bad.append(
                Violation(
                    field="reason",
                    what="must be printable and short",
                    value=repr(self.reason[:40]),
                    remedy="at most 256 characters",
                )
            )
        if self.kind in (OutcomeKind.REFUSED, OutcomeKind.ENDED) and not self.reason:
            bad.append(Violation(field="reason", what="is needed with refused and ended", value="''", remedy="say why"))
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Go back to a point of the log, for all reporters or for one; or take such a rollback back.

    Later entries stay in the log, but nothing is learned from them.
    """

    observation_id: str
    to_sequence: int  # the last entry that is still learned from
    reason: str
    reporter: str = ""  # the only reporter whose entries are rolled back; "" for all
    undoes: int = 0  # sequence number of the rollback that is taken back; 0 for a rollback

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "reason") + _label_violations(self, "reporter")
        for name in ("to_sequence", "undoes"):
            if getattr(self, name) < 0:
                bad.append(
                    Violation(
                        field=name,
                        what="must be 0 or more",
                        value=repr(getattr(self, name)),
                        remedy="a sequence number of `interfere observe log`",
                    )
                )
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterWeight:
    """How much is learned from the later windows of one reporter: 1 as from any, 0 nothing (muted)."""

    observation_id: str
    reporter: str
    weight: float
    reason: str

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "reporter", "reason")
        if not 0.0 <= self.weight <= 1.0:
            bad.append(
                Violation(
                    field="weight",
                    what="must lie in [0, 1]",
                    value=repr(self.weight),
                    remedy="0 mutes the reporter, 1 trusts it as any",
                )
            )
        check(bad)


Observation = Progress | MemoryUsage | Outcome | Rollback | ReporterWeight


class ObservationResult(StrEnum):
    """The result of one observation."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    PENDING_SOLO = "pending_solo"  # stored; applied without further request once the solo rate is known
    REJECTED = "rejected"
    QUARANTINED = "quarantined"  # stored, and learned with a low weight: it contradicts what other windows say


def _label_violations(record: object, *names: str) -> list[Violation]:
    """Names that may be empty: printable and short."""
    return text_violations(record, *(name for name in names if getattr(record, name)))


def _span_violations(start_s: float, end_s: float) -> list[Violation]:
    """Two finite times ≥ 0, in order."""
    bad = [
        Violation(field=name, what="must be a finite number ≥ 0", value=repr(value), remedy="send unix seconds")
        for name, value in (("start_s", start_s), ("end_s", end_s))
        if not (math.isfinite(value) and value >= 0)
    ]
    if not end_s > start_s:
        bad.append(
            Violation(
                field="end_s",
                what="must be after start_s",
                value=repr(end_s),
                remedy="send a window of positive length",
            )
        )
    return bad
