"""Two baselines that learn nothing from other pairs: a constant throughput, and the busiest resource."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interfere.training.baselines.baseline import FittedRule, Floats, with_mean_fallback
from interfere.training.dataset import Dataset, PairRows

UNSEEN_SPEED = 0.95  # Eva: throughput of a pair that was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultThroughput:
    """ŷ = the measured speed of this very pair on this device type and mode, 0.95 for every pair without one.

    Eva (Chang and Venkataraman, EuroSys 2025): a table of pairwise throughputs with 0.95 where nothing is known. The
    throughput of a job beside several others is the product of the pairwise ones; beside one it is a single factor.
    """

    name: ClassVar[str] = "eva-default"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Store the last row of each pair."""
        measured = dict(zip(_keys(dataset.rows), dataset.log_slowdown.tolist(), strict=True))

        def rule(rows: PairRows) -> Floats:
            return np.array([measured.get(key, -np.log(UNSEEN_SPEED)) for key in _keys(rows)], dtype=np.float64)

        return with_mean_fallback(self.name, dataset, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePrior:
    """ŝ = max(1, demand of both jobs on the busiest resource), each demand as a share of the device's peak.

    Roofline (Williams, Waterman and Patterson, CACM 2009) for two jobs on one device: the encoder's column
    `roofline_log_slowdown`, from floating-point operations and bytes per step. Only the fallback mean is fitted.
    """

    name: ClassVar[str] = "roofline"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Fit the fallback mean."""
        column = dataset.pair_columns.index("roofline_log_slowdown")
        return with_mean_fallback(self.name, dataset, lambda rows: rows.pairs[:, column].astype(np.float64))


def _keys(rows: PairRows) -> list[tuple[int, int, int]]:
    """(victim, neighbour, domain) of each row."""
    return list(zip(rows.victim.tolist(), rows.neighbour.tolist(), rows.domain.tolist(), strict=True))
