"""Questions to a predictor and its answers: lists of ordered pairs, and matrices of victims × neighbours."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import Violation
from interfere.records.checks import NAN, check, is_name, number_violations, refused, text_violations
from interfere.records.measurements import JobProfile
from interfere.records.record import record
from interfere.sharing_modes import SharingMode, set_sharing_mode


class Source(StrEnum):
    """The source of a prediction."""

    MEASURED = "measured"
    MODEL = "model"
    COMPOSED = "composed"  # from the answers for its pairs: a group that nobody measured
    ABSTAINED = "abstained"


@record
class PairBatch:
    """Ordered pairs to predict: `victim[k]` and `neighbour[k]` index `jobs`."""

    jobs: tuple[JobProfile, ...]
    victim: NDArray[np.int64]  # int64[p]
    neighbour: NDArray[np.int64]  # int64[p]
    device_type: str
    mode: SharingMode
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    def __len__(self) -> int:
        return len(self.victim)


@record
class MatrixBatch:
    """Every job of `victims` beside every job of `neighbours`, predicted in both directions.

    Caches key on the identity of profiles: give the same object for the same job from call to call.
    """

    victims: tuple[JobProfile, ...]
    neighbours: tuple[JobProfile, ...]
    device_type: str
    mode: SharingMode
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The number of victims and the number of neighbours."""
        return len(self.victims), len(self.neighbours)


@record
class Prediction:
    """Predicted slowdowns of p ordered pairs.

    Where the model abstains they are NaN, and `reason` gives the reason and the remedy.
    """

    median: NDArray[np.float64]  # float64[p]
    lower: NDArray[np.float64]  # float64[p], 5 % quantile
    upper: NDArray[np.float64]  # float64[p], 95 % quantile
    feasibility: NDArray[np.float64]  # float64[p], probability that both fit; NaN where memory is unknown
    source: tuple[Source, ...]
    reason: tuple[str, ...]  # empty unless abstained

    @classmethod
    def abstaining(cls, reasons: Sequence[str]) -> "Prediction":
        """Return a prediction that abstains for every pair, with the reason for each."""
        absent = np.full(len(reasons), np.nan)
        numbers = dict.fromkeys(PREDICTED_NUMBERS, absent)
        return cls(source=(Source.ABSTAINED,) * len(reasons), reason=tuple(reasons), **numbers)


PREDICTED_NUMBERS = ("median", "lower", "upper", "feasibility")


@record
class MatrixPrediction:
    """Slowdowns of v victims × n neighbours in both directions; NaN where there is no prediction."""

    victim_slowdown: NDArray[np.float32]  # float32[v, n]: victim i beside neighbour j
    neighbour_slowdown: NDArray[np.float32]  # float32[v, n]: neighbour j beside victim i
    feasible: NDArray[np.uint8]  # uint8[v, n]: 0 only where both are known not to fit
    # float64[v, n], probability that both fit, NaN where unknown; not sent over the wire.
    feasibility: NDArray[np.float64] | None = None


@record
class JobRef:
    """A reference to a job to predict for: its workload, or a profile id, or the profile itself; exactly one of
    them."""

    workload: str = ""
    profile_id: str = ""
    profile: JobProfile | None = None

    def __post_init__(self) -> None:
        count = bool(self.workload) + bool(self.profile_id) + (self.profile is not None)
        if count != 1:
            what, remedy = "exactly one way to name a job", "give workload, profile_id or profile"
            check([refused(self, "workload", what, remedy, value=f"{count} of them")])
        if self.profile is None and not is_name(self.workload or self.profile_id):
            check(text_violations(self, "workload" if self.workload else "profile_id"))

    @property
    def name(self) -> str:
        """The workload, or the profile id where only that is given."""
        return self.profile.workload if self.profile else self.workload or self.profile_id


@record
class PairQuery:
    """A request to predict ordered pairs. `pairs` (victim, neighbour) index `jobs`; without it, all pairs of different
    jobs.

    A longer entry (victim, neighbour, neighbour, ...) asks for the victim's slowdown beside all of them at once.
    """

    jobs: tuple[JobRef, ...]
    pairs: tuple[tuple[int, ...], ...] = ()
    device_type: str = ""  # empty: the only one the model knows
    mode: SharingMode = SharingMode.TIMESLICE
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False
    metric: str = ""  # whose slowdown: of a step where empty; of services another of METRICS

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self) + number_violations(self, "device_memory_bytes", low=1.0)
        jobs = range(len(self.jobs))
        for k, indices in enumerate(self.pairs):
            if len(indices) == 2 and indices[0] in jobs and indices[1] in jobs:
                continue
            if len(indices) < 2 or len(set(indices)) < len(indices) > 2:
                what = "must be a victim and different neighbours"
                remedy = "two indices into jobs, or more for a group; list a job twice in jobs for two of it"
                bad.append(Violation(field=f"pairs[{k}]", what=what, value=str(list(indices)), remedy=remedy))
            for side, index in zip(("victim", *["neighbour"] * len(indices)), indices, strict=False):
                if index not in jobs:
                    path, what = f"pairs[{k}].{side}", f"must index one of the {len(self.jobs)} jobs"
                    bad.append(Violation(field=path, what=what, value=str(index), remedy="count from 0"))
        if not self.jobs:
            bad.append(refused(self, "jobs", "must not be empty", "name at least one job"))
        check(bad)


@record
class PairAnswer:
    """Predictions in the order of the requested pairs; `victim[k]` and `neighbour[k]` index the jobs of the query."""

    victim: NDArray[np.int64]  # int64[p]
    neighbour: NDArray[np.int64]  # int64[p]
    prediction: Prediction
    further: tuple[tuple[int, ...], ...] = ()  # [p] further neighbours of each pair; () when no pair has any
    model_version: str
    device_type: str

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row for each pair: its indices, predicted numbers, source, reason and further neighbours, by
        field name."""
        prediction = self.prediction
        columns = {
            "victim": self.victim.tolist(),
            "neighbour": self.neighbour.tolist(),
            **{name: getattr(prediction, name).tolist() for name in PREDICTED_NUMBERS},
            "source": prediction.source,
            "reason": prediction.reason,
            "further": self.further or ((),) * len(prediction.median),
        }
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


@record
class MatrixQuery:
    """A request for the slowdowns of all victims beside all neighbours. Without neighbours, the victims are used."""

    victims: tuple[JobRef, ...]
    neighbours: tuple[JobRef, ...] = ()
    device_type: str = ""
    mode: SharingMode = SharingMode.TIMESLICE
    quantile: float = 0.5
    device_memory_bytes: float = NAN
    allow_extrapolation: bool = False

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self) + number_violations(self, "device_memory_bytes", low=1.0)
        if not self.victims:
            bad.append(refused(self, "victims", "must not be empty", "name at least one job"))
        if not 0.0 < self.quantile < 1.0:
            bad.append(refused(self, "quantile", "must lie between 0 and 1", "0.5 is the median"))
        check(bad)


@record
class MatrixAnswer:
    """Both directions of a matrix of predictions, with the model version that answered."""

    matrix: MatrixPrediction
    model_version: str
    device_type: str


# --- probes: short runs of a new job beside chosen others, which teach most about all its pairs -----------------------

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
