"""The seams: small protocols through which packages work together without importing one another."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.records import (
    BlockRequest,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    PairBlock,
    Prediction,
    SoloMeasurement,
)


class SoloProfiler(Protocol):
    """Profiles a workload alone, by running it or by tracing it only.

    Laws: the profile carries the workload's name and the profiler's device type; its step time is finite and positive.
    A workload that fails raises an InterfereError with a remedy, and none of its processes is left.
    """

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """The profile of one workload, by its name. Raises UnfitError when it cannot be measured."""


class Profiler(SoloProfiler, Protocol):
    """Profiles workloads alone, and measures them in pairs.

    Laws: a block answers both directions: its sides carry the names of the pair in the order of the request, and an
    accepted block holds a finite slowdown of each. A block that failed a quality gate is data, with the reason.
    """

    def measure_block(self, request: BlockRequest) -> PairBlock:
        """One block of a pair whose workloads were both profiled.

        A job that fails beside the other gives a rejected block, or an UnfitError where the profiler cannot go on.
        """


class PairEncoder(Protocol):
    """Facts to numbers; the same object serves training and serving. Law: equal facts give equal bytes."""

    @property
    def fingerprint(self) -> str:
        """Hash over version and column names; a model trained under another one is refused."""

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of the F job columns."""

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the f pair columns: victim columns, neighbour columns, contention columns."""

    def encode_jobs(self, profiles: Sequence[JobProfile], device_type: str, mode: str) -> NDArray[np.float32]:
        """float32[n, F]; NaN where a source has no such fact."""

    def encode_pairs(self, victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[p, f] from two float32[p, F]; elementwise only."""


class Predictor(Protocol):
    """Slowdowns of ordered pairs. The measured table and the online correction wrap the same protocol."""

    @property
    def version(self) -> str:
        """Version of the model that answers."""

    def knows(self, device_type: str, mode: str) -> str:
        """Empty when this domain was seen in training, else the reason and the remedy."""

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """All pairs of the batch, in order."""

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both directions for the v × n jobs of the batch, at one quantile of the slowdown.

        Raises UnfitError for an unknown domain unless the batch allows extrapolation.
        """
