"""Estimators of other packages as models: anything with scikit-learn's `fit` and `predict`, on a DataFrame of pairs.

One row per measured ordered pair: a job (the victim) beside another (the neighbour). The index holds victim, neighbour,
device_type and mode; the columns are the numbers of `interfere.features`, named with their units, NaN where a fact is
unknown. Columns of which the rows of training hold no number are left out. The target is the slowdown of the victim:
its step time beside the neighbour over its step time alone.

Where the estimator has `predict_quantiles(X, quantiles)`, its answer, float64[p, q], is the interval of each
prediction; of any other the interval is that which its errors on the other folds imply.

Law: equal rows and seed give equal predictions, where the estimator's `random_state` is all that is random in it.
"""

import copy
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.extensions import ExtensionKind, find_extension
from interfere.training.dataset import Dataset, PairRows

if TYPE_CHECKING:
    import pandas as pd

INDEX = ("victim", "neighbour", "device_type", "mode")
UNKNOWN = ""  # in the index: a workload or domain that the table does not hold
FIT_AND_PREDICT = "give a class or an object with fit(X, y) and predict(X), as scikit-learn's estimators have"

Floats = NDArray[np.float64]
FeatureFunction = Callable[["pd.DataFrame"], Any]
"""A DataFrame of pairs -> one value a row: a column of one's own."""


