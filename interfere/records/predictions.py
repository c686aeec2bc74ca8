"""Questions to a predictor and its answers: lists of ordered pairs, and matrices of victims × neighbours."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.records.checks import NAN
from interfere.records.facts import JobProfile
from interfere.sharing_modes import SharingMode


class Source(StrEnum):
    """Where a prediction comes from."""

    MEASURED = "measured"
    MODEL = "model"
    COMPOSED = "composed"  # from the answers for its pairs: a group that nobody measured
    ABSTAINED = "abstained"


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """(v, n): victims × neighbours."""
        return len(self.victims), len(self.neighbours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Slowdowns of p ordered pairs; where a pair abstains, they are NaN and `reason` says why and what helps."""

    median: NDArray[np.float64]  # float64[p]
    lower: NDArray[np.float64]  # float64[p], 5 % quantile
    upper: NDArray[np.float64]  # float64[p], 95 % quantile
    feasibility: NDArray[np.float64]  # float64[p], probability that both fit; NaN where memory is unknown
    source: tuple[Source, ...]
    reason: tuple[str, ...]  # empty unless abstained


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPrediction:
    """Slowdowns of v victims × n neighbours in both directions; NaN where there is no prediction."""

    victim_slowdown: NDArray[np.float32]  # float32[v, n]: victim i beside neighbour j
    neighbour_slowdown: NDArray[np.float32]  # float32[v, n]: neighbour j beside victim i
    feasible: NDArray[np.uint8]  # uint8[v, n]: 0 only where both are known not to fit
    # float64[v, n], probability that both fit, NaN where unknown; not sent over the wire.
    feasibility: NDArray[np.float64] | None = None
