"""The seams: small protocols that let rooms meet without importing one another."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction


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
