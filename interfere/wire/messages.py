"""Requests and answers of the policy service that no other package needs as records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, Violation
from interfere.records import (
    METRICS,
    NAN,
    Device,
    Job,
    JobProfile,
    Limits,
    MatrixPrediction,
    ObjectiveKind,
    Observation,
    ObservationResult,
    Prediction,
    Ranking,
)
from interfere.sharing_modes import SharingMode, set_sharing_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """A job to predict for: exactly one of its workload, a profile id, or the facts themselves."""

    workload: str = ""
    profile_id: str = ""
    profile: JobProfile | None = None

    def __post_init__(self) -> None:
        given = [bool(self.workload), bool(self.profile_id), self.profile is not None]
        if sum(given) != 1:
            value = f"{sum(given)} of them"
            remedy = "give workload, profile_id or profile"
            raise InvalidInputError.from_violations(
                [Violation(field="workload", what="exactly one way to name a job", value=value, remedy=remedy)]
            )

    @property
    def name(self) -> str:
        """The workload, or the profile id where only that is given."""
        return self.profile.workload if self.profile else self.workload or self.profile_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuery:
    """Ordered pairs to predict; `pairs` (victim, neighbour) index `jobs`; without pairs, all of two different jobs.

    A longer entry (victim, neighbour, neighbour, ...) asks for the victim's slowdown beside all of them at once.
    """

    jobs: tuple[JobRef, ...]
    pairs: tuple[tuple[int, ...], ...] = ()
    device_type: str = ""  # empty: the only one the model knows
    mode: SharingMode = SharingMode.TIMESLICE
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self) + _memory_violations(self.device_memory_bytes)
        jobs = range(len(self.jobs))
        for k, indices in enumerate(self.pairs):
            if len(indices) == 2 and indices[0] in jobs and indices[1] in jobs:
                continue
            if len(indices) < 2 or len(set(indices)) < len(indices) > 2:
                bad.append(
                    Violation(
                        field=f"pairs[{k}]",
                        what="must be a victim and different neighbours",
                        value=str(list(indices)),
                        remedy="two indices into jobs, or more for a group; list a job twice in jobs for two of it",
                    )
                )
            for side, index in zip(("victim", *["neighbour"] * len(indices)), indices, strict=False):
                if not 0 <= index < len(self.jobs):
                    bad.append(
                        Violation(
                            field=f"pairs[{k}].{side}",
                            what=f"must index one of the {len(self.jobs)} jobs",
                            value=str(index),
                            remedy="count from 0",
                        )
                    )
        if not self.jobs:
            bad.append(Violation(field="jobs", what="must not be empty", value="[]", remedy="name at least one job"))
        if bad:
            raise InvalidInputError.from_violations(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAnswer:
    """Predictions in the order of the requested pairs; `victim[k]` and `neighbour[k]` index the jobs of the query."""

    victim: NDArray[np.int64]  # int64[p]
    neighbour: NDArray[np.int64]  # int64[p]
    prediction: Prediction
    further: tuple[tuple[int, ...], ...] = ()  # [p] further neighbours of each pair; () when no pair has any
    model_version: str
    device_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixQuery:
    """All victims beside all neighbours; without neighbours, beside the victims themselves."""

    victims: tuple[JobRef, ...]
    neighbours: tuple[JobRef, ...] = ()
    device_type: str = ""
    mode: SharingMode = SharingMode.TIMESLICE
    quantile: float = 0.5
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self) + _memory_violations(self.device_memory_bytes)
        if not self.victims:
            bad.append(Violation(field="victims", what="must not be empty", value="[]", remedy="name at least one job"))
        if not 0.0 < self.quantile < 1.0:
            bad.append(
                Violation(
                    field="quantile",
                    what="must lie between 0 and 1",
                    value=repr(self.quantile),
                    remedy="0.5 is the median",
                )
            )
        if bad:
            raise InvalidInputError.from_violations(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixAnswer:
    """Both directions of a matrix of predictions, with the model version that answered."""

    matrix: MatrixPrediction
    model_version: str
    device_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankQuery:
    """One job and its candidate devices, to be ranked."""

    job: Job
    devices: tuple[Device, ...]
    limits: Limits = field(default_factory=Limits)
    objective: ObjectiveKind = ObjectiveKind.WEIGHTED_EXCESS
    scope: str = ""  # whose promises count; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """Rankings of devices, the best first."""

    rankings: tuple[Ranking, ...]
    model_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrants:
    """The granules of one device: all, granted, free."""

    device_id: str
    device_type: str
    granules: int
    granted: int
    free: int
    oversubscription_ratio: float
    granule_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLine:
    """Memory granted to a job on one device, and how the job uses it."""

    job_id: str
    device_id: str
    granules: int
    bytes: float
    since_s: float  # on the caller's clock
    planned: bool = False  # the job has still to start there or to move there
    last_use_bytes: float = NAN  # in the last window since the grant
    times_exceeded: int = (
        0  # windows since the grant that used more, among the newest `interfere.serving.decisions` reads
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTables:
    """Granted memory of one scope, as of its last decision with a clock (`now_s`; 0 before the first)."""

    scope: str
    now_s: float
    devices: tuple[DeviceGrants, ...]
    grants: tuple[GrantLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuery:
    """Asks why a job got its action in a decision."""

    decision_id: str
    job_id: str
    scope: str = ""  # empty: the scope of the decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An observation that breaks a rule: it is rejected by itself, and the rest of its batch is processed."""

    observation_id: str
    reason: str


