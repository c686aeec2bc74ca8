"""What the scheduler measured, and what became of it."""

import math
from dataclasses import dataclass
from enum import StrEnum

from interfere.errors import Violation
from interfere.records.checks import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    check,
    mode_violations,
    number_violations,
    text_violations,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One window of one job in constant company. Give `steps` or `slowdown`."""

    observation_id: str
    job_id: str
    workload: str
    device_type: str
    start_s: float
    end_s: float
    company: tuple[str, ...] = ()  # workloads of the others on the device; empty = alone
    steps: float = NAN
    slowdown: float = NAN
    device_id: str = ""
    mode: str = "timeslice"

    def __post_init__(self) -> None:
        bad = text_violations(self, "observation_id", "job_id", "workload", "device_type")
        bad += (
            number_violations(self, "steps", low=0.0)
            + number_violations(self, "start_s", nan=False)
            + number_violations(self, "end_s", nan=False)
        )
        if not self.end_s > self.start_s:
            bad.append(
                Violation(
                    field="end_s",
                    what="must be after start_s",
                    value=repr(self.end_s),
                    remedy="send a window of positive length",
                )
            )
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
        bad += mode_violations(self.mode)
        check(bad)


class ObservationResult(StrEnum):
    """What became of one observation."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    PENDING_SOLO = "pending_solo"  # kept; applied by itself once the solo rate is known
    REJECTED = "rejected"
