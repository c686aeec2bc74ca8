"""What every baseline can do: be fitted, predict, and tell which rows it has the inputs for.

Law 1: a row whose inputs are absent gets the mean of its domain, and `has_inputs` tells so: nothing is imputed.
Law 2: equal dataset and seed give equal predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.additive import FittedAdditive, MeanModel

Floats = NDArray[np.float64]
Rule = Callable[[PairRows], Floats]  # log slowdown float64[p], NaN where the rule has no inputs
MIN_KNOWN_SHARE = 0.5  # of the rows must know a column, else the next column of its resource is read

# Columns of one resource, as different sources name it, the most direct one first. Static columns are roofline shares:
# the time that the peak rate would need ÷ the step time.
COMPUTE = ("sm_active_frac", "gpu_util_frac", "busy_frac", "peak_flops_frac")
BANDWIDTH = ("dram_active_frac", "memory_util_frac", "peak_bandwidth_frac")
MEMORY = ("memory_peak_device_frac", "log_memory_peak_mib")


class FittedBaseline(Protocol):
    """A baseline after fitting; unlike a model it is never exported."""

    @property
    def name(self) -> str:
        """One of `interfere.training.baselines.BASELINES`."""

    def predict(self, rows: PairRows) -> Floats:
        """Predicted log slowdowns, float64[p]."""


class Baseline(Protocol):
    """Frozen settings of a baseline."""

    @property
    def name(self) -> str:
        """One of `interfere.training.baselines.BASELINES`."""

    def fit(self, dataset: Dataset, seed: int) -> FittedBaseline:
        """Fit on all rows of `dataset`."""


@runtime_checkable
class PartialBaseline(Protocol):
    """A fitted baseline that lacks the inputs of some rows and predicts the mean there."""

    def has_inputs(self, rows: PairRows) -> NDArray[np.bool_]:
        """Return bool[p]: whether the rule of the baseline predicts the row. The mean predicts all other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRule:
    """A rule for the rows that have its inputs, and the mean of the domain for the others."""

    name: str
    rule: Rule
    mean: FittedAdditive

    def predict(self, rows: PairRows) -> Floats:
        """Predicted log slowdowns, float64[p]."""
        predicted = self.rule(rows)
        return np.where(np.isnan(predicted), self.mean.predict(rows), predicted)

    def has_inputs(self, rows: PairRows) -> NDArray[np.bool_]:
        """bool[p]: rows that the rule has the inputs for."""
        return ~np.isnan(self.rule(rows))


def with_mean_fallback(name: str, dataset: Dataset, rule: Rule) -> FittedRule:
    """The rule, with the mean of `dataset` where it has no inputs."""
    return FittedRule(name=name, rule=rule, mean=MeanModel().fit(dataset, 0))


def fit_per_domain(name: str, dataset: Dataset, fit: Callable[[Dataset], Rule]) -> FittedRule:
    """Fit one rule per domain, as the published methods fit one per device. An unknown domain uses a rule fitted on all
    rows."""
    overall_rule = fit(dataset)
    domain_rules = {int(d): fit(dataset.take(dataset.rows.domain == d)) for d in np.unique(dataset.rows.domain)}

    def rule(rows: PairRows) -> Floats:
        predicted = np.full(len(rows), np.nan)
        for d in np.unique(rows.domain):
            in_domain = rows.domain == d
            predicted[in_domain] = domain_rules.get(int(d), overall_rule)(rows.take(in_domain))
        return predicted

    return with_mean_fallback(name, dataset, rule)


def no_prediction(rows: PairRows) -> Floats:
    """The rule that predicts no row: for a dataset without the inputs."""
    return np.full(len(rows), np.nan)


def known_column(dataset: Dataset, role: str, names: Sequence[str]) -> int | None:
    """Index of the first pair column among `names` that at least `MIN_KNOWN_SHARE` of the rows know; None for none.

    `role` is victim or neighbour.
    """
    for name in names:
        column = dataset.pair_columns.index(f"{role}_{name}")
        if len(dataset) and np.isfinite(dataset.rows.pairs[:, column]).mean() >= MIN_KNOWN_SHARE:
            return column
    return None


def known_columns_of_both(dataset: Dataset, *resources: Sequence[str]) -> tuple[int, ...] | None:
    """Columns of victim, then neighbour, for each resource in turn; None where any of them is unknown."""
    columns = [known_column(dataset, role, names) for names in resources for role in ("victim", "neighbour")]
    return None if None in columns else tuple(column for column in columns if column is not None)


def column_values(rows: PairRows, columns: Sequence[int]) -> Floats:
    """Values of c pair columns, float64[p, c]."""
    return rows.pairs[:, list(columns)].astype(np.float64)
