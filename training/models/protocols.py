"""The protocols of a model: frozen settings that fit a dataset, and a fitted model that predicts and exports itself.

Law 1: `predict` and the exported graph read the same inputs (`PairRows`) and agree within the parity budget.
Law 2: equal dataset and seed give equal predictions.
Law 3: an identity that is in no training row is treated exactly as the unknown one (0).
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class NoveltyModel(Protocol):
    """A fitted model that tells how far a pair is from the jobs of training."""

    def novelty(self, rows: PairRows) -> NDArray[np.float64]:
        """Return how far each pair is from the jobs of training, float64[p] in [0, 1]."""


@runtime_checkable
class IntervalModel(Protocol):
    """A fitted model that may have intervals of its own."""

    def interval(self, rows: PairRows, levels: tuple[float, float]) -> NDArray[np.float64] | None:
        """Return the log slowdowns at two levels, float64[p, 2]; None for a model without intervals."""


@runtime_checkable
class PartialModel(Protocol):
    """A fitted model that predicts a mean for rows whose inputs it lacks."""

    def has_inputs(self, rows: PairRows) -> NDArray[np.bool_]:
        """Return bool[p]: whether the model itself predicts the row."""


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


@runtime_checkable
class DerivedModel(Protocol):
    """Settings of a model that stands on another one, and reuses it where it is fitted already."""

    def fit_beside(self, fitted: Mapping[str, FittedPredictor], dataset: Dataset, seed: int) -> FittedPredictor:
        """Fit as `fit` does; `fitted` are models that were fitted on these rows with this seed, by name."""


class ModelSettings(ScoredModel, Protocol):
    """Frozen settings of a model that can be published."""

    def fit(self, dataset: Dataset, seed: int) -> FittedModel:
        """Fit the model on all rows of `dataset`; equal seeds give equal models."""
