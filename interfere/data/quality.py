"""The quality of a table: how well repeated measurements agree, and how much an additive model explains.

`icc` is the one-way random intraclass correlation of a single block, ICC(1,1) of Shrout and Fleiss (1979), on log
slowdown: ``(MSB − MSW) / (MSB + (k − 1) MSW)`` over rows with k blocks each. `additive R²` is the share of the variance
of log slowdown that ``mean + victim + neighbour`` explains, by least squares on the table itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.additive_fit import fit_additive
from interfere.data.tables import Table
from interfere.records import NAN, GroupMeasurement, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode

MIN_ICC = 0.5  # below this a model would learn noise: training refuses the table


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownFigures:
    """Figures of measured slowdowns of pairs or of groups; NaN where there are too few rows."""

    rows_by_status: tuple[tuple[str, int], ...]
    icc: float
    icc_rows: int  # rows with at least two blocks
    slowdown_median: float
    slowdown_p90: float
    slowdown_max: float
    steal_p90: float

    def count(self, status: PairStatus) -> int:
        """Return the number of rows with a status."""
        return dict(self.rows_by_status)[status.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuality(SlowdownFigures):
    """The quality figures of the pairs of a table."""

    additive_r2: float
    over_two_frac: float  # share of rows with a slowdown above 2, the fair share of two busy jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuality(SlowdownFigures):
    """The quality figures of the groups of one size in one domain."""

    device_type: str
    mode: SharingMode
    metric: str
    size: int  # jobs of a group
    groups: int
    jobs: int  # workloads that take part
    blocks: tuple[int, ...]  # fewest and most accepted blocks of a valid row; empty where the table states none

    @property
    def title(self) -> str:
        """The domain and the size of the groups in words; the mean step time as metric is left out."""
        metric = () if self.metric == "step_time_mean" else (self.metric,)
        return ", ".join((self.device_type, self.mode, *metric, f"groups of {self.size}"))


def domain_tables(table: Table) -> tuple[tuple[str, Table], ...]:
    """Return (title, table) for each domain of a table: the pairs and profiles of a device type, sharing mode and
    metric.

    Where one job of each pair was important, pairs with an important victim and the others are separate domains. Titles
    leave the metric out where the table has one metric alone. Slowdowns are comparable only within a domain.
    """
    keys = sorted({_domain_key(pair) for pair in table.pairs})
    metrics = {metric for _, _, metric, _ in keys}
    found = []
    for key in keys:
        device_type, mode, metric, important = key
        jobs = sorted((job for job in table.jobs if job.device_type == device_type), key=lambda job: job.workload)
        pairs = sorted(
            (pair for pair in table.pairs if _domain_key(pair) == key),
            key=lambda pair: (pair.victim, pair.neighbour),
        )
        role = (f"{important} important",) if important else ()
        title = ", ".join((device_type, mode, *((metric,) if len(metrics) > 1 else ()), *role))
        found.append((title, Table(name=table.name, jobs=tuple(jobs), pairs=tuple(pairs))))
    return tuple(found)


def _domain_key(pair: PairMeasurement) -> tuple[str, str, str, str]:
    return pair.device_type, pair.mode, pair.metric, pair.important


def icc(passes: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    """Return ICC(1,1) of n rows with k values each (k equal and at least 2, n at least 2).

    NaN for fewer values, or where nothing varies.
    """
    values = np.asarray(passes, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 2:
        return NAN
    n, k = values.shape
    means = values.mean(axis=1)
    between = k * float(((means - means.mean()) ** 2).sum()) / (n - 1)
    within = float(((values - means[:, None]) ** 2).sum()) / (n * (k - 1))
    total = between + (k - 1) * within
    return (between - within) / total if total > 0 else NAN


def block_slowdowns(row: PairMeasurement | GroupMeasurement) -> tuple[float, ...]:
    """Return the slowdown of a row in each block.

    Where copies of the victim ran together, `passes` holds a slowdown of each copy in each block. The slowdown of the
    block is their geometric mean.
    """
    copies = row.copies if isinstance(row, GroupMeasurement) else 1
    if isinstance(row, PairMeasurement) and row.victim == row.neighbour and not row.important:
        copies = 2
    if copies == 1 or len(row.passes) % copies:
        return row.passes
    log_slowdowns = np.log(np.reshape(row.passes, (-1, copies)))
    return tuple(map(float, np.exp(log_slowdowns.mean(axis=1))))


def table_quality(table: Table) -> TableQuality:
    """Return all quality figures of the pairs of one table."""
    ok_pairs = table.ok_pairs
    slowdowns = np.array([pair.slowdown for pair in ok_pairs])
    victims, neighbours = [pair.victim for pair in ok_pairs], [pair.neighbour for pair in ok_pairs]
    return TableQuality(
        **_figures(table.pairs),
        additive_r2=fit_additive(victims, neighbours, np.log(slowdowns).tolist()).r2,
        over_two_frac=float((slowdowns > 2).mean()) if len(ok_pairs) else NAN,
    )


def group_quality(table: Table) -> tuple[GroupQuality, ...]:
    """Return the quality figures of the groups of each size, by device type, mode and metric."""
    rows_by_key: dict[tuple[str, SharingMode, str, int], list[GroupMeasurement]] = {}
    for row in table.groups:
        rows_by_key.setdefault((row.device_type, row.mode, row.metric, len(row.members)), []).append(row)
    return tuple(_group_quality(rows) for _, rows in sorted(rows_by_key.items()))


def _group_quality(rows: Sequence[GroupMeasurement]) -> GroupQuality:
    """Return the quality figures of the rows of groups of one size in one domain."""
    first, ok = rows[0], [row for row in rows if row.status is PairStatus.OK]
    blocks = [len(row.passes) // row.members.count(row.victim) for row in ok if row.passes]
    return GroupQuality(
        **_figures(rows),
        device_type=first.device_type,
        mode=first.mode,
        metric=first.metric,
        size=len(first.members),
        groups=len({row.members for row in rows}),
        jobs=len({row.victim for row in rows}),
        blocks=(min(blocks), max(blocks)) if blocks else (),
    )


def _figures(rows: Sequence[PairMeasurement | GroupMeasurement]) -> dict[str, Any]:
    """Return the fields of SlowdownFigures; the ICC compares the first two blocks of each row."""
    ok = [row for row in rows if row.status is PairStatus.OK]
    first_two = [np.log(blocks[:2]) for row in ok if len(blocks := block_slowdowns(row)) >= 2]
    slowdowns = [row.slowdown for row in ok]
    return {
        "rows_by_status": tuple((status.value, sum(row.status is status for row in rows)) for status in PairStatus),
        "icc": icc(first_two),
        "icc_rows": len(first_two),
        "slowdown_median": _quantile(slowdowns, 0.5),
        "slowdown_p90": _quantile(slowdowns, 0.9),
        "slowdown_max": _quantile(slowdowns, 1.0),
        "steal_p90": _quantile([row.steal_frac for row in ok if row.steal_frac == row.steal_frac], 0.9),
    }


def _quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else NAN
