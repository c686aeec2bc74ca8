"""What every baseline can do: be fitted, predict, and say which rows it has the inputs for.

Law 1: a row whose inputs are absent gets the mean of its domain, and `answers` says so: nothing is imputed.
Law 2: equal dataset and seed give equal predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from training.baselines.effects import FittedAdditive, MeanModel
from training.dataset import Dataset, Rows

Floats = NDArray[np.float64]
Rule = Callable[[Rows], Floats]
SHARE = 0.5  # of the rows a column must be known for, else the next best one is read

# The same resource as the sources at hand name it, the most direct one first. Static shares are of a roofline: time
# that the peak rate would need, over the step time.
COMPUTE = ("sm_active_frac", "gpu_util_frac", "busy_frac", "peak_flops_frac")
BANDWIDTH = ("dram_active_frac", "memory_util_frac", "peak_bandwidth_frac")
MEMORY = ("memory_peak_device_frac", "log_memory_peak_mib")


class FittedBaseline(Protocol):
    """A baseline after fitting: narrower than a model, never exported."""

    @property
    def name(self) -> str:
        """One of `training.baselines.BASELINES`."""

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""


class Baseline(Protocol):
    """Frozen settings of a baseline."""

    @property
    def name(self) -> str:
        """One of `training.baselines.BASELINES`."""

    def fit(self, dataset: Dataset, seed: int) -> FittedBaseline:
        """Learn from all rows of `dataset`."""


@runtime_checkable
class Choosy(Protocol):
    """A fitted baseline that cannot answer every row by its own rule."""

    def answers(self, rows: Rows) -> NDArray[np.bool_]:
        """bool[p]: rows answered by its rule; the others get the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRule:
    """A rule where it has an answer, the mean of the domain elsewhere."""

    name: str
    rule: Rule  # log slowdown, NaN where its inputs are absent
    mean: FittedAdditive

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""
        found = self.rule(rows)
        return np.where(np.isnan(found), self.mean.predict(rows), found)

    def answers(self, rows: Rows) -> NDArray[np.bool_]:
        """bool[p]: rows whose inputs are there."""
        return ~np.isnan(self.rule(rows))


def guarded(name: str, dataset: Dataset, rule: Rule) -> FittedRule:
    """The rule with the mean of `dataset` behind it."""
    return FittedRule(name=name, rule=rule, mean=MeanModel().fit(dataset, 0))


def by_domain(name: str, dataset: Dataset, fit: Callable[[Dataset], Rule]) -> FittedRule:
    """`fit` on each domain's rows, as sources do that fit once a device; on all rows for a domain that has none."""
    overall = fit(dataset)
    own = {int(d): fit(dataset.take(dataset.rows.domain == d)) for d in np.unique(dataset.rows.domain)}

    def rule(rows: Rows) -> Floats:
        found = np.full(len(rows), np.nan)
        for d in np.unique(rows.domain):
            here = rows.domain == d
            found[here] = own.get(int(d), overall)(rows.take(here))
        return found

    return guarded(name, dataset, rule)


def silent(rows: Rows) -> Floats:
    """The rule that never has an answer: what is left without any input."""
    return np.full(len(rows), np.nan)


def side(dataset: Dataset, role: str, names: Sequence[str]) -> int | None:
    """Pair column of the first job column known for at least `SHARE` of the rows; `role` is victim or neighbour."""
    for name in names:
        column = dataset.pair_names.index(f"{role}_{name}")
        if len(dataset) and np.isfinite(dataset.rows.pairs[:, column]).mean() >= SHARE:
            return column
    return None


def both_sides(dataset: Dataset, *resources: Sequence[str]) -> tuple[int, ...] | None:
    """Columns of victim, then neighbour, resource by resource; None where one of them is absent."""
    found = [side(dataset, role, names) for names in resources for role in ("victim", "neighbour")]
    return None if None in found else tuple(column for column in found if column is not None)


def values(rows: Rows, columns: Sequence[int]) -> Floats:
    """float64[p, c]."""
    return rows.pairs[:, list(columns)].astype(np.float64)
