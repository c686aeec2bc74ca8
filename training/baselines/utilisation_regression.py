"""Two baselines that regress slowdown on the solo utilisation of the device by both jobs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interfere.training.baselines.baseline import (
    BANDWIDTH,
    COMPUTE,
    FittedRule,
    Floats,
    Rule,
    column_values,
    fit_per_domain,
    known_column,
    known_columns_of_both,
    no_prediction,
)
from interfere.training.dataset import Dataset, PairRows

MIN_SLOWDOWN = 0.5  # lower bound of what a line predicts: no measured slowdown is below it


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearUtilisation:
    """s = c0 + c1·compute[victim] + c2·compute[neighbour] + c3·bandwidth[victim] + c4·bandwidth[neighbour].

    gpulet (Choi et al., USENIX ATC 2022): a linear regression of the interference factor on the solo utilisation of L2
    and of DRAM bandwidth of both jobs, with one set of constants a GPU type. Here the utilisation of compute units, or
    the nearest known column, stands for L2, which no monitoring tool reports.
    """

    name: ClassVar[str] = "gpulet-linear"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares in each domain, over the rows for which all four inputs are known."""
        return fit_per_domain(self.name, dataset, self._fit_rule)

    def _fit_rule(self, dataset: Dataset) -> Rule:
        columns = known_columns_of_both(dataset, COMPUTE, BANDWIDTH)
        if columns is None:
            return no_prediction
        inputs = _with_intercept(column_values(dataset.rows, columns))
        known = np.isfinite(inputs).all(axis=1)
        root_weight = np.sqrt(dataset.weight[known])
        slowdown = np.exp(dataset.log_slowdown[known])
        coefficients = np.linalg.lstsq(inputs[known] * root_weight[:, None], slowdown * root_weight, rcond=None)[0]

        def rule(rows: PairRows) -> Floats:
            predicted = _with_intercept(column_values(rows, columns)) @ coefficients
            return np.asarray(np.log(np.maximum(MIN_SLOWDOWN, predicted)))

        return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthSum:
    """s = 1 + k[victim] · bandwidth[neighbour], with one common k for all victims without a training row.

    iGniter (Xu et al., IEEE TPDS 2023; `igniter-algorithm.py`): active time grows by k_i times the summed L2
    utilisation of the co-located jobs, with k_i fitted per workload from shared runs. Memory bandwidth stands for L2.
    iGniter's launch delays and clock frequency need a kernel count and a power model of each device; they are left out.
    """

    name: ClassVar[str] = "igniter-bandwidth"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares through the origin in each domain, for each victim and for all of them together."""
        return fit_per_domain(self.name, dataset, self._fit_rule)

    def _fit_rule(self, dataset: Dataset) -> Rule:
        column = known_column(dataset, "neighbour", BANDWIDTH)
        if column is None:
            return no_prediction
        bandwidth = column_values(dataset.rows, [column])[:, 0]
        known = np.isfinite(bandwidth)
        bandwidth, victim, weight = bandwidth[known], dataset.rows.victim[known], dataset.weight[known]
        excess = np.expm1(dataset.log_slowdown[known])
        identities = len(dataset.workloads) + 1
        numerator = np.bincount(victim, weights=weight * excess * bandwidth, minlength=identities)
        denominator = np.bincount(victim, weights=weight * bandwidth**2, minlength=identities)
        overall = numerator.sum() / denominator.sum() if denominator.sum() > 0 else 0.0
        k = np.divide(numerator, denominator, out=np.full(identities, overall), where=denominator > 0)

        def rule(rows: PairRows) -> Floats:
            predicted = 1 + k[rows.victim] * column_values(rows, [column])[:, 0]
            return np.asarray(np.log(np.maximum(MIN_SLOWDOWN, predicted)))

        return rule


def _with_intercept(inputs: Floats) -> Floats:
    """The inputs behind a column of ones."""
    return np.column_stack([np.ones(len(inputs)), inputs])
