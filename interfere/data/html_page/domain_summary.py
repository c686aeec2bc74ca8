"""What a page shows, as numbers and order only: domains, cells, outliers, memory sums. No markup.

Laws: every row of the table lies in one domain; a cell is measured, unstable, infeasible or missing, never imputed;
equal tables give equal facts, whatever the order of their rows.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from interfere.data.additive_fit import AdditiveFit, Effect, fit_of, replicate_sd
from interfere.data.quality import Quality, quality
from interfere.data.tables import Table
from interfere.devices import device_type as known_device
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus

MAD_TO_SD = 1.4826  # a normal's standard deviation over its median absolute deviation: 1 / Φ⁻¹(3/4)
FAR = 3.0  # noise units from which a row counts as far from the fit: 0.3 % of a normal's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """One row against the additive fit."""

    pair: PairMeasurement
    expected: float  # slowdown that the fit gives
    units: float  # log(measured / expected) over the noise of the row


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One device type, sharing mode and metric: what may be compared with each other."""

    device_type: str
    mode: str
    metric: str
    table: Table  # the rows and profiles of this domain alone
    figures: Quality
    fit: AdditiveFit
    victims: tuple[str, ...]  # group by group, who suffers most comes first; who was never measured last
    neighbours: tuple[str, ...]  # who hurts most comes first
    cells: Mapping[tuple[str, str], PairMeasurement]  # by victim and neighbour; a missing pair has none
    outliers: tuple[Outlier, ...]  # every ok row, farthest first
    noise_sd: float  # log slowdown of one block
    noise_from_replicates: bool  # else from the residuals themselves

    @property
    def missing(self) -> int:
        """Cells without a row."""
        return len(self.victims) * len(self.neighbours) - len(self.cells)

    @property
    def intervals(self) -> tuple[PairMeasurement, ...]:
        """The ok rows that have an interval."""
        return tuple(p for p in self.table.ok_pairs if math.isfinite(p.lower) and math.isfinite(p.upper))


def domains(table: Table) -> tuple[Domain, ...]:
    """The domains of a table by name."""
    keys = sorted({(p.device_type, p.mode, p.metric) for p in table.pairs})
    return tuple(_domain(table, *key) for key in keys)


def _domain(table: Table, device_type: str, mode: str, metric: str) -> Domain:
    key = (device_type, mode, metric)
    pairs = sorted(
        (p for p in table.pairs if (p.device_type, p.mode, p.metric) == key), key=lambda p: (p.victim, p.neighbour)
    )
    jobs = tuple(sorted((j for j in table.jobs if j.device_type == device_type), key=lambda j: j.workload))
    own = Table(name=table.name, jobs=jobs, pairs=tuple(pairs))
    fit = fit_of(own)
    noise_sd, replicates = _noise(own, fit)
    return Domain(
        device_type=device_type,
        mode=mode,
        metric=metric,
        table=own,
        figures=quality(own),
        fit=fit,
        victims=_ordered({p.victim for p in pairs}, fit.suffers),
        neighbours=_ordered({p.neighbour for p in pairs}, fit.causes),
        cells={(p.victim, p.neighbour): p for p in pairs},
        outliers=_outliers(own, fit, noise_sd),
        noise_sd=noise_sd,
        noise_from_replicates=replicates,
    )


def _ordered(names: set[str], effects: tuple[Effect, ...]) -> tuple[str, ...]:
    place = {effect.name: (effect.group, -effect.log_slowdown) for effect in effects}
    return tuple(sorted(names, key=lambda name: (place.get(name, (len(names), 0.0)), name)))


def _noise(own: Table, fit: AdditiveFit) -> tuple[float, bool]:
    """Noise of one block, and whether replicates told it."""
    measured = replicate_sd(own.ok_pairs)
    if measured > 0:
        return measured, True
    if len(fit.residuals) < 2:
        return NAN, False
    rest = np.asarray(fit.residuals)
    return MAD_TO_SD * float(np.median(np.abs(rest - np.median(rest)))), False