Reported = Observation | Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationAnswer:
    """The result of one observation; `reason` says why where it was not applied."""

    observation_id: str
    result: ObservationResult
    reason: str = ""
    weight: float = NAN  # with which a window of a pair was learned, between 0 and 1; NaN for all others


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """A summary of one profile."""

    profile_id: str
    workload: str
    device_type: str
    source: str
    step_time_s: float
    newest: bool
    registered: bool  # by a client; else it came with the model
    problem: str = ""  # why nothing is predicted from it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDomain:
    """A device type, sharing mode and metric that the model can predict."""

    device_type: str
    mode: SharingMode
    metric: str = METRICS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTable:
    """One table the model was trained on."""

    table: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One score of the comparison that was published with the model."""

    split: str
    model: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineState:
    """State of the online correction since the model was loaded."""

    observations: int
    pending_solo: int
    solo_rates: int
    corrected_jobs: int
    corrected_pairs: int
    quarantined: int = 0
    alarms: int = 0
    frozen: tuple[str, ...] = ()
    outcomes: int = 0
    memory_usages: int = 0
    reporters: tuple["ReporterState", ...] = ()  # that gave their names, sorted
    changed_domains: tuple[str, ...] = ()  # device type/mode whose software stack was found to have changed
    relearning: bool = False  # the log is learned again: a rollback or a profile is not in the answers yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterState:
    """How far one reporter is trusted."""

    reporter: str
    windows: int  # of its windows of pairs that count; older ones fade
    trust: float  # mean weight of its windows, between 0 and 1
    weight: float = 1.0  # that an operator gave to it: 0 mutes it


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the observation log; nothing is learned from an entry that was rolled back."""

    sequence: int
    observation: Observation
    result: ObservationResult
    reason: str
    received_s: float
    rolled_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The learned correction of one ordered pair: log of the factor on its predicted slowdown."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    log_factor: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLog:
    """The newest entries up to a point of the log, newest first, and the online state at that point."""

    entries: tuple[LogEntry, ...]
    online: OnlineState
    corrections: tuple[Correction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The served model: version, training data, domains, scores, online state."""

    version: str
    model: str
    matrix_model: str  # always `model` since pairs and matrices have one answer
    matrix_limit_pairs: int  # most distinct ordered pairs of a matrix or a decision; 0: no limit
    selected_by: str  # "gate", or "request" where the model was named by whoever trained it
    card: str  # the model card, Markdown
    fingerprint: str
    created_at: str
    workloads: tuple[str, ...]
    domains: tuple[ModelDomain, ...]
    calibrated: bool
    trained_on: tuple[TrainingTable, ...]
    scores: tuple[Score, ...]
    online: OnlineState
    server_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModelSummary:
    """A model that a server can serve."""

    version: str
    model: str
    created_at: str
    served: bool  # now
    taken_s: float  # when the server first took it, unix seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """The models that a server can serve, the one taken last first."""

    models: tuple[ServedModelSummary, ...]
    pinned: bool  # whether what is published does not replace the served one
    watched_folder: str
    refused: str  # why the newest publication was refused; empty where it was not


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """The version that answers from now on, and the one that answered before."""

    version: str
    previous_version: str


def scores_of(nested: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> tuple[Score, ...]:
    """Flat scores of a manifest's {split: {model: {metric: value}}}; values that are absent are left out."""
    return tuple(
        Score(split=split, model=model, metric=metric, value=float(value))
        for split, models in nested.items()
        for model, metrics in models.items()
        for metric, value in metrics.items()
        if value is not None
    )


def _memory_violations(memory_bytes: float) -> list[Violation]:
    if np.isnan(memory_bytes) or (np.isfinite(memory_bytes) and memory_bytes >= 1):
        return []
    return [
        Violation(
            field="device_memory_bytes",
            what="must be a finite number of bytes ≥ 1",
            value=repr(memory_bytes),
            remedy="send a number, or leave it out",
        )
    ]
