"""Has the world moved away from what was learned? Jobs by the columns models read, pairs by what was expected of them.

Columns: two-sample Kolmogorov-Smirnov test between the encoded jobs of the base tables and those of the new one;
drifted where p < `ALPHA` ÷ number of columns (Bonferroni). Pairs: observed slowdown ÷ expected one, which is what the
base tables measured, else what the champion predicts; drifted where it is off by more than `FAR` and the observed 95 %
interval does not hold it.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.protocols import PairEncoder
from interfere.records import JobProfile
from training.dataset import NOISE_FLOOR, Dataset, build_dataset
from training.evaluation.gate_rows import Rival

ALPHA = 0.01
FAR = 2 * NOISE_FLOOR  # in log slowdown: twice what the models miss by themselves
SHOWN = 10  # of each kind in print; all are in the document
MEASURED, PREDICTED = "measured before", "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDrift:
    """One column of encoded jobs, in the base tables and in the new one."""

    column: str
    statistic: float  # largest distance of the two distribution functions
    p_value: float
    drifted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDrift:
    """One observed ordered pair beside what was expected of it."""

    victim: str
    neighbour: str
    device_type: str
    mode: str
    observed: float  # slowdown
    expected: float  # slowdown
    source: str  # `MEASURED` or `PREDICTED`
    drifted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Columns by p, pairs by how far off; `unexpected` pairs had nothing to be compared with."""

    columns: tuple[ColumnDrift, ...]
    pairs: tuple[PairDrift, ...]
    unexpected: int
    bias: float  # median of log(observed ÷ expected); NaN without pairs

    def document(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def markdown(self) -> str:
        """For people: how many drifted, and the worst."""
        columns, pairs = [c for c in self.columns if c.drifted], [p for p in self.pairs if p.drifted]
        lines = [
            f"drift: {len(pairs)} of {len(self.pairs)} observed pairs are more than {math.expm1(FAR):.0%} off what was "
            f"expected and outside their own interval, {self.unexpected} had no expectation; "
            f"{len(columns)} of {len(self.columns)} columns of the jobs differ (Kolmogorov-Smirnov, p < "
            f"{ALPHA} ÷ {len(self.columns)})"
        ]
        if self.pairs:
            lines.append(f"median observed ÷ expected: {math.exp(self.bias):.3f}")
        lines += [
            f"- {p.victim} beside {p.neighbour} on {p.device_type}, {p.mode}: observed {p.observed:.3f} ×, "
            f"{p.source} {p.expected:.3f} ×"
            for p in pairs[:SHOWN]
        ]
        lines += [f"- {c.column}: distance {c.statistic:.2f}, p {c.p_value:.2g}" for c in columns[:SHOWN]]
        return "\n".join(lines)


def drift_of(base: Sequence[Table], new: Table, encoder: PairEncoder, champion: Rival | None) -> Drift:
    """`new` must hold an ok pair. Without a champion only pairs of the base tables have an expectation."""
    rows = build_dataset([new], encoder)
    expected, source = _expected(rows, build_dataset(base, encoder), champion)
    known = np.isfinite(expected)
    apart = rows.log_slowdown - expected
    inside = (rows.lower < rows.upper) & (np.log(rows.lower) <= expected) & (expected <= np.log(rows.upper))
    order = [k for k in np.argsort(-np.abs(np.where(known, apart, 0.0)), kind="stable").tolist() if known[k]]
    pairs = [
        PairDrift(
            victim=rows.workloads[rows.rows.victim[k] - 1],
            neighbour=rows.workloads[rows.rows.neighbour[k] - 1],
            device_type=rows.domains[rows.domain[k]].device_type,
            mode=rows.domains[rows.domain[k]].mode,
            observed=float(np.exp(rows.log_slowdown[k])),
            expected=float(np.exp(expected[k])),
            source=source[k],
            drifted=bool(abs(apart[k]) > FAR and not inside[k]),
        )
        for k in order
    ]
    return Drift(
        columns=_columns([job for table in base for job in table.jobs], new.jobs, encoder),
        pairs=tuple(pairs),
        unexpected=int((~known).sum()),
        bias=float(np.median(apart[known])) if known.any() else float("nan"),
    )


def _expected(rows: Dataset, base: Dataset, champion: Rival | None) -> tuple[NDArray[np.float64], list[str]]:
    """(log slowdown, NaN where nothing is expected; where from), one entry a row."""
    measured = {_names(base, k): value for k, value in enumerate(base.log_slowdown.tolist())}  # the last table wins
    expected = np.array([measured.get(_names(rows, k), np.nan) for k in range(len(rows))])
    source = [PREDICTED if math.isnan(value) else MEASURED for value in expected.tolist()]
    if champion is not None and champion.graph is not None:
        predicted, answered = champion.answers(rows)
        expected = np.where(np.isnan(expected) & answered, predicted, expected)
    return expected, source


def _names(dataset: Dataset, row: int) -> tuple[object, ...]:
    ids = dataset.rows.victim[row] - 1, dataset.rows.neighbour[row] - 1
    return (*(dataset.workloads[k] for k in ids), dataset.domains[dataset.domain[row]])


def _columns(base: Sequence[JobProfile], new: Sequence[JobProfile], encoder: PairEncoder) -> tuple[ColumnDrift, ...]:
    """Columns that both sides know, the likeliest to have moved first."""
    from scipy.stats import ks_2samp

    both = [
        np.concatenate([encoder.encode_jobs([j], j.device_type, "timeslice") for j in side]) for side in (base, new)
    ]
    found = []
    for k, name in enumerate(encoder.job_names):
        old, now = (side[:, k][np.isfinite(side[:, k])].astype(np.float64) for side in both)
        if len(old) and len(now) and np.ptp(np.concatenate([old, now])) > 0:
            test = ks_2samp(old, now)
            found.append((name, float(test.statistic), float(test.pvalue)))
    return tuple(
        ColumnDrift(column=name, statistic=distance, p_value=p, drifted=p < ALPHA / len(found))
        for name, distance, p in sorted(found, key=lambda one: (one[2], one[0]))
    )
