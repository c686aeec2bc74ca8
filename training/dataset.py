"""The training dataset: measured tables as arrays, one row per measurement of an ordered pair.

Law 1: only measurements of the requested statuses (by default ok) become rows; nothing is imputed. A table whose
measurement blocks disagree is refused.
Law 2: a row is encoded from the profiles of its own table, completed by the facts that only sources of other kinds in
other tables know; a workload is identified across tables by its name.
Law 3: rows of one unordered pair share one group, on every device type and in every table.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from interfere.data.facts import CombinedProfiles, combine_facts, combine_profiles, current_sources_of_other_kinds
from interfere.data.loading import table_folder
from interfere.data.quality import MIN_ICC, table_quality
from interfere.data.tables import Table, merge_roles, read_table, table_digest
from interfere.errors import InvalidInputError, TableError, UnfitError, remedy_for_name
from interfere.predict.manifest import Domain
from interfere.predict.measured import PairKey
from interfere.protocols import PairEncoder
from interfere.records import JobProfile, PairMeasurement, PairStatus
from interfere.store.observed_table import SOURCE as OBSERVED
from interfere.store.observed_table import UNNAMED_CAMPAIGN

METRIC = "step_time_mean"  # of the slowdowns that a published model predicts; requests to the server name no other
MIN_PAIRS = 10  # unordered pairs that a training needs
Z95 = 1.959964  # half-width of a 95 % interval in standard deviations
# Added to a row's measurement noise (in log slowdown) before weighting: about the error of the models themselves, so
# that measuring more precisely than they predict earns a row no further weight.
NOISE_FLOOR = 0.05

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTables:
    """The tables that a training reads, with their provenance; one entry per table in every field."""

    tables: tuple[Table, ...]
    icc: tuple[float, ...]  # agreement of two measurement blocks; NaN for a single block
    digests: tuple[str, ...]  # sha256


def read_source_tables(paths: Sequence[Path]) -> SourceTables:
    """Read all tables. Raises TableError for a broken table, UnfitError for one whose blocks disagree."""
    tables = tuple(read_table(path) for path in paths)
    agreement = tuple(table_quality(table).icc for table in tables)
    for table, icc in zip(tables, agreement, strict=True):
        if icc < MIN_ICC:  # NaN, from single blocks, passes: it is no evidence of disagreement
            raise UnfitError(
                f"table {table.name}: its passes disagree, a model would learn noise",
                value=f"ICC {icc:.2f} between blocks, at least {MIN_ICC} is needed",
                remedy="measure again on a quiet machine with more passes: interfere profile campaign",
            )
    return SourceTables(tables=tables, icc=agreement, digests=tuple(table_digest(path) for path in paths))


def find_table_folders(values: Sequence[str], work: Path) -> tuple[Path, ...]:
    """Return one folder for each name or path of a table.

    A path wins over the tables of the workspace `work`, and these over the shipped tables. Raises NotFoundError, which
    lists the tables that exist.
    """
    return tuple(table_folder(value, work) for value in values)


class RowColumns:
    """A record whose arrays have one entry per row."""

    __slots__ = ()

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that an index array or a mask selects; fields that are no columns, such as names, stay as
        they are."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # every subclass is a dataclass
        selected = {
            name: column.take(index) if isinstance(column, RowColumns) else column[index]
            for name, column in columns.items()
            if isinstance(column, RowColumns | np.ndarray)
        }
        return type(self)(**(columns | selected))

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts in one record; fields that are no columns are those of the first part."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        joined: dict[str, Any] = {}
        for name, (first, *others) in columns.items():
            if isinstance(first, RowColumns):
                joined[name] = type(first).concatenated([first, *others])
            else:
                joined[name] = np.concatenate([first, *others]) if isinstance(first, np.ndarray) else first
        return cls(**joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRows(RowColumns):
    """The inputs of every model, named as the inputs of `pair.onnx`; one row per ordered pair."""

    pairs: NDArray[np.float32]  # float32[p, f]: encoded pairs
    victim: NDArray[np.int64]  # int64[p]: workload k of the dataset has identity k + 1; 0 is an unknown workload
    neighbour: NDArray[np.int64]  # int64[p]: likewise
    domain: NDArray[np.int64]  # int64[p]: domain k of the dataset has identity k + 1; 0 is an unknown domain

    def __len__(self) -> int:
        return len(self.victim)


def pair_rows(
    encoder: PairEncoder,
    jobs: NDArray[np.float32],
    identities: NDArray[np.int64],
    victims: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    domain: int | NDArray[np.int64],
) -> PairRows:
    """Return a row for each pair of encoded jobs, float32[n, F], with these identities, int64[n].

    `victims` and `neighbours`: the places of both jobs of each pair, int64[p]; `domain`: of all pairs, or of each.
    """
    return PairRows(
        pairs=encoder.encode_pairs(jobs[victims], jobs[neighbours]),
        victim=identities[victims],
        neighbour=identities[neighbours],
        domain=np.full(len(victims), domain, dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(RowColumns):
    """Model inputs with the measured log slowdowns: `p` rows, `f` pair columns, `F` job columns, `N` workloads."""

    rows: PairRows
    log_slowdown: NDArray[np.float64]  # float64[p]
    weight: NDArray[np.float64]  # float64[p], mean 1: the narrower its interval, the more a row weighs
    lower: NDArray[np.float64]  # float64[p]: ends of the 95 % interval of the slowdown; the slowdown itself without one
    upper: NDArray[np.float64]  # float64[p]
    group: NDArray[np.int64]  # int64[p]: index into `unordered_pairs`
    domain: NDArray[np.int64]  # int64[p]: index into `domains`
    table: NDArray[np.int64]  # int64[p]: index of the table that the row came from
    measured_at_s: NDArray[np.float64]  # float64[p]: unix time; NaN where the table has none
    campaign: NDArray[np.int64]  # int64[p]: index into `campaigns`
    aligned: NDArray[np.bool_]  # bool[p]: translated from another software stack (`campaigns`): not a measurement
    observed: NDArray[np.bool_]  # bool[p]: reported by running jobs, not measured in a campaign: not trusted by itself
    workloads: tuple[str, ...]
    families: tuple[str, ...]  # of each workload, "" where its source names none; read by splits, not by models
    domains: tuple[Domain, ...]
    campaigns: tuple[str, ...]  # "" for rows whose source names none
    unordered_pairs: tuple[Pair, ...]  # the two names of each in ascending order
    job_columns: tuple[str, ...]  # names of the F job columns
    pair_columns: tuple[str, ...]  # names of the f pair columns
    fingerprint: str

    def __len__(self) -> int:
        return len(self.log_slowdown)

    def rows_of_pairs(self, pairs: frozenset[Pair]) -> NDArray[np.bool_]:
        """Return bool[p]: which rows are of these pairs, in both directions, whichever name stands first."""
        requested = {unordered_pair(*pair) for pair in pairs}
        return np.array([pair in requested for pair in self.unordered_pairs], dtype=bool)[self.group]

    def latest_rows(self) -> "Dataset":
        """Return the dataset with one row per (victim, neighbour, domain): the last one."""
        return self.take(self.latest_index())

    def latest_index(self) -> NDArray[np.int64]:
        """Return the rows that `latest_rows` keeps. Of a translated and a measured row, the measured one is kept."""
        keys = list(zip(self.rows.victim.tolist(), self.rows.neighbour.tolist(), self.domain.tolist(), strict=True))
        last_row = {keys[k]: k for k in np.argsort(~self.aligned, kind="stable").tolist()}
        return np.array(sorted(last_row.values()), dtype=np.int64)


def pair_keys(dataset: Dataset) -> list[PairKey]:
    """Return victim, neighbour, device type and sharing mode of each row."""
    return [
        PairKey(
            dataset.workloads[victim - 1],
            dataset.workloads[neighbour - 1],
            dataset.domains[domain].device_type,
            dataset.domains[domain].mode,
        )
        for victim, neighbour, domain in zip(
            dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), dataset.domain.tolist(), strict=True
        )
    ]


def unordered_pair(first: str, second: str) -> Pair:
    """Return the two names in ascending order, whichever is the victim."""
    return (first, second) if first <= second else (second, first)


def known_profiles(tables: Sequence[Table]) -> CombinedProfiles:
    """Return the facts of each workload on each device type, combined from all tables as the server combines them.

    Among sources of one kind the last table takes precedence.
    """
    return combine_profiles(profile for table in tables for profile in table.profiles)


def build_dataset(
    tables: Sequence[Table],
    encoder: PairEncoder,
    *,
    metric: str = METRIC,
    statuses: Collection[PairStatus] = (PairStatus.OK,),
) -> Dataset:
    """Return all measurements of the tables with one of `statuses`, in order. A measurement without a slowdown has NaN.

    Raises UnfitError where there are no measurements, TableError for a pair whose job has no profile.
    """
    # 1. Select the measurements.
    selected = [
        (table_index, measurement)
        for table_index, table in enumerate(tables)
        for measurement in merge_roles(table.pairs)
        if measurement.status in statuses and measurement.metric == metric
    ]
    if not selected:
        raise UnfitError(
            f"no table has an ok row of {metric}",
            value=", ".join(table.name for table in tables) or "no table",
            remedy="measure pairs first: interfere profile campaign",
        )
    measurements = [measurement for _, measurement in selected]

    # 2. Number workloads, domains and unordered pairs.
    workloads = sorted({job.workload for table in tables for job in table.jobs})
    families = {job.workload: job.family for table in tables for job in table.jobs if job.family}
    domains = sorted({(m.device_type, m.mode, m.metric) for m in measurements})
    pairs = sorted({unordered_pair(m.victim, m.neighbour) for m in measurements})
    campaigns = tuple(sorted(set(map(_campaign, measurements))))
    identity = {name: k + 1 for k, name in enumerate(workloads)}
    domain_index = {domain: k for k, domain in enumerate(domains)}
    pair_index = {pair: k for k, pair in enumerate(pairs)}

    # 3. Encode both jobs of every row, and build the arrays.
    encoded_jobs = _EncodedJobs(tables, encoder)
    domain = np.array([domain_index[m.device_type, m.mode, m.metric] for m in measurements], dtype=np.int64)
    return Dataset(
        rows=PairRows(
            pairs=encoder.encode_pairs(
                np.stack([encoded_jobs.row(t, m, m.victim) for t, m in selected]),
                np.stack([encoded_jobs.row(t, m, m.neighbour) for t, m in selected]),
            ),
            victim=np.array([identity[m.victim] for m in measurements], dtype=np.int64),
            neighbour=np.array([identity[m.neighbour] for m in measurements], dtype=np.int64),
            domain=domain + 1,
        ),
        log_slowdown=np.array([math.log(m.slowdown) for m in measurements]),
        weight=_row_weights(measurements),
        lower=np.array([m.slowdown if math.isnan(m.lower) else m.lower for m in measurements]),
        upper=np.array([m.slowdown if math.isnan(m.upper) else m.upper for m in measurements]),
        group=np.array([pair_index[unordered_pair(m.victim, m.neighbour)] for m in measurements], dtype=np.int64),
        domain=domain,
        table=np.array([t for t, _ in selected], dtype=np.int64),
        measured_at_s=np.array([m.measured_at_s for m in measurements], dtype=np.float64),
        campaign=np.array([campaigns.index(_campaign(m)) for m in measurements], dtype=np.int64),
        aligned=np.zeros(len(measurements), dtype=bool),
        observed=np.array([m.source == OBSERVED for m in measurements], dtype=bool),
        workloads=tuple(workloads),
        families=tuple(families.get(name, "") for name in workloads),
        domains=tuple(Domain(device_type=d, mode=m, metric=k) for d, m, k in domains),
        campaigns=campaigns,
        unordered_pairs=tuple(pairs),
        job_columns=encoder.job_names,
        pair_columns=encoder.pair_names,
        fingerprint=encoder.fingerprint,
    )


def hold_out(dataset: Dataset, pairs: frozenset[Pair]) -> tuple[Dataset, Dataset]:
    """Return (rows to train on, held-out rows) of a dataset. A pair that was not measured has no row.

    Raises InvalidInputError for a pair that names an unknown workload.
    """
    if unknown := sorted({name for pair in pairs for name in pair} - set(dataset.workloads)):
        raise InvalidInputError(
            "pairs to hold out name unknown workloads",
            value=", ".join(unknown),
            remedy=remedy_for_name(unknown[0], dataset.workloads),
        )
    held_out = dataset.rows_of_pairs(pairs)
    return dataset.take(~held_out), dataset.take(held_out)


def require_min_pairs(dataset: Dataset) -> None:
    """Raise UnfitError where the dataset has fewer than `MIN_PAIRS` unordered pairs."""
    pair_count = len(np.unique(dataset.group))
    if pair_count < MIN_PAIRS:
        raise UnfitError(
            f"at least {MIN_PAIRS} usable pairs are needed to train",
            value=f"{pair_count} pairs are ok and not held out",
            remedy="measure more pairs (interfere profile campaign) or add a table with --data",
        )


def _campaign(measurement: PairMeasurement) -> str:
    """Return the campaign of a row.

    Observed rows whose windows named no campaign get "", and count as the newest campaign.
    """
    unnamed = measurement.source == OBSERVED and measurement.campaign.startswith(UNNAMED_CAMPAIGN)
    return "" if unnamed else measurement.campaign


class _EncodedJobs:
    """Encoded jobs of several tables; each (table, workload, device type, mode) is encoded once."""

    def __init__(self, tables: Sequence[Table], encoder: PairEncoder) -> None:
        self._table_names = [table.name for table in tables]
        self._profiles = [_own_and_other_facts(tables, table) for table in tables]
        self._encoder = encoder
        self._cache: dict[tuple[int, str, str, str], NDArray[np.float32]] = {}

    def row(self, table: int, measurement: PairMeasurement, workload: str) -> NDArray[np.float32]:
        """Return a workload of a measured pair, encoded, float32[F]. Raises TableError without a profile of it."""
        key = (table, workload, measurement.device_type, measurement.mode)
        if key not in self._cache:
            profile = self._profiles[table].get((workload, measurement.device_type))
            if profile is None:
                raise TableError(
                    f"table {self._table_names[table]}: a pair names a job without a profile on "
                    f"{measurement.device_type}",
                    value=workload,
                    remedy="measure it solo first: interfere profile solo",
                )
            self._cache[key] = self._encoder.encode_jobs([profile], measurement.device_type, measurement.mode)[0]
        return self._cache[key]


def _own_and_other_facts(tables: Sequence[Table], own: Table) -> dict[tuple[str, str], JobProfile]:
    """Return the profile of each job of a table, by workload and device type.

    Facts of other tables complete it where their sources are of kinds that the own table lacks.
    """
    others = _by_job(profile for table in tables if table is not own for profile in table.profiles)
    return {
        job: combine_facts((*current_sources_of_other_kinds(others.get(job, ()), profiles), *profiles))
        for job, profiles in _by_job(own.profiles).items()
    }


def _by_job(profiles: Iterable[JobProfile]) -> dict[tuple[str, str], list[JobProfile]]:
    """Return the profiles by workload and device type."""
    found: dict[tuple[str, str], list[JobProfile]] = {}
    for profile in profiles:
        found.setdefault((profile.workload, profile.device_type), []).append(profile)
    return found


def _row_weights(measurements: Sequence[PairMeasurement]) -> NDArray[np.float64]:
    """Return 1 / (noise² + `NOISE_FLOOR`²) of each row, scaled to mean 1; a row without interval has median noise."""
    noise = np.array([math.log(m.upper / m.lower) / (2 * Z95) if m.lower > 0 else np.nan for m in measurements])
    median_noise = float(np.nanmedian(noise)) if np.isfinite(noise).any() else 0.0
    weight = 1.0 / (np.where(np.isnan(noise), median_noise, noise) ** 2 + NOISE_FLOOR**2)
    return np.asarray(weight / weight.mean())
