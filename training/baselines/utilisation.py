"""Slowdown as a linear function of how much of the device each of the two uses alone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from training.baselines.baseline import (
    BANDWIDTH,
    COMPUTE,
    FittedRule,
    Floats,
    Rule,
    both_sides,
    by_domain,
    side,
    silent,
    values,
)
from training.dataset import Dataset, Rows

FASTEST = 0.5  # a line may leave the range of slowdowns: none is below this, the reciprocal of a speed of 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearUtilisation:
    """s = c0 + c1·compute[victim] + c2·compute[neighbour] + c3·bandwidth[victim] + c4·bandwidth[neighbour].

    gpulet (Choi et al., USENIX ATC 2022): a linear regression of the interference factor on the solo
    utilisation of L2 and of DRAM bandwidth of both, one set of constants a GPU type. Here the utilisation of compute
    units, or the nearest thing known, stands for L2, which no monitoring tool reports.
    """

    name: ClassVar[str] = "gpulet-linear"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares over the rows where all four are known, a device type and mode by itself."""
        return by_domain(self.name, dataset, self._solve)

    def _solve(self, dataset: Dataset) -> Rule:
        columns = both_sides(dataset, COMPUTE, BANDWIDTH)
        if columns is None:
            return silent
        inputs = _with_one(values(dataset.rows, columns))
        known = np.isfinite(inputs).all(axis=1)
        root = np.sqrt(dataset.weight[known])
        slowdown = np.exp(dataset.log_slowdown[known])
        weights = np.linalg.lstsq(inputs[known] * root[:, None], slowdown * root, rcond=None)[0]
        return lambda rows: np.asarray(np.log(np.maximum(FASTEST, _with_one(values(rows, columns)) @ weights)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthSum:
    """s = 1 + k[victim] · bandwidth[neighbour]; one k for all victims that were never seen.

    iGniter (Xu et al., IEEE TPDS 2023; `igniter-algorithm.py`): active time grows by k_i times the sum of the L2
    utilisation of the others, k_i fitted per workload from runs in company. Memory bandwidth stands for L2; its launch
    delays and clock frequency need a kernel count and a power model of each device, and are left out.
    """

    name: ClassVar[str] = "igniter-bandwidth"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares through the origin, a victim by itself and all together, a device type and mode by itself."""
        return by_domain(self.name, dataset, self._solve)

    def _solve(self, dataset: Dataset) -> Rule:
        column = side(dataset, "neighbour", BANDWIDTH)
        if column is None:
            return silent
        wanted = values(dataset.rows, [column])[:, 0]
        known = np.isfinite(wanted)
        wanted, victim, weight = wanted[known], dataset.rows.victim[known], dataset.weight[known]
        excess = np.expm1(dataset.log_slowdown[known])
        size = len(dataset.workloads) + 1
        above = np.bincount(victim, weights=weight * excess * wanted, minlength=size)
        below = np.bincount(victim, weights=weight * wanted**2, minlength=size)
        overall = above.sum() / below.sum() if below.sum() > 0 else 0.0
        own = np.divide(above, below, out=np.full(size, overall), where=below > 0)

        def rule(rows: Rows) -> Floats:
            return np.asarray(np.log(np.maximum(FASTEST, 1 + own[rows.victim] * values(rows, [column])[:, 0])))

        return rule


def _with_one(inputs: Floats) -> Floats:
    return np.column_stack([np.ones(len(inputs)), inputs])
