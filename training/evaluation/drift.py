"""Compares new labels with what was measured or predicted before: drift, and labels that contradict the champion.

Drift of jobs: for each job column, a two-sample Kolmogorov-Smirnov test between the encoded jobs of the base tables and
those of the new table; drifted where p < `ALPHA` ÷ number of columns (Bonferroni).
Drift of pairs: observed slowdown ÷ expected slowdown. The expectation is what the base tables measured, else what the
champion predicts. Drifted where the log ratio exceeds `TOLERANCE` and the observed 95 % interval excludes the
expectation.
Labels: no score on new labels can tell wrong labels from right ones. So labels are compared with trusted values: with
the measurements in the champion's folder where a pair was measured before, else with the champion's predictions. A
software upgrade contradicts them too; who knows of one promotes the model by force, with that reason.
Domains: a domain, a device type with a sharing mode, has changed where the windows in the log of a site's server
contradict what the base tables measured of the same pairs for all jobs together, as an upgrade of its software stack
does. The change is found by the belief that also serves (`interfere.predict.online.belief`), which learns the windows
in their order. Law: equal base tables and equal logs give equal changes, however often was retrained in between.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.field.smoothing import MAX_RECENT
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, DomainKey, PairObservation
from interfere.predict.online.prior import default_prior
from interfere.protocols import PairEncoder
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from interfere.store.observed_table import DomainChange, LoggedWindow
from interfere.training.dataset import NOISE_FLOOR, Dataset, build_dataset, pair_keys

if TYPE_CHECKING:
    from interfere.training.evaluation.champion import PublishedChampion

ALPHA = 0.01
TOLERANCE = 2 * NOISE_FLOOR  # log slowdown: twice the error of the models themselves
MAX_LISTED = 10  # pairs and columns in the text report; the document has all
MIN_KNOWN_ROWS, MIN_VICTIMS = 20, 8
MAX_SHARE_OFF = 0.25  # of all rows that were measured before
MAX_SHARE_OFF_REPEATED = 0.5  # of the pairs measured again: noise alone takes a single window of 10 % past 30 %
MIN_SHARE_ONE_SIDED = 0.8  # of the victims, whose new pairs lie all above or all below what was predicted
CONTRADICTED_WEIGHT = 0.5  # a window that is learned with less contradicts what was believed before it
BEFORE = 8  # windows by which a change may have begun before the one that explains it best
REMEDY = "if the software stack has changed, promote it by force with that reason; else find the wrong measurements"

Floats = NDArray[np.float64]


class Expectation(StrEnum):
    """The source of the expected slowdown of an observed pair."""

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
    """One observed ordered pair, with its expected slowdown."""

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
    """The drift of a new table: its columns by ascending p, its pairs by descending deviation."""

    columns: tuple[ColumnDrift, ...]
    pairs: tuple[PairDrift, ...]  # only pairs with an expectation
    unexpected: int  # number of observed pairs without an expectation
    bias: float  # median of log(observed ÷ expected); NaN without pairs

    def figures(self) -> dict[str, float]:
        """Return the numbers that are followed over time, by name; those that are known."""
        figures = {
            "site_columns_drifted": float(sum(column.drifted for column in self.columns)),
            "site_observed_to_expected": math.exp(self.bias),  # median ratio of slowdowns
            "site_pairs_drifted_share": sum(p.drifted for p in self.pairs) / max(len(self.pairs), 1),
        }
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    def markdown(self) -> str:
        """Return the report as text: how many pairs and columns drifted, and which drifted most."""
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
    base: Sequence[Table], new: Table, encoder: PairEncoder, champion: "PublishedChampion | None"
) -> DriftReport:
    """Return the drift of `new`, which must hold an ok pair.

    Without a champion only the pairs of the base tables have an expected slowdown.
    """
    observed = build_dataset([new], encoder)
    expected, sources = _expected_slowdowns(observed, build_dataset(base, encoder), champion)
    has_expectation = np.isfinite(expected)
    deviation = observed.log_slowdown - expected
    inside_interval = (
        (observed.lower < observed.upper) & (np.log(observed.lower) <= expected) & (expected <= np.log(observed.upper))
    )
    by_deviation = np.argsort(-np.abs(np.where(has_expectation, deviation, 0.0)), kind="stable").tolist()
    keys = pair_keys(observed)
    pairs = [
        PairDrift(
            victim=keys[k].victim,
            neighbour=keys[k].neighbour,
            device_type=keys[k].device_type,
            mode=keys[k].mode,
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
    observed: Dataset, base: Dataset, champion: "PublishedChampion | None"
) -> tuple[Floats, list[Expectation]]:
    """Return the expected log slowdown of each observed row (NaN where nothing is expected), and its source."""
    measured = dict(zip(pair_keys(base), base.log_slowdown.tolist(), strict=True))  # the last table wins
    expected = np.array([measured.get(key, np.nan) for key in pair_keys(observed)])
    sources = [Expectation.PREDICTED if math.isnan(value) else Expectation.MEASURED for value in expected.tolist()]
    if champion is not None and champion.graph is not None:
        predicted, known = champion.predict(observed)
        expected = np.where(np.isnan(expected) & known, predicted, expected)
    return expected, sources


def _column_drifts(
    base: Sequence[JobProfile], new: Sequence[JobProfile], encoder: PairEncoder
) -> tuple[ColumnDrift, ...]:
    """Return the drift of the columns that vary and have values on both sides, by ascending p."""
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


def label_contradiction(training_set: Dataset, champion: "PublishedChampion") -> str:
    """Return the reason, with figures, why the labels contradict the champion and cannot be trusted.

    "" where the labels can be trusted, or where the champion has nothing to compare them with.
    """
    rows = training_set.latest_rows()
    if champion.graph is None:
        return ""
    trusted = np.array([champion.measured.get(key, np.nan) for key in pair_keys(rows)])
    deviation = rows.log_slowdown - trusted
    known = np.isfinite(deviation)
    if (known & rows.aligned).sum() >= MIN_KNOWN_ROWS:
        return _translated(rows, deviation, known & rows.aligned)
    before = deviation[known]
    repeated = before[np.abs(before) > 1e-4]
    for name, values, max_share in (
        ("measured before", before, MAX_SHARE_OFF),
        ("measured again", repeated, MAX_SHARE_OFF_REPEATED),
    ):
        off = float((np.abs(values) > TOLERANCE).mean()) if len(values) >= MIN_KNOWN_ROWS else 0.0
        if off > max_share:
            return (
                f"{off:.0%} of {len(values)} pairs {name} differ by more than {math.expm1(TOLERANCE):.0%}, "
                f"new ÷ old {math.exp(float(np.median(values))):.3f} in the median: {REMEDY}"
            )
    predicted, is_known = champion.predict(rows)
    is_new = is_known & ~champion.was_fitted_on(rows)
    return _one_sided(rows.take(is_new), (rows.log_slowdown - predicted)[is_new])


def _translated(rows: Dataset, deviation: Floats, translated: NDArray[np.bool_]) -> str:
    """Return a sentence, with figures, that the champion's measurements were translated to another software stack."""
    names = ", ".join(sorted({rows.campaigns[k] for k in rows.campaign[~rows.aligned].tolist()} - {""}))
    return (
        f"{int(translated.sum())} pairs measured before were translated to another software stack (campaign {names}), "
        f"new ÷ old {math.exp(float(np.median(deviation[translated]))):.3f} in the median: {REMEDY}"
    )


