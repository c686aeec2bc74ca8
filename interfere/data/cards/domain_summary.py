"""What the page shows, as numbers and orders without markup: domains, cells, outliers and memory sums of a table.

Laws: every row of the table lies in one domain; a cell is measured, unstable, infeasible or missing, never imputed;
equal tables give equal summaries, whatever the order of their rows.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from interfere.data.additive_fit import AdditiveFit, JobEffect, fit_table, replicate_sd
from interfere.data.quality import TableQuality, domain_tables, table_quality
from interfere.data.tables import Table
from interfere.devices import find_device_type
from interfere.records import NAN, PairMeasurement, PairStatus
from interfere.reports.numbers import DASH

MAD_TO_SD = 1.4826  # standard deviation over median absolute deviation of a normal distribution: 1 / Φ⁻¹(3/4)
FAR_UNITS = 3.0  # noise units beyond which a row counts as far from the fit: 0.3 % of the rows of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A measured row, the slowdown that the additive fit expects, and the distance between the two."""

    pair: PairMeasurement
    expected: float  # slowdown of the fit
    units: float  # log(measured / expected) over the noise of the row


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSummary:
    """The rows of a domain: one device type, sharing mode and metric, within which slowdowns can be compared."""

    title: str
    device_type: str
    table: Table  # the rows and profiles of this domain only
    quality: TableQuality
    fit: AdditiveFit
    victims: tuple[str, ...]  # group by group, the most slowed first; those without a valid row last
    neighbours: tuple[str, ...]  # the most harmful first
    cells: Mapping[tuple[str, str], PairMeasurement]  # by victim and neighbour; a missing pair has none
    outliers: tuple[Outlier, ...]  # every ok row, the farthest first
    noise_sd: float  # of the log slowdown of one block
    noise_from_replicates: bool  # False: from the residuals of the fit

    @property
    def names(self) -> frozenset[str]:
        """The names of all jobs of the domain."""
        return frozenset((*self.victims, *self.neighbours))

    @property
    def missing(self) -> int:
        """The number of ordered pairs of the domain's jobs that have no row."""
        return len(self.victims) * len(self.neighbours) - len(self.cells)

    @property
    def pairs_with_interval(self) -> tuple[PairMeasurement, ...]:
        """The valid rows whose confidence interval is known."""
        return tuple(pair for pair in self.table.ok_pairs if math.isfinite(pair.lower) and math.isfinite(pair.upper))


def domain_summaries(table: Table) -> tuple[DomainSummary, ...]:
    """Return a summary of each domain of a table, ordered by device type, sharing mode and metric."""
    return tuple(_domain_summary(title, domain_table) for title, domain_table in domain_tables(table))


def _domain_summary(title: str, domain_table: Table) -> DomainSummary:
    pairs = domain_table.pairs
    fit = fit_table(domain_table)
    noise_sd, from_replicates = _noise_sd(domain_table, fit)
    return DomainSummary(
        title=title,
        device_type=pairs[0].device_type,
        table=domain_table,
        quality=table_quality(domain_table),
        fit=fit,
        victims=_by_effect({pair.victim for pair in pairs}, fit.victim_effects),
        neighbours=_by_effect({pair.neighbour for pair in pairs}, fit.neighbour_effects),
        cells={(pair.victim, pair.neighbour): pair for pair in pairs},
        outliers=_outliers(domain_table, fit, noise_sd),
        noise_sd=noise_sd,
        noise_from_replicates=from_replicates,
    )


def _by_effect(names: set[str], effects: tuple[JobEffect, ...]) -> tuple[str, ...]:
    """Order names by connected group, then by decreasing effect; names without an effect come last."""
    rank = {effect.name: (effect.group, -effect.log_slowdown) for effect in effects}
    return tuple(sorted(names, key=lambda name: (rank.get(name, (len(names), 0.0)), name)))


def _noise_sd(table: Table, fit: AdditiveFit) -> tuple[float, bool]:
    """Return the standard deviation of the log slowdown of single blocks, and whether repeated measurements gave it.

    Without repeats, the residuals of the additive fit give it.
    """
    from_replicates = replicate_sd(table.ok_pairs)
    if from_replicates > 0:
        return from_replicates, True
    if len(fit.residuals) < 2:
        return NAN, False
    residuals = np.asarray(fit.residuals)
    return MAD_TO_SD * float(np.median(np.abs(residuals - np.median(residuals)))), False


