"""The protocols of a model: frozen settings that fit a dataset, and a fitted model that predicts and exports itself.

Law 1: `predict` and the exported graph read the same inputs (`PairRows`) and agree within the parity budget.
Law 2: equal dataset and seed give equal predictions.
Law 3: an identity that is in no training row is treated exactly as the unknown one (0).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset, PairRows


class FittedPredictor(Protocol):
    """Whatever predicts log slowdowns once it is fitted: all that a comparison of models needs."""

    @property
    def name(self) -> str:
        """Return a name unique among the compared models; `interfere.training.models.catalogue` has those that ship."""

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Return predicted log slowdowns, float64[p]."""


class ScoredModel(Protocol):
    """Settings of whatever can be compared: a model, a baseline, an estimator of another package."""

    @property
    def name(self) -> str:
        """Return the name of what is fitted."""

    def fit(self, dataset: Dataset, seed: int) -> FittedPredictor:
        """Fit on all rows of `dataset`; equal seeds give equal predictions."""


class FittedModel(FittedPredictor, Protocol):
    """A fitted model, which predicts log slowdowns and exports itself as an ONNX graph."""

    def to_onnx(self) -> bytes:
        """Return `pair.onnx`: pairs float32[p, f], victim int64[p], neighbour int64[p] → log_slowdown float32[p]."""


class FittedMatrixModel(FittedModel, Protocol):
    """A model that factorises over jobs, so that a matrix of all pairs needs only one encoding per job."""

    def to_matrix_onnx(self) -> bytes:
        """Return `matrix.onnx`: victims float32[v, F], victim_id int64[v], neighbours float32[n, F], neighbour_id
        int64[n] → log_victim float32[v, n] (victim i beside neighbour j), log_neighbour float32[v, n] (j beside i)."""


class ModelSettings(Protocol):
    """Frozen settings of a model."""

    @property
    def name(self) -> str:
        """Return a name unique among the compared models; `interfere.training.models.catalogue` has those that ship."""

    def fit(self, dataset: Dataset, seed: int) -> FittedModel:
        """Fit the model on all rows of `dataset`; equal seeds give equal models."""
