"""Measures drift: whether newly observed jobs and pairs still look like those that the models were trained on.

Jobs: for each job column, a two-sample Kolmogorov-Smirnov test between the encoded jobs of the base tables and those of
the new table; drifted where p < `ALPHA` ÷ number of columns (Bonferroni).

Pairs: observed slowdown ÷ expected slowdown. The expectation is what the base tables measured, else what the champion
predicts. Drifted where the log ratio exceeds `TOLERANCE` and the observed 95 % interval excludes the expectation.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.protocols import PairEncoder
from interfere.records import JobProfile
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from interfere.training.dataset import NOISE_FLOOR, Dataset, build_dataset
from interfere.training.evaluation.gating.champion import PublishedChampion

ALPHA = 0.01
TOLERANCE = 2 * NOISE_FLOOR  # log slowdown: twice the error of the models themselves
MAX_LISTED = 10  # pairs and columns in the text report; the document has all


class Expectation(StrEnum):
    """The expected slowdown of an observed pair."""

    MEASURED = "measured before"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDrift:
    """The drift of one column of encoded jobs between the base tables and the new table."""

    column: str
    statistic: float  # largest difference of the two distribution functions
    p_value: float
    drifted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDrift:
    """One observed ordered pair and its expected slowdown."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    observed: float  # slowdown
    expected: float  # slowdown
    source: Expectation
    drifted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Columns by ascending p, pairs by descending deviation."""

    columns: tuple[ColumnDrift, ...]
    pairs: tuple[PairDrift, ...]  # only pairs with an expectation
    unexpected: int  # number of observed pairs without an expectation
    bias: float  # median of log(observed ÷ expected); NaN without pairs

    def document(self) -> dict[str, Any]:
        """The whole report as a JSON document."""
        return asdict(self)

    def markdown(self) -> str:
        """The report as text: how many pairs and columns drifted, and which drifted most."""
        columns, pairs = [c for c in self.columns if c.drifted], [p for p in self.pairs if p.drifted]
        lines = [
            f"drift: {len(pairs)} of {len(self.pairs)} observed pairs are more than {math.expm1(TOLERANCE):.0%} off "
            f"what was expected and outside their own interval, {self.unexpected} had no expectation; "
            f"{len(columns)} of {len(self.columns)} columns of the jobs differ (Kolmogorov-Smirnov, p < "
            f"{ALPHA} ÷ {len(self.columns)})"
        ]
        if self.pairs:
            lines.append(f"median observed ÷ expected: {math.exp(self.bias):.3f}")
        lines += [
            f"- {p.victim} beside {p.neighbour} on {p.device_type}, {p.mode}: observed {p.observed:.3f} ×, "
            f"{p.source} {p.expected:.3f} ×"
            for p in pairs[:MAX_LISTED]
        ]
        lines += [f"- {c.column}: distance {c.statistic:.2f}, p {c.p_value:.2g}" for c in columns[:MAX_LISTED]]
        return "\n".join(lines)


def measure_drift(
    base: Sequence[Table], new: Table, encoder: PairEncoder, champion: PublishedChampion | None
) -> DriftReport:
    """The drift of `new`, which must hold an ok pair; without a champion only pairs of the base tables are expected."""
    observed = build_dataset([new], encoder)
    expected, sources = _expected_slowdowns(observed, build_dataset(base, encoder), champion)
    has_expectation = np.isfinite(expected)
    deviation = observed.log_slowdown - expected
    inside_interval = (
        (observed.lower < observed.upper) & (np.log(observed.lower) <= expected) & (expected <= np.log(observed.upper))
    )
    by_deviation = np.argsort(-np.abs(np.where(has_expectation, deviation, 0.0)), kind="stable").tolist()
    pairs = [
        PairDrift(
            victim=observed.workloads[observed.rows.victim[k] - 1],
            neighbour=observed.workloads[observed.rows.neighbour[k] - 1],
            device_type=observed.domains[observed.domain[k]].device_type,
            mode=observed.domains[observed.domain[k]].mode,
            observed=float(np.exp(observed.log_slowdown[k])),
            expected=float(np.exp(expected[k])),
            source=sources[k],
            drifted=bool(abs(deviation[k]) > TOLERANCE and not inside_interval[k]),
        )
        for k in by_deviation
        if has_expectation[k]
    ]
    return DriftReport(
        columns=_column_drifts([job for table in base for job in table.jobs], new.jobs, encoder),
        pairs=tuple(pairs),
        unexpected=int((~has_expectation).sum()),
        bias=float(np.median(deviation[has_expectation])) if has_expectation.any() else float("nan"),
    )


def _expected_slowdowns(
    observed: Dataset, base: Dataset, champion: PublishedChampion | None
) -> tuple[NDArray[np.float64], list[Expectation]]:
    """(expected log slowdown, NaN where there is none; its source), one entry per observed row."""
    measured = {_row_key(base, k): value for k, value in enumerate(base.log_slowdown.tolist())}  # the last table wins
    expected = np.array([measured.get(_row_key(observed, k), np.nan) for k in range(len(observed))])
    sources = [Expectation.PREDICTED if math.isnan(value) else Expectation.MEASURED for value in expected.tolist()]
    if champion is not None and champion.graph is not None:
        predicted, known = champion.predict(observed)
        expected = np.where(np.isnan(expected) & known, predicted, expected)
    return expected, sources


def _row_key(dataset: Dataset, row: int) -> tuple[object, ...]:
    """(victim's name, neighbour's name, domain) of a row: the same for equal pairs of two datasets."""
    victim, neighbour = dataset.rows.victim[row] - 1, dataset.rows.neighbour[row] - 1
    return dataset.workloads[victim], dataset.workloads[neighbour], dataset.domains[dataset.domain[row]]


def _column_drifts(
    base: Sequence[JobProfile], new: Sequence[JobProfile], encoder: PairEncoder
) -> tuple[ColumnDrift, ...]:
    """The columns that vary and have values on both sides, by ascending p."""
    from scipy.stats import ks_2samp

    base_rows, new_rows = (
        np.concatenate([encoder.encode_jobs([job], job.device_type, DEFAULT_MODE) for job in jobs])
        for jobs in (base, new)
    )
    results = []
    for k, name in enumerate(encoder.job_names):
        base_values, new_values = (
            rows[:, k][np.isfinite(rows[:, k])].astype(np.float64) for rows in (base_rows, new_rows)
        )
        if len(base_values) and len(new_values) and np.ptp(np.concatenate([base_values, new_values])) > 0:
            test = ks_2samp(base_values, new_values)
            results.append((name, float(test.statistic), float(test.pvalue)))
    return tuple(
        ColumnDrift(column=name, statistic=statistic, p_value=p, drifted=p < ALPHA / len(results))
        for name, statistic, p in sorted(results, key=lambda result: (result[2], result[0]))
    )