def _one_sided(rows: Dataset, deviation: Floats) -> str:
    """Return a sentence, with figures, where nearly all victims lie on one side of the champion's predictions; else "".

    `rows` are pairs that the champion was not fitted on; `deviation` is log label - log prediction, float64[p].
    """
    victims = np.unique(rows.rows.victim)
    if len(rows) < MIN_KNOWN_ROWS or len(victims) < MIN_VICTIMS:
        return ""
    by_victim = np.array([np.median(deviation[rows.rows.victim == victim]) for victim in victims])
    side = max(float((by_victim > 0).mean()), float((by_victim < 0).mean()))
    bias = float(np.median(by_victim))
    if side < MIN_SHARE_ONE_SIDED or abs(bias) <= TOLERANCE:
        return ""
    return (
        f"the {len(rows)} pairs new to the champion are {math.exp(bias):.3f} × what it predicts in the median, "
        f"on one side for {side:.0%} of {len(victims)} jobs: {REMEDY}"
    )


def changed_domains(tables: Iterable[Table], windows: Iterable[LoggedWindow]) -> tuple[DomainChange, ...]:
    """Return the newest change of every domain whose windows, oldest first, contradict the base tables."""
    log_measured, family_of = {}, {}
    for table in tables:
        family_of.update({job.workload: job.family for job in table.jobs})
        for row in table.ok_pairs:
            log_measured[row.victim, row.neighbour, row.device_type, row.mode] = math.log(row.slowdown)
    belief = Belief(default_prior(), BeliefState())
    changes: dict[DomainKey, DomainChange] = {}
    recent: dict[DomainKey, deque[tuple[int, bool]]] = {}  # (entry, whether it contradicted), by domain
    for logged in windows:
        window = logged.window
        if len(window.company) != 1 or not MIN_SLOWDOWN <= logged.slowdown <= MAX_SLOWDOWN:
            continue
        (neighbour,), domain = window.company, (window.device_type, window.mode)
        predicted = log_measured.get((window.workload, neighbour, *domain))
        if predicted is None:
            continue
        learned = belief.learn(
            PairObservation(
                victim=(window.workload, *domain),
                neighbour=(neighbour, *domain),
                log_predicted=predicted,
                log_observed=math.log(logged.slowdown),
                measured=True,
                reporter=window.reporter,
                device=window.device_id,
                families=(family_of.get(window.workload, ""), family_of.get(neighbour, "")),
            )
        )
        of_domain = recent.setdefault(domain, deque(maxlen=MAX_RECENT))
        of_domain.append((logged.sequence, learned.weight < CONTRADICTED_WEIGHT))
        if learned.since:
            late = list(of_domain)[-learned.since - BEFORE :]
            first = next((entry for entry, contradicted in late if contradicted), late[-1][0])
            changes[domain] = DomainChange(device_type=domain[0], mode=domain[1], sequence=first)
    return tuple(changes[domain] for domain in sorted(changes))
