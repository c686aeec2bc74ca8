"""Measured tables as arrays: one row per ordered pair, ready for any model.

Law 1: only rows whose status is ok become rows here; nothing is imputed.
Law 2: a row's features come from the profiles of its own table; names, not profiles, carry identity across tables.
Law 3: rows of one unordered pair share one group, on every device type and in every table.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.errors import InvalidInputError, TableError, UnfitError
from interfere.predict.manifest import Domain
from interfere.protocols import PairEncoder
from interfere.records import JobProfile, PairMeasurement, PairStatus

METRIC = "step_time_mean"  # what a published model predicts: the server's requests name no other metric yet
MIN_PAIRS = 10
Z95 = 1.959964  # half-width of a 95 % interval in standard deviations
# Measurement noise below this (in log slowdown) no longer makes a row more worth: the models err by about as much.
NOISE_FLOOR = 0.05

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What every model reads: the inputs that `pair.onnx` may have. Identity k + 1 is workload k, 0 an unknown one."""

    pairs: NDArray[np.float32]  # float32[p, f]
    victim: NDArray[np.int64]  # int64[p]
    neighbour: NDArray[np.int64]  # int64[p]
    domain: NDArray[np.int64]  # int64[p]: domain k + 1 of the dataset, 0 an unknown one

    def __len__(self) -> int:
        return len(self.victim)

    def take(self, index: NDArray[Any]) -> "Rows":
        """The rows of an index or a mask."""
        return Rows(
            pairs=self.pairs[index],
            victim=self.victim[index],
            neighbour=self.neighbour[index],
            domain=self.domain[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Rows with their measured log slowdowns. `p` ordered pairs, `f` pair columns, `N` workloads."""

    rows: Rows
    log_slowdown: NDArray[np.float64]  # float64[p]
    weight: NDArray[np.float64]  # float64[p], mean about 1: narrower intervals count more
    lower: NDArray[np.float64]  # float64[p], slowdown
    upper: NDArray[np.float64]  # float64[p], slowdown
    group: NDArray[np.int64]  # int64[p]: index into `pairs`
    domain: NDArray[np.int64]  # int64[p]: index into `domains`
    table: NDArray[np.int64]  # int64[p]: index of the table it came from
    measured_at_s: NDArray[np.float64]  # float64[p]: unix time; NaN where the table has none
    workloads: tuple[str, ...]
    families: tuple[str, ...]  # of each workload; "" where its source names none. Splits read them, no model
    domains: tuple[Domain, ...]
    pairs: tuple[Pair, ...]  # unordered, each sorted
    job_names: tuple[str, ...]
    pair_names: tuple[str, ...]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.log_slowdown)

    def take(self, index: NDArray[Any]) -> "Dataset":
        """The rows of an index or a mask; names stay."""
        return replace(
            self,
            rows=self.rows.take(index),
            log_slowdown=self.log_slowdown[index],
            weight=self.weight[index],
            lower=self.lower[index],
            upper=self.upper[index],
            group=self.group[index],
            domain=self.domain[index],
            table=self.table[index],
            measured_at_s=self.measured_at_s[index],
        )

    def in_pairs(self, chosen: frozenset[Pair]) -> NDArray[np.bool_]:
        """bool[p]: rows of the given unordered pairs, in either spelling."""
        wanted = {unordered(*pair) for pair in chosen}
        return np.array([pair in wanted for pair in self.pairs], dtype=bool)[self.group]

    def latest(self) -> "Dataset":
        """One row per (victim, neighbour, domain): the one of the last table."""
        keys = zip(self.rows.victim.tolist(), self.rows.neighbour.tolist(), self.domain.tolist(), strict=True)
        last = {key: k for k, key in enumerate(keys)}
        return self.take(np.array(sorted(last.values()), dtype=np.int64))


def unordered(first: str, second: str) -> Pair:
    """One spelling of a pair, whichever is the victim."""
    return (first, second) if first <= second else (second, first)


def newest_profiles(tables: Sequence[Table]) -> dict[tuple[str, str], JobProfile]:
    """(workload, device type) → profile of the last table that has one."""
    return {(job.workload, job.device_type): job for table in tables for job in table.jobs}


def build_dataset(
    tables: Sequence[Table],
    encoder: PairEncoder,
    *,
    metric: str = METRIC,
    statuses: Collection[PairStatus] = (PairStatus.OK,),
) -> Dataset:
    """All rows of all tables with one of `statuses`, in order; one without a slowdown has NaN.

    Raises UnfitError for none, TableError for a pair without profile.
    """
    names = sorted({job.workload for table in tables for job in table.jobs})
    identity = {name: k + 1 for k, name in enumerate(names)}
    listed = [
        (t, row)
        for t, table in enumerate(tables)
        for row in table.pairs
        if row.status in statuses and row.metric == metric
    ]
    if not listed:
        raise UnfitError(
            f"no table has an ok row of {metric}",
            value=", ".join(table.name for table in tables) or "no table",
            remedy="measure pairs first: interfere profile campaign",
        )
    domains = sorted({(row.device_type, row.mode, row.metric) for _, row in listed})
    groups = sorted({unordered(row.victim, row.neighbour) for _, row in listed})
    domain_of, group_of = {d: k for k, d in enumerate(domains)}, {g: k for k, g in enumerate(groups)}
    vectors = _JobVectors(tables, encoder)
    measured = [row for _, row in listed]
    family = {job.workload: job.family for table in tables for job in table.jobs if job.family}
    domain = np.array([domain_of[row.device_type, row.mode, row.metric] for row in measured], dtype=np.int64)
    return Dataset(
        rows=Rows(
            pairs=encoder.encode_pairs(
                np.stack([vectors.of(t, row, row.victim) for t, row in listed]),
                np.stack([vectors.of(t, row, row.neighbour) for t, row in listed]),
            ),
            victim=np.array([identity[row.victim] for row in measured], dtype=np.int64),
            neighbour=np.array([identity[row.neighbour] for row in measured], dtype=np.int64),
            domain=domain + 1,
        ),
        log_slowdown=np.array([math.log(row.slowdown) for row in measured]),
        weight=_weights(measured),
        lower=np.array([row.slowdown if math.isnan(row.lower) else row.lower for row in measured]),
        upper=np.array([row.slowdown if math.isnan(row.upper) else row.upper for row in measured]),
        group=np.array([group_of[unordered(row.victim, row.neighbour)] for row in measured], dtype=np.int64),
        domain=domain,
        table=np.array([t for t, _ in listed], dtype=np.int64),
        measured_at_s=np.array([row.measured_at_s for row in measured], dtype=np.float64),
        workloads=tuple(names),
        families=tuple(family.get(name, "") for name in names),
        domains=tuple(Domain(device_type=d, mode=m, metric=k) for d, m, k in domains),
        pairs=tuple(groups),
        job_names=encoder.job_names,
        pair_names=encoder.pair_names,
        fingerprint=encoder.fingerprint,
    )


def hold_out(dataset: Dataset, pairs: frozenset[Pair]) -> tuple[Dataset, Dataset]:
    """(rows to learn from, rows never looked at). Pairs that were not measured are no rows; unknown names raise."""
    if unknown := sorted({name for pair in pairs for name in pair} - set(dataset.workloads)):
        raise InvalidInputError(
            "pairs to hold out name unknown workloads",
            value=", ".join(unknown),
            remedy=f"choose among {', '.join(dataset.workloads)}",
        )
    hidden = dataset.in_pairs(pairs)
    return dataset.take(~hidden), dataset.take(hidden)


def require_enough(dataset: Dataset) -> None:
    """Raises UnfitError below `MIN_PAIRS` unordered pairs."""
    found = len(np.unique(dataset.group))
    if found < MIN_PAIRS:
        raise UnfitError(
            f"at least {MIN_PAIRS} usable pairs are needed to train",
            value=f"{found} pairs are ok and not held out",
            remedy="measure more pairs (interfere profile campaign) or add a table with --data",
        )


class _JobVectors:
    """Encodes each (table, workload, domain) once."""

    def __init__(self, tables: Sequence[Table], encoder: PairEncoder) -> None:
        self._names = [table.name for table in tables]
        self._profiles = [{(job.workload, job.device_type): job for job in table.jobs} for table in tables]
        self._encoder = encoder
        self._known: dict[tuple[int, str, str, str], NDArray[np.float32]] = {}

    def of(self, table: int, row: PairMeasurement, workload: str) -> NDArray[np.float32]:
        key = (table, workload, row.device_type, row.mode)
        if key not in self._known:
            profile = self._profiles[table].get((workload, row.device_type))
            if profile is None:
                raise TableError(
                    f"table {self._names[table]}: a pair names a job without a profile on {row.device_type}",
                    value=workload,
                    remedy="measure it alone first: interfere profile solo",
                )
            self._known[key] = self._encoder.encode_jobs([profile], row.device_type, row.mode)[0]
        return self._known[key]


def _weights(measured: Sequence[PairMeasurement]) -> NDArray[np.float64]:
    """1 / (noise² + floor²), mean 1; a row without interval counts as the median one."""
    noise = np.array([math.log(row.upper / row.lower) / (2 * Z95) if row.lower > 0 else np.nan for row in measured])
    usual = float(np.nanmedian(noise)) if np.isfinite(noise).any() else 0.0
    weight = 1.0 / (np.where(np.isnan(noise), usual, noise) ** 2 + NOISE_FLOOR**2)
    return np.asarray(weight / weight.mean())