def pair_frame(dataset: Dataset) -> "pd.DataFrame":
    """Return the pairs of a dataset as the DataFrame that estimators read."""
    return FrameColumns.of(dataset).frame(dataset.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameColumns:
    """The names behind the numbers of a dataset's rows."""

    columns: tuple[tuple[int, str], ...]  # (place among the encoder's columns, name)
    workloads: tuple[str, ...]  # by identity; 0 is unknown
    device_types: tuple[str, ...]  # by identity of the domain; 0 is unknown
    modes: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> "FrameColumns":
        """Return the names of a dataset."""
        has_number = np.any(np.isfinite(dataset.rows.pairs), axis=0).tolist()
        return cls(
            columns=tuple((k, name) for k, name in enumerate(dataset.pair_columns) if has_number[k]),
            workloads=(UNKNOWN, *dataset.workloads),
            device_types=(UNKNOWN, *(domain.device_type for domain in dataset.domains)),
            modes=(UNKNOWN, *(str(domain.mode) for domain in dataset.domains)),
        )

    def frame(self, rows: PairRows, features: Sequence["OwnFeature"] = ()) -> "pd.DataFrame":
        """Return rows as a DataFrame, with the columns of one's own after ours."""
        import pandas as pd

        names = (
            np.array(known, dtype=object)[identity]
            for known, identity in (
                (self.workloads, rows.victim),
                (self.workloads, rows.neighbour),
                (self.device_types, rows.domain),
                (self.modes, rows.domain),
            )
        )
        index = pd.MultiIndex.from_arrays(list(names), names=INDEX)
        places, columns = [place for place, _ in self.columns], [name for _, name in self.columns]
        ours = pd.DataFrame(rows.pairs[:, places].astype(np.float64), index=index, columns=columns)
        return ours.assign(**{feature.name: feature.values(ours) for feature in features})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFeature:
    """A column of one's own: a function from the DataFrame of pairs, by its name `package:function`."""

    reference: str
    source: str  # checksum of its module

    @classmethod
    def named(cls, reference: str) -> "OwnFeature":
        """Return the feature of this name. Raises InvalidInputError without one, UnfitError for a broken one."""
        return cls(reference=reference, source=_source_digest(find_extension(ExtensionKind.FEATURE, reference)))

    @property
    def name(self) -> str:
        """Return the name of the column: that of the function."""
        return self.reference.rpartition(":")[2]

    def values(self, frame: "pd.DataFrame") -> Floats:
        """Return the column, float64[p]. Raises InvalidInputError where the function fails or gives no number a row."""
        function: FeatureFunction = find_extension(ExtensionKind.FEATURE, self.reference)
        try:
            column = np.asarray(function(frame.copy()), dtype=np.float64)
        except Exception as error:
            raise _failure("feature", self.reference, "gives no column", error) from error
        return _checked(column, (len(frame),), "feature", self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedEstimator:
    """A fitted estimator with the names of the columns that it reads. It is never exported."""

    name: str
    estimator: Any
    names: FrameColumns
    features: tuple[OwnFeature, ...]

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]. Raises InvalidInputError for anything but positive slowdowns."""
        return self._asked("predict", rows, (len(rows),))

    def interval(self, rows: PairRows, levels: tuple[float, float]) -> Floats | None:
        """Return the log slowdowns at two levels, float64[p, 2]; None where the estimator knows no quantiles."""
        if not hasattr(self.estimator, "predict_quantiles"):
            return None
        return self._asked("predict_quantiles", rows, (len(rows), len(levels)), levels)

    def _asked(self, method: str, rows: PairRows, shape: tuple[int, ...], *arguments: object) -> Floats:
        frame = self.names.frame(rows, self.features)
        try:
            slowdown = np.asarray(getattr(self.estimator, method)(frame, *arguments), dtype=np.float64)
        except Exception as error:
            raise _failure("model", self.name, f"cannot {method}", error) from error
        slowdown = _checked(slowdown, shape, "model", self.name)
        if not (slowdown > 0).all():
            value = f"{self.name}: {slowdown[~(slowdown > 0)].flat[0]}"
            raise InvalidInputError(
                "a model predicts no slowdown", value=value, remedy="predict positive finite numbers"
            )
        return np.log(slowdown)


@dataclass(frozen=True, kw_only=True)
class EstimatorModel:
    """The settings of a model that wraps an estimator of another package: its constructor and its columns."""

    name: str
    source: str  # checksum of the module that defines it: kept results of other code are not taken for its own
    features: tuple[OwnFeature, ...] = ()
    given: Any = field(repr=False, compare=False)  # a class, or an unfitted object

    def fit(self, dataset: Dataset, seed: int) -> FittedEstimator:
        """Fit a new estimator on all rows, seeded by `random_state` where it has this parameter.

        Rows that were measured more precisely weigh more, where its `fit` takes `sample_weight`.
        """
        estimator, names = self._made(seed), FrameColumns.of(dataset)
        takes_weight = "sample_weight" in inspect.signature(estimator.fit).parameters
        weight = {"sample_weight": dataset.weight} if takes_weight else {}
        import pandas as pd

        frame = names.frame(dataset.rows, self.features)
        try:
            estimator.fit(frame, pd.Series(np.exp(dataset.log_slowdown), index=frame.index, name="slowdown"), **weight)
        except Exception as error:
            raise _failure("model", self.name, "cannot fit", error) from error
        return FittedEstimator(name=self.name, estimator=estimator, names=names, features=self.features)

    def _made(self, seed: int) -> Any:
        try:
            estimator = self.given() if isinstance(self.given, type) else copy.deepcopy(self.given)
        except Exception as error:
            raise _failure("model", self.name, "cannot be made", error) from error
        if "random_state" in getattr(estimator, "get_params", dict)():
            estimator.set_params(random_state=seed)
        return estimator


def estimator_model(name: str, given: Any, features: Sequence[OwnFeature] = ()) -> EstimatorModel:
    """Return the model that an estimator, its class, or a function that makes one is.

    Raises InvalidInputError for anything else.
    """
    if not isinstance(given, type) and not hasattr(given, "fit") and callable(given):
        given = given()
    if not all(callable(getattr(given, verb, None)) for verb in ("fit", "predict")):
        raise InvalidInputError("no model", value=f"{name}: {type(given).__name__}", remedy=FIT_AND_PREDICT)
    return EstimatorModel(name=name, given=given, features=tuple(features), source=_source_digest(given))


def _source_digest(given: Any) -> str:
    """Return a checksum of the module that defines an object, and of the settings that an estimator prints."""
    module = inspect.getmodule(given if inspect.isroutine(given) or isinstance(given, type) else type(given))
    try:
        text = inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        text = ""
    settings = "" if isinstance(given, type) or not hasattr(given, "get_params") else repr(given)
    return hashlib.sha256(f"{text}{settings}".encode()).hexdigest()[:16]


def _checked(values: Floats, shape: tuple[int, ...], kind: str, name: str) -> Floats:
    if values.shape != shape or not np.isfinite(values if kind == "model" else 0.0).all():
        found = f"{values.shape}" if values.shape != shape else "NaN or infinity"
        raise InvalidInputError(
            f"a {kind} gives the wrong numbers", value=f"{name}: {found}", remedy=f"give {shape} numbers"
        )
    return values


def _failure(kind: str, name: str, what: str, error: Exception) -> InvalidInputError:
    text = f"{name}: {type(error).__name__}: {error}".partition("\n")[0]
    hint = "; facts that a job lacks are NaN: fill them (SimpleImputer)" if "NaN" in str(error) else ""
    return InvalidInputError(f"a {kind} of another package {what}", value=text[:400], remedy=f"{FIT_AND_PREDICT}{hint}")