def _outliers(own: Table, fit: AdditiveFit, noise_sd: float) -> tuple[Outlier, ...]:
    found = [
        Outlier(
            pair=pair,
            expected=pair.slowdown / math.exp(rest),
            units=rest * math.sqrt(max(1, len(pair.passes))) / noise_sd if noise_sd > 0 else NAN,
        )
        for pair, rest in zip(own.ok_pairs, fit.residuals, strict=True)
    ]
    return tuple(sorted(found, key=lambda o: (-abs(o.units), o.pair.victim, o.pair.neighbour)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySum:
    """Peaks of one unordered pair together."""

    one: str
    other: str
    bytes: float
    status: PairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is known of memory in one domain."""

    capacity_bytes: float  # NaN: unknown device
    static_jobs: int  # jobs whose peak is a static trace's, nothing having measured it
    sums: tuple[MemorySum, ...]  # pairs with both peaks known, largest first

    def count(self, *, fits: bool, feasible: bool) -> int:
        """Pairs whose sum fits the capacity (or not) and that could share the device (or not)."""
        return sum(
            (s.bytes <= self.capacity_bytes) is fits and (s.status is not PairStatus.INFEASIBLE) is feasible
            for s in self.sums
        )


def peak_bytes(job: JobProfile) -> float:
    """The measured peak, else the static one."""
    return job.static_memory_peak_bytes if math.isnan(job.memory_peak_bytes) else job.memory_peak_bytes


def memory(domain: Domain) -> Memory:
    """Sums of peaks against the capacity of the device type."""
    peaks = {job.workload: peak_bytes(job) for job in domain.table.jobs}
    found: dict[tuple[str, str], MemorySum] = {}
    for pair in domain.table.pairs:
        one, other = sorted((pair.victim, pair.neighbour))
        total = peaks[one] + peaks[other]
        if math.isnan(total):
            continue
        sum_ = MemorySum(one=one, other=other, bytes=total, status=pair.status)
        # Two directions of one pair: what could not run in one of them could not run.
        if (one, other) not in found or pair.status is PairStatus.INFEASIBLE:
            found[one, other] = sum_
    return Memory(
        capacity_bytes=known_device(domain.device_type).memory_bytes,
        static_jobs=sum(
            math.isnan(j.memory_peak_bytes) and not math.isnan(j.static_memory_peak_bytes) for j in domain.table.jobs
        ),
        sums=tuple(sorted(found.values(), key=lambda s: (-s.bytes, s.one, s.other))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """Rows of one status that were given the same reason, their numbers aside."""

    status: PairStatus
    reason: str  # of the first such row
    rows: int


def reasons(table: Table) -> tuple[ReasonCount, ...]:
    """Rows by status and reason, most first within a status."""
    first: dict[tuple[PairStatus, str], str] = {}
    counts: Counter[tuple[PairStatus, str]] = Counter()
    for pair in sorted(table.pairs, key=lambda p: (p.device_type, p.victim, p.neighbour)):
        key = (pair.status, "".join("0" if c.isdigit() else c for c in pair.reason))
        first.setdefault(key, pair.reason)
        counts[key] += 1
    ranked = sorted(counts.items(), key=lambda item: (list(PairStatus).index(item[0][0]), -item[1], item[0][1]))
    return tuple(ReasonCount(status=key[0], reason=first[key], rows=rows) for key, rows in ranked)


def censored(table: Table) -> int:
    """Rows whose reason says that the true value lies beyond the one given."""
    return sum("censored" in pair.reason.lower() for pair in table.ok_pairs)


def sorted_table(table: Table) -> Table:
    """Rows in the order of their keys: the page must not depend on the order they were measured in."""
    return replace(
        table,
        jobs=tuple(sorted(table.jobs, key=lambda j: (j.device_type, j.workload))),
        pairs=tuple(sorted(table.pairs, key=lambda p: (p.device_type, p.mode, p.metric, p.victim, p.neighbour))),
    )


def effects(domain: Domain) -> Iterator[tuple[str, float, float]]:
    """Name, slowdown it suffers beside an average neighbour, slowdown it causes to an average victim of its group."""
    suffers, causes = ({e.name: e.log_slowdown for e in side} for side in (domain.fit.suffers, domain.fit.causes))
    names = (*domain.victims, *(name for name in domain.neighbours if name not in set(domain.victims)))
    for name in names:
        yield name, math.exp(suffers.get(name, NAN)), math.exp(causes.get(name, NAN))
