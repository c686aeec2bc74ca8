"""The nouns of the house: frozen, validated once, passed across every seam.

Letters: `n` jobs, `p` ordered pairs, `f` features. SI seconds and bytes. Absent numbers are NaN, never 0.
`slowdown[i, j]` = metric of i beside j ÷ metric of i alone (1 = no interference); speed = 1/slowdown.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, Violation

NAN = math.nan
MODES = ("timeslice", "mps", "mig", "stream", "priority")
METRICS = ("step_time_mean", "latency_p50", "latency_p99")
MIN_SLOWDOWN, MAX_SLOWDOWN = 0.2, 100.0  # outside of this a "measurement" is a broken clock or a stuck job


def _check(violations: list[Violation]) -> None:
    if violations:
        raise InvalidInputError.from_violations(violations)


def _text(record: object, *names: str) -> list[Violation]:
    """Names that must be non-empty, printable and at most 256 characters."""
    bad = []
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str) or not value.strip() or len(value) > 256 or not value.isprintable():
            bad.append(
                Violation(field=name, what="must be a printable name", value=repr(value), remedy="1-256 characters")
            )
    return bad


def _numbers(record: object, *names: str, low: float = 0.0, nan: bool = True) -> list[Violation]:
    """Finite numbers not below `low`; NaN means absent where `nan`."""
    bad = []
    for name in names:
        value = getattr(record, name)
        if (nan and math.isnan(value)) or (math.isfinite(value) and value >= low):
            continue
        absent = ", or leave it out" if nan else ""
        bad.append(
            Violation(
                field=name,
                what=f"must be a finite number ≥ {low:g}",
                value=repr(value),
                remedy=f"send a number{absent}",
            )
        )
    return bad


# --- facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStat:
    """One kernel identity (name, grid, block) of a job alone: FIKIT's SK and SG tables, one row.

    On a CPU the "kernels" are the operators of the profiler, without grid and block.
    """

    name: str
    mean_s: float  # SK: mean run time
    gap_s: float = NAN  # SG: mean idle time until the next kernel
    count: float = 1.0  # launches per step
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check(_text(self, "name") + _numbers(self, "mean_s", "count", nan=False) + _numbers(self, "gap_s"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From JSON: lists become tuples, null means absent. Raises TypeError on missing or unknown fields."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if v is not None}
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """What one workload does alone on one device type: facts only, no derived features."""

    workload: str
    device_type: str
    step_time_s: float  # mean time of one step (or request) alone
    source: str = "user"  # cpu, cuda, static, gavel, ...
    step_time_sd_s: float = NAN  # between blocks
    busy_frac: float = NAN  # share of wall time on the device
    busy_s: tuple[float, ...] = ()  # consecutive busy stretches, a sample of the timeline
    idle_s: tuple[float, ...] = ()  # the idle stretch after each busy one
    flops_per_step: float = NAN
    bytes_per_step: float = NAN  # memory traffic, as declared or counted from operand shapes
    memory_peak_bytes: float = NAN
    memory_working_set_bytes: float = NAN
    kernels: tuple[KernelStat, ...] = ()

    def __post_init__(self) -> None:
        bad = _text(self, "workload", "device_type", "source")
        bad += _numbers(self, "step_time_s", low=1e-9, nan=False)
        bad += _numbers(
            self,
            "step_time_sd_s",
            "busy_frac",
            "flops_per_step",
            "bytes_per_step",
            "memory_peak_bytes",
            "memory_working_set_bytes",
        )
        for name in ("busy_s", "idle_s"):
            if not all(math.isfinite(v) and v >= 0 for v in getattr(self, name)):
                bad.append(
                    Violation(field=name, what="must hold finite seconds ≥ 0", value="a bad entry", remedy="drop it")
                )
        if len(self.busy_s) != len(self.idle_s):
            bad.append(
                Violation(
                    field="idle_s",
                    what="must be as long as busy_s",
                    value=f"{len(self.idle_s)} ≠ {len(self.busy_s)}",
                    remedy="send one idle stretch after each busy one (0 where there is none)",
                )
            )
        _check(bad)

    @property
    def profile_id(self) -> str:
        """Content hash: equal facts have equal ids."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; NaN becomes null."""

        def clean(value: Any) -> Any:
            if isinstance(value, float) and math.isnan(value):
                return None
            if isinstance(value, dict):
                return {k: clean(v) for k, v in value.items()}
            return [clean(v) for v in value] if isinstance(value, list | tuple) else value

        return {k: clean(v) for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; unknown keys are an error."""
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(data) - known):
            raise InvalidInputError("unknown fields in a profile", value=unknown, remedy=f"use {sorted(known)}")
        values = {k: v for k, v in data.items() if v is not None}
        try:
            values["kernels"] = tuple(KernelStat.from_dict(kernel) for kernel in values.get("kernels", ()))
            for name in ("busy_s", "idle_s"):
                values[name] = tuple(float(v) for v in values.get(name, ()))
            return cls(**values)
        except TypeError as error:
            raise InvalidInputError(
                "a profile is incomplete", value=str(error), remedy="give workload, device_type, step_time_s"
            ) from None


class PairStatus(StrEnum):
    """How a measurement ended. `unstable` and `infeasible` rows are kept and never imputed."""

    OK = "ok"
    UNSTABLE = "unstable"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMeasurement:
    """Measured slowdown of one victim beside one neighbour. A self pair is one row with both sides in `passes`."""

    victim: str
    neighbour: str
    device_type: str
    mode: str
    metric: str = "step_time_mean"
    slowdown: float = NAN  # geometric mean over passes; NaN unless status is ok
    lower: float = NAN  # 95 % interval of the mean
    upper: float = NAN
    passes: tuple[float, ...] = ()  # slowdown in each block of each pass
    status: PairStatus = PairStatus.OK
    reason: str = ""
    overlap_frac: float = NAN  # share of the victim's window in which the neighbour ran
    steal_frac: float = NAN  # share of wall time that third processes took
    source: str = "user"
    campaign: str = ""
    device_name: str = ""  # the very machine: processor or card
    measured_at_s: float = NAN  # unix time

    def __post_init__(self) -> None:
        bad = _text(self, "victim", "neighbour", "device_type", "source")
        if self.mode not in MODES:
            bad.append(
                Violation(
                    field="mode",
                    what="unknown sharing mode",
                    value=repr(self.mode),
                    remedy=f"one of {', '.join(MODES)}",
                )
            )
        if self.metric not in METRICS:
            bad.append(
                Violation(
                    field="metric",
                    what="unknown metric",
                    value=repr(self.metric),
                    remedy=f"one of {', '.join(METRICS)}",
                )
            )
        if self.status is PairStatus.OK and not MIN_SLOWDOWN <= self.slowdown <= MAX_SLOWDOWN:
            bad.append(
                Violation(
                    field="slowdown",
                    what=f"must lie in [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}] when status is ok",
                    value=repr(self.slowdown),
                    remedy="mark the row unstable or infeasible with its reason",
                )
            )
        if self.status is not PairStatus.OK and not self.reason:
            bad.append(
                Violation(field="reason", what="a row that is not ok needs its reason", value="''", remedy="say why")
            )
        _check(bad)

    @property
    def feasible(self) -> bool:
        """False only where the pair cannot share the device at all."""
        return self.status is not PairStatus.INFEASIBLE


# --- predictions -----------------------------------------------------------------------------------------------------


class Source(StrEnum):
    """Where a prediction comes from."""

    MEASURED = "measured"
    MODEL = "model"
    ABSTAINED = "abstained"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch:
    """Ordered pairs to predict: `victim[k]` and `neighbour[k]` index `jobs`."""

    jobs: tuple[JobProfile, ...]
    victim: NDArray[np.int64]  # int64[p]
    neighbour: NDArray[np.int64]  # int64[p]
    device_type: str
    mode: str
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    def __len__(self) -> int:
        return len(self.victim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Slowdowns of `p` ordered pairs. Where a pair abstains its numbers are NaN and `reason` says why and what next."""

    median: NDArray[np.float64]  # float64[p]
    lower: NDArray[np.float64]  # float64[p], 5 % quantile
    upper: NDArray[np.float64]  # float64[p], 95 % quantile
    feasibility: NDArray[np.float64]  # float64[p], probability that both fit; NaN where memory is unknown
    source: tuple[Source, ...]
    reason: tuple[str, ...]  # empty unless abstained


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPrediction:
    """Both directions for v victims × n neighbours."""

    victim_slowdown: NDArray[np.float32]  # float32[v, n]: victim i beside neighbour j
    neighbour_slowdown: NDArray[np.float32]  # float32[v, n]: neighbour j beside victim i
    feasible: NDArray[np.uint8]  # uint8[v, n]: 0 only where both are known not to fit


# --- the cluster as a scheduler sends it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that waits or runs. Only `id` and `workload` are needed."""

    id: str
    workload: str
    profile_id: str = ""
    memory_peak_bytes: float = NAN
    weight: float = 1.0
    max_slowdown: float = NAN  # its own cap, on the upper end of the interval

    def __post_init__(self) -> None:
        bad = _text(self, "id", "workload") + _numbers(self, "memory_peak_bytes")
        bad += _numbers(self, "weight", low=1e-6, nan=False) + _numbers(self, "max_slowdown", low=1.0)
        _check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device and who runs on it now."""

    id: str
    type: str
    node: str = ""
    memory_bytes: float = NAN
    mode: str = "timeslice"
    residents: tuple[Job, ...] = ()

    def __post_init__(self) -> None:
        bad = _text(self, "id", "type") + _numbers(self, "memory_bytes", low=1.0)
        if self.mode not in MODES:
            bad.append(
                Violation(
                    field="mode",
                    what="unknown sharing mode",
                    value=repr(self.mode),
                    remedy=f"one of {', '.join(MODES)}",
                )
            )
        _check(bad)


class ActionKind(StrEnum):
    """What a plan may ask a scheduler to do."""

    START_ALONE = "start_alone"
    START_SHARED = "start_shared"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may do and how far it may go."""

    allowed: frozenset[ActionKind] = frozenset(ActionKind)
    max_slowdown: float = NAN  # cap for every job; the tighter of this and the job's own holds
    max_devices: int | None = None  # empty devices that may be taken
    allow_extrapolation: bool = False

    def __post_init__(self) -> None:
        bad = _numbers(self, "max_slowdown", low=1.0)
        if self.max_devices is not None and self.max_devices < 0:
            bad.append(
                Violation(
                    field="max_devices",
                    what="must be ≥ 0",
                    value=repr(self.max_devices),
                    remedy="leave it out for no limit",
                )
            )
        if ActionKind.WAIT not in self.allowed:
            bad.append(
                Violation(
                    field="allowed",
                    what="wait cannot be forbidden",
                    value=", ".join(sorted(self.allowed)) or "nothing",
                    remedy="add wait: a job that fits nowhere has to",
                )
            )
        _check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the scheduler sees now: the truth for its scope."""

    pending: tuple[Job, ...]
    devices: tuple[Device, ...]
    scope: str = "default"
    snapshot_id: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What to do with one pending job, and why."""

    kind: ActionKind
    job_id: str
    device_id: str = ""
    partner_id: str = ""
    slowdown: float = NAN  # predicted, of this job
    slowdown_lower: float = NAN
    slowdown_upper: float = NAN
    partner_slowdown: float = NAN
    cost: float = NAN  # weighted excess time of the group
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Two jobs that will share a device: a pending one and its partner, pending or resident."""

    job_id: str
    partner_id: str
    device_id: str
    weight: float  # weighted excess time: w_i (s_ij - 1) + w_j (s_ji - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pair that was not allowed, with the rule that binds."""

    job_id: str
    partner_id: str
    reason: str


class SolveStatus(StrEnum):
    """How good a matching is known to be."""

    OPTIMAL = "OPTIMAL"
    BOUNDED = "BOUNDED"
    HEURISTIC = "HEURISTIC"
    INFEASIBLE = "INFEASIBLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One decision. `cost`: Σ over newly shared devices of w_i (s_ij - 1) + w_j (s_ji - 1); waiting jobs apart."""

    decision_id: str
    model_version: str
    actions: tuple[Action, ...]  # one per pending job, in its order
    pairs: tuple[Pairing, ...]
    refused: tuple[Refusal, ...]  # at most the first `MAX_REFUSALS` of them
    refused_total: int
    cost: float
    greedy_cost: float
    greedy_waiting: int  # jobs that greedy would leave waiting
    lower_bound: float
    gap: float
    status: SolveStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """One candidate device for one job, as per-pod schedulers need it. Lower cost is better."""

    device_id: str
    feasible: bool
    slowdown: float  # predicted, of the job; 1 on an empty device
    worst_resident_slowdown: float
    cost: float
    reason: str


# --- what the scheduler measured -------------------------------------------------------------------------------------


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
        bad = _text(self, "observation_id", "job_id", "workload", "device_type")
        bad += (
            _numbers(self, "steps", low=0.0) + _numbers(self, "start_s", nan=False) + _numbers(self, "end_s", nan=False)
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
        if self.mode not in MODES:
            bad.append(
                Violation(
                    field="mode",
                    what="unknown sharing mode",
                    value=repr(self.mode),
                    remedy=f"one of {', '.join(MODES)}",
                )
            )
        _check(bad)


class ObservationResult(StrEnum):
    """What became of one observation."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    PENDING_SOLO = "pending_solo"  # kept; applied by itself once the solo rate is known
    REJECTED = "rejected"