def _outliers(table: Table, fit: AdditiveFit, noise_sd: float) -> tuple[Outlier, ...]:
    outliers = [
        Outlier(
            pair=pair,
            expected=pair.slowdown / math.exp(residual),
            units=residual * math.sqrt(max(1, len(pair.passes))) / noise_sd if noise_sd > 0 else NAN,
        )
        for pair, residual in zip(table.ok_pairs, fit.residuals, strict=True)
    ]
    return tuple(
        sorted(outliers, key=lambda outlier: (-abs(outlier.units), outlier.pair.victim, outlier.pair.neighbour))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMemory:
    """The sum of the peak memory of two jobs, and the status of the pair."""

    first: str
    second: str
    bytes: float
    status: PairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySummary:
    """The summed peak memory of the pairs of a domain, and the memory of the device."""

    capacity_bytes: float  # NaN for an unknown device type
    static_jobs: int  # jobs without a measured peak, whose peak is that of a static trace
    sums: tuple[PairMemory, ...]  # pairs with two known peaks, largest first

    def count(self, *, fits: bool, feasible: bool) -> int:
        """Count the pairs that fit into the device's memory (or do not) and could share the device (or could not)."""
        return sum(
            (pair.bytes <= self.capacity_bytes) is fits and (pair.status is not PairStatus.INFEASIBLE) is feasible
            for pair in self.sums
        )


def memory_summary(domain: DomainSummary) -> MemorySummary:
    """Return the summed peak memory of each pair of jobs, and the memory of the device type."""
    peaks = {job.workload: job.expected_peak_bytes for job in domain.table.jobs}
    sums: dict[tuple[str, str], PairMemory] = {}
    for pair in domain.table.pairs:
        first, second = sorted((pair.victim, pair.neighbour))
        total_bytes = peaks[first] + peaks[second]
        if math.isnan(total_bytes):
            continue
        # A pair that is infeasible in one order is infeasible in both.
        if (first, second) not in sums or pair.status is PairStatus.INFEASIBLE:
            sums[first, second] = PairMemory(first=first, second=second, bytes=total_bytes, status=pair.status)
    return MemorySummary(
        capacity_bytes=find_device_type(domain.device_type).memory_bytes,
        static_jobs=sum(
            math.isnan(job.memory_peak_bytes) and not math.isnan(job.static_memory_peak_bytes)
            for job in domain.table.jobs
        ),
        sums=tuple(sorted(sums.values(), key=lambda pair: (-pair.bytes, pair.first, pair.second))),
    )


def count_reasons(table: Table) -> tuple[tuple[str, int, str], ...]:
    """Return status, number of rows and the first reason of rows whose reasons are equal but for the numbers in them.

    The most frequent reason of each status comes first; the reason of rows without any is a dash.
    """
    first_reason: dict[tuple[PairStatus, str], str] = {}
    counts: Counter[tuple[PairStatus, str]] = Counter()
    for row in with_sorted_rows(table).measurements:
        key = (row.status, "".join("0" if c.isdigit() else c for c in row.reason))
        first_reason.setdefault(key, row.reason or DASH)
        counts[key] += 1
    ranked = sorted(counts.items(), key=lambda item: (list(PairStatus).index(item[0][0]), -item[1], item[0][1]))
    return tuple((key[0].value, rows, first_reason[key]) for key, rows in ranked)


def with_sorted_rows(table: Table) -> Table:
    """Return the table with its rows sorted by key, so that the order of rows in the file does not matter."""
    return replace(
        table,
        jobs=tuple(sorted(table.jobs, key=lambda job: (job.device_type, job.workload))),
        pairs=tuple(
            sorted(
                table.pairs,
                key=lambda p: (p.device_type, p.mode, p.metric, p.important, p.victim, p.neighbour),
            )
        ),
        groups=tuple(
            sorted(table.groups, key=lambda row: (row.device_type, row.mode, row.metric, row.victim, row.company))
        ),
    )


def job_effects(domain: DomainSummary) -> Iterator[tuple[str, float, float]]:
    """Yield for each job its name, the slowdown that it suffers beside an average neighbour of its group, and the
    slowdown that it causes."""
    suffered = {effect.name: effect.log_slowdown for effect in domain.fit.victim_effects}
    caused = {effect.name: effect.log_slowdown for effect in domain.fit.neighbour_effects}
    names = (*domain.victims, *(name for name in domain.neighbours if name not in set(domain.victims)))
    for name in names:
        yield name, math.exp(suffered.get(name, NAN)), math.exp(caused.get(name, NAN))
