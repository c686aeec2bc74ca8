"""The seams: small protocols through which packages work together without importing one another."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interfere.records import (
    BlockRequest,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    MeasuredBlock,
    PairBatch,
    Prediction,
    SoloMeasurement,
)
from interfere.sharing_modes import SharingMode


class SoloProfiler(Protocol):
    """Profiles a workload alone, by running it or by tracing it only.

    Laws: the profile carries the workload's name and the profiler's device type; its step time is finite and positive.
    A workload that fails raises an InterfereError with a remedy, and none of its processes is left.
    """

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """Return the profile of one workload, by its name. Raises UnfitError when it cannot be measured."""


class Profiler(SoloProfiler, Protocol):
    """Profiles workloads alone, and measures them in pairs.

    Laws: a block answers both directions: its sides carry the names of the pair in the order of the request, and an
    accepted block holds a finite slowdown of each. A block that failed a quality gate is data, with the reason.
    """

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Measure one block of a pair whose workloads were both profiled.

        A job that fails beside the other gives a rejected block, or an UnfitError where the profiler cannot go on.
        """


class PairEncoder(Protocol):
    """Encodes the facts of jobs and pairs as features; training and serving use the same encoder.

    Law: equal facts give equal bytes.
    """

    @property
    def fingerprint(self) -> str:
        """Return the hash of version and column names; a model trained with another fingerprint is refused."""

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of the F job columns."""

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the f pair columns: victim columns, neighbour columns, contention columns."""

    def encode_jobs(self, profiles: Sequence[JobProfile], device_type: str, mode: SharingMode) -> NDArray[np.float32]:
        """Return one row of job columns per profile, float32[n, F]; NaN where a profile lacks the fact."""

    def encode_pairs(self, victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the pair columns of encoded victims and neighbours, float32[p, F] each, as float32[p, f].

        Every column is computed elementwise.
        """


class Predictor(Protocol):
    """Predicts slowdowns of ordered pairs. The measured table and the online correction wrap another `Predictor`.

    The laws that every implementation keeps stand as tests in `interfere/testing/predictors.py`.
    """

    @property
    def version(self) -> str:
        """Return the version of the model that answers."""

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return why a domain (device type and sharing mode) is unknown, with the remedy; "" for a known domain."""

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Predict every pair of the batch, in its order. A pair without a prediction abstains with a reason."""

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return one quantile of the slowdowns of v victims × n neighbours in both directions; NaN without a
        prediction.

        Raises UnfitError for an unknown domain unless the batch allows extrapolation.
        """


@runtime_checkable
class Teaches(Protocol):
    """A predictor that learns, and knows what a run would teach it."""

    def teaches(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> NDArray[np.float64]:
        """Return float64[n]: the share of what is not known of the job's pairs with these neighbours that a short run
        beside each of them would teach."""
