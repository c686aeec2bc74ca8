"""The quality of a table: how well repeated measurements agree, and how much an additive model explains.

`icc` is the one-way random intraclass correlation of a single block, ICC(1,1) of Shrout and Fleiss (1979), on log
slowdown: ``(MSB − MSW) / (MSB + (k − 1) MSW)`` over rows with k blocks each. `additive R²` is the share of the variance
of log slowdown that ``mean + victim + neighbour`` explains, by least squares on the table itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.additive_fit import fit_additive
from interfere.data.tables import Table
from interfere.records import NAN, PairMeasurement, PairStatus

MIN_ICC = 0.5  # below this a model would learn noise: training refuses the table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuality:
    """The quality figures of a table; NaN where there are too few rows."""

    rows_by_status: tuple[tuple[str, int], ...]
    icc: float
    icc_rows: int  # rows with at least two blocks
    additive_r2: float
    slowdown_median: float
    slowdown_p90: float
    slowdown_max: float
    over_two_frac: float  # share of rows with a slowdown above 2, the fair share of two busy jobs
    steal_p90: float


def domain_tables(table: Table) -> tuple[tuple[str, Table], ...]:
    """(title, rows and profiles) of each domain: device type, sharing mode and metric; by name.

    The title leaves out the metric where the table has one metric alone. Figures of a table are those of its domains:
    over several device types the levels differ, and an additive fit of all rows would explain none of that.
    """
    keys = sorted({(pair.device_type, pair.mode, pair.metric) for pair in table.pairs})
    metrics = {metric for _, _, metric in keys}
    found = []
    for device_type, mode, metric in keys:
        key = (device_type, mode, metric)
        jobs = sorted((job for job in table.jobs if job.device_type == device_type), key=lambda job: job.workload)
        pairs = sorted(
            (pair for pair in table.pairs if (pair.device_type, pair.mode, pair.metric) == key),
            key=lambda pair: (pair.victim, pair.neighbour),
        )
        title = ", ".join((device_type, mode, *((metric,) if len(metrics) > 1 else ())))
        found.append((title, Table(name=table.name, jobs=tuple(jobs), pairs=tuple(pairs))))
    return tuple(found)


def icc(passes: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    """ICC(1,1) of n rows with k values each (k equal, ≥ 2; n ≥ 2); NaN for fewer, or where nothing varies."""
    values = np.asarray(passes, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 2:
        return NAN
    n, k = values.shape
    means = values.mean(axis=1)
    between = k * float(((means - means.mean()) ** 2).sum()) / (n - 1)
    within = float(((values - means[:, None]) ** 2).sum()) / (n * (k - 1))
    total = between + (k - 1) * within
    return (between - within) / total if total > 0 else NAN


def additive_r2(victims: Sequence[str], neighbours: Sequence[str], log_slowdown: Sequence[float]) -> float:
    """R² of `log slowdown ~ mean + victim + neighbour`; NaN where nothing varies."""
    return fit_additive(victims, neighbours, log_slowdown).r2


def block_slowdowns(pair: PairMeasurement) -> tuple[float, ...]:
    """One slowdown per block. For a self pair, `passes` holds both sides of each block: their geometric mean counts."""
    if pair.victim != pair.neighbour or len(pair.passes) % 2:
        return pair.passes
    sides = zip(pair.passes[::2], pair.passes[1::2], strict=True)
    return tuple(float(np.sqrt(first * second)) for first, second in sides)


def table_quality(table: Table) -> TableQuality:
    """All quality figures of one table."""
    ok_pairs = table.ok_pairs
    slowdowns = np.array([pair.slowdown for pair in ok_pairs])
    first_two_blocks = [np.log(b[:2]) for pair in ok_pairs if len(b := block_slowdowns(pair)) >= 2]
    steal_frac = np.array([pair.steal_frac for pair in ok_pairs if pair.steal_frac == pair.steal_frac])
    counts = tuple((status.value, sum(pair.status is status for pair in table.pairs)) for status in PairStatus)

    def quantile(values: NDArray[np.float64], q: float) -> float:
        return float(np.quantile(values, q)) if len(values) else NAN

    return TableQuality(
        rows_by_status=counts,
        icc=icc(first_two_blocks),
        icc_rows=len(first_two_blocks),
        additive_r2=additive_r2(
            [pair.victim for pair in ok_pairs], [pair.neighbour for pair in ok_pairs], np.log(slowdowns).tolist()
        ),
        slowdown_median=quantile(slowdowns, 0.5),
        slowdown_p90=quantile(slowdowns, 0.9),
        slowdown_max=quantile(slowdowns, 1.0),
        over_two_frac=float((slowdowns > 2).mean()) if len(ok_pairs) else NAN,
        steal_p90=quantile(steal_frac, 0.9),
    )
