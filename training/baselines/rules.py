"""Two rules that learn nothing from other pairs: a constant discount, and the busiest resource."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from training.baselines.baseline import FittedRule, Floats, guarded
from training.dataset import Dataset, Rows

UNSEEN_SPEED = 0.95  # Eva: throughput of a pair that was never seen


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultThroughput:
    """ŷ = the speed that was measured for this very pair on this device type and mode, 0.95 for every other.

    Eva (Chang and Venkataraman, EuroSys 2025): a table of pairwise throughputs with 0.95 where nothing is
    known; beside several others a job's throughput is the product of the pairwise ones, beside one it has one factor.
    """

    name: ClassVar[str] = "eva-default"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """The last row of a pair counts."""
        seen = dict(zip(_keys(dataset.rows), dataset.log_slowdown.tolist(), strict=True))

        def rule(rows: Rows) -> Floats:
            return np.array([seen.get(key, -np.log(UNSEEN_SPEED)) for key in _keys(rows)], dtype=np.float64)

        return guarded(self.name, dataset, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePrior:
    """ŝ = max(1, what both want of the busiest resource), each demand as a share of the device's peak.

    Roofline (Williams, Waterman and Patterson, CACM 2009) for two jobs on one device: the encoder's column
    `roofline_log_slowdown`, from floating-point operations and bytes per step. Nothing is fitted.
    """

    name: ClassVar[str] = "roofline"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Only the mean that stands in."""
        column = dataset.pair_names.index("roofline_log_slowdown")
        return guarded(self.name, dataset, lambda rows: rows.pairs[:, column].astype(np.float64))


def _keys(rows: Rows) -> list[tuple[int, int, int]]:
    return list(zip(rows.victim.tolist(), rows.neighbour.tolist(), rows.domain.tolist(), strict=True))
