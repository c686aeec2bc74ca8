"""Descriptions of models by a server: versions, training data, domains and scores, and the state learned since
training."""

from collections.abc import Mapping

from interfere.records.checks import METRICS, NAN
from interfere.records.record import record
from interfere.sharing_modes import SharingMode


@record
class ModelDomain:
    """A device type, sharing mode and metric that the model can predict."""

    device_type: str
    mode: SharingMode
    metric: str = METRICS[0]


@record
class TrainingTableSummary:
    """A summary of one table that the model was trained on."""

    table: str
    rows: int
    sha256: str


@record
class ModelScore:
    """One score of the comparison of models that was published with the model."""

    split: str
    model: str
    metric: str
    value: float


@record
class ReporterState:
    """The weight and the agreement of one reporter."""

    reporter: str
    windows: int  # of its windows of pairs that count; older ones fade
    trust: float  # mean weight of its windows, between 0 and 1
    weight: float = 1.0  # that an operator gave to it: 0 mutes it
    factor: float = 1.0  # how many times as slow it reports jobs as the other reporters of the same jobs do


@record
class OddDevice:
    """A device on which jobs run slower or faster than the same jobs on other devices of its type."""

    device: str
    device_type: str
    factor: float  # how many times as slow jobs are there


@record
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
    reporters: tuple[ReporterState, ...] = ()  # that gave their names, sorted
    changed_domains: tuple[str, ...] = ()  # device type/mode whose software stack was found to have changed
    relearning: bool = False  # the log is learned again: a rollback or a profile is not in the answers yet
    odd_devices: tuple[OddDevice, ...] = ()  # that slow their jobs, or are faster than others of their type


@record
class ModelInfo:
    """The served model: version, training data, domains, scores, online state."""

    version: str
    model: str
    matrix_model: str  # always `model` since pairs and matrices have one answer
    matrix_limit_pairs: int  # most distinct ordered pairs of a matrix or a decision; 0: no limit
    selected_by: str  # "gate", or "request" where the user who trained it named the model
    card: str  # the model card, Markdown
    fingerprint: str
    created_at: str
    workloads: tuple[str, ...]
    domains: tuple[ModelDomain, ...]
    calibrated: bool
    trained_on: tuple[TrainingTableSummary, ...]
    scores: tuple[ModelScore, ...]
    online: OnlineState
    server_version: str


@record
class ServedModelSummary:
    """A model that a server can serve."""

    version: str
    model: str
    created_at: str
    served: bool  # now
    taken_s: float  # when the server first took it, unix seconds


@record
class ServedModels:
    """The models that a server can serve, the one taken last first."""

    models: tuple[ServedModelSummary, ...]
    pinned: bool  # whether what is published does not replace the served one
    watched_folder: str
    refused: str  # why the newest publication was refused; empty where it was not
    trial: str = ""  # the model that is tried beside the one before it, and what both have shown; empty without one


@record
class ModelChange:
    """The version that answers from now on, and the version that answered before."""

    version: str
    previous_version: str


@record
class ProfileSummary:
    """A summary of one profile. A profile that cannot be used has an id and a problem only."""

    profile_id: str
    workload: str = ""
    device_type: str = ""
    source: str = ""
    step_time_s: float = NAN
    newest: bool = False
    registered: bool = False  # by a client; else it came with the model
    problem: str = ""  # why nothing is predicted from it


def scores_of(nested: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> tuple[ModelScore, ...]:
    """Return the scores of a manifest, {split: {model: {metric: value}}}, as flat records. Absent values are left
    out."""
    return tuple(
        ModelScore(split=split, model=model, metric=metric, value=float(value))
        for split, models in nested.items()
        for model, metrics in models.items()
        for metric, value in metrics.items()
        if value is not None
    )
