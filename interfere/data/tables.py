"""A table of measurements: profiles of jobs and slowdowns of ordered pairs, validated on every read and write.

Laws: reading what was written gives equal records; a table that breaks a rule is refused whole, with file, row, column,
value and remedy, both when written and when read; two rows never speak about the same thing.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data import schema
from interfere.data.parquet import read_rows, write_rows
from interfere.errors import InvalidInputError, TableError, Violation
from interfere.records import COUNTERS, NAN, JobProfile, KernelStat, PairMeasurement, PairStatus

JOBS, PAIRS = "jobs.parquet", "pairs.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One measured or imported table. Every pair names two jobs profiled on the same device type."""

    name: str
    jobs: tuple[JobProfile, ...]
    pairs: tuple[PairMeasurement, ...]

    @property
    def ok_pairs(self) -> tuple[PairMeasurement, ...]:
        """The rows with a slowdown."""
        return tuple(pair for pair in self.pairs if pair.status is PairStatus.OK)


def read_table(path: Path) -> Table:
    """The table in folder `path`. Raises TableError that names file, row and column."""
    job_rows = read_rows(path / JOBS, schema.jobs_schema())
    pair_rows = read_rows(path / PAIRS, schema.pairs_schema())
    jobs = tuple(_record(path / JOBS, k, _job, row) for k, row in enumerate(job_rows))
    pairs = tuple(_record(path / PAIRS, k, _pair, row) for k, row in enumerate(pair_rows))
    table = Table(name=path.resolve().name, jobs=jobs, pairs=pairs)
    check(table, path)
    return table


def write_table(path: Path, table: Table) -> None:
    """Write the table into folder `path`: each file whole or not at all, jobs before the pairs that need them."""
    check(table, path)
    write_rows(path / JOBS, [_nulls(asdict(job)) for job in table.jobs], schema.jobs_schema())
    pairs = [{**_nulls(asdict(pair)), "status": pair.status.value, "feasible": pair.feasible} for pair in table.pairs]
    write_rows(path / PAIRS, pairs, schema.pairs_schema())


def add_jobs(path: Path, jobs: Sequence[JobProfile]) -> Table:
    """Add profiles to the table in folder `path`, which is made if need be; one of the same key is replaced."""
    known = read_table(path) if (path / JOBS).exists() or (path / PAIRS).exists() else None
    newest = {(job.workload, job.device_type): job for job in (*(known.jobs if known else ()), *jobs)}
    table = Table(name=path.resolve().name, jobs=tuple(newest.values()), pairs=known.pairs if known else ())
    write_table(path, table)
    return table


def table_digest(path: Path) -> str:
    """sha256 over both files, in hexadecimal: what a model card cites."""
    digest = hashlib.sha256()
    for name in (JOBS, PAIRS):
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise TableError(
                f"a table lacks {name}", value=f"{path}: {error.strerror}", remedy="give a folder with both files"
            ) from None
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def check(table: Table, path: Path) -> None:
    """Refuse what single records cannot see: ranges, duplicates, pairs without profiles."""
    profiled: dict[tuple[str, ...], int] = {}
    for row, job in enumerate(table.jobs):
        _raise_first(path / JOBS, row, _job_ranges(job))
        _unique(path / JOBS, row, profiled, tuple(getattr(job, name) for name in schema.JOB_KEY), schema.JOB_KEY)
    seen: dict[tuple[str, ...], int] = {}
    for row, pair in enumerate(table.pairs):
        _raise_first(path / PAIRS, row, _pair_ranges(pair))
        _unique(path / PAIRS, row, seen, tuple(getattr(pair, name) for name in schema.PAIR_KEY), schema.PAIR_KEY)
        for column in ("victim", "neighbour"):
            if (getattr(pair, column), pair.device_type) not in profiled:
                raise TableError(
                    f"{PAIRS}, row {row}, column {column}: no profile of it on {pair.device_type} in {JOBS}",
                    value=f"{getattr(pair, column)!r} in {path}",
                    remedy="profile the job (`interfere profile solo`) or drop the row",
                )


def _unique(path: Path, row: int, seen: dict[tuple[str, ...], int], key: tuple[str, ...], names: Sequence[str]) -> None:
    if key in seen:
        raise TableError(
            f"{path.name}, row {row}, columns {', '.join(names)}: same as row {seen[key]}",
            value=f"{', '.join(key)} in {path.parent}",
            remedy="keep one of the rows",
        )
    seen[key] = row


def _raise_first(path: Path, row: int, violations: Iterator[Violation]) -> None:
    found = tuple(violations)
    if found:
        first = found[0]
        raise TableError(
            f"{path.name}, row {row}, column {first.field}: {first.what}",
            value=f"{first.value} in {path.parent}",
            remedy=first.remedy,
            violations=found,
        )


def _job_ranges(job: JobProfile) -> Iterator[Violation]:
    limits = (
        ("step_time_s", schema.MAX_STEP_S, "give seconds, not milliseconds"),
        ("busy_frac", 1.05, "give a share of one core or device: at most 1, and 5 % for two clocks that disagree"),
        *((name, schema.MAX_BYTES, "give bytes") for name in schema.MEMORY),
        *((name, 1.0, "give a share: divide by 100") for name in COUNTERS),
    )
    for name, high, remedy in limits:
        if getattr(job, name) > high:
            yield Violation(field=name, what=f"above {high:g}", value=repr(getattr(job, name)), remedy=remedy)


def _pair_ranges(pair: PairMeasurement) -> Iterator[Violation]:
    if not all(math.isfinite(value) and value > 0 for value in pair.passes):
        yield Violation(field="passes", what="must be finite and positive", value="a bad entry", remedy="drop it")
    for name in ("overlap_frac", "steal_frac"):
        value = getattr(pair, name)
        if not (math.isnan(value) or 0 <= value <= 1.0 + 1e-9):
            yield Violation(field=name, what="must be a share in [0, 1]", value=repr(value), remedy="divide by 100")
    for name in ("slowdown", "lower", "upper"):
        value = getattr(pair, name)
        if not (math.isnan(value) or (math.isfinite(value) and value > 0)):
            yield Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
    if pair.lower > pair.slowdown or pair.slowdown > pair.upper:
        yield Violation(
            field="lower",
            what="lower ≤ slowdown ≤ upper is broken",
            value=f"{pair.lower:g}, {pair.slowdown:g}, {pair.upper:g}",
            remedy="give the interval of this very slowdown",
        )


def _record(path: Path, row: int, make: Any, values: dict[str, Any]) -> Any:
    """One record, its errors turned into one that names file and row."""
    try:
        return make(values)
    except InvalidInputError as error:
        _raise_first(path, row, iter(error.violations))
        raise TableError(
            f"{path.name}, row {row}: {error.what}", value=f"{error.value} in {path.parent}", remedy=error.remedy
        ) from None


def _text(value: Any) -> Any:
    return "" if value is None else value


def _list(field: str, values: list[Any] | None) -> tuple[float, ...]:
    """A list column; a null inside it is an error, never a hole."""
    if values is not None and any(value is None for value in values):
        raise InvalidInputError.from_violations(
            [Violation(field=field, what="holds a null", value="null", remedy="drop the entry")]
        )
    return tuple(values or ())


def _numbers(row: dict[str, Any], *skip: str) -> dict[str, Any]:
    return {k: (NAN if v is None else v) for k, v in row.items() if k not in skip}


def _job(row: dict[str, Any]) -> JobProfile:
    texts, lists = ("workload", "device_type", "source", "family"), ("busy_s", "idle_s", "kernels")
    kernels = tuple(
        KernelStat(
            **_numbers(kernel, "name", "grid", "block"),
            name=_text(kernel["name"]),
            grid=tuple(kernel["grid"] or ()),
            block=tuple(kernel["block"] or ()),
        )
        for kernel in row["kernels"] or ()
    )
    return JobProfile(
        **{name: _text(row.get(name)) for name in texts},
        **_numbers(row, *texts, *lists),
        busy_s=_list("busy_s", row["busy_s"]),
        idle_s=_list("idle_s", row["idle_s"]),
        kernels=kernels,
    )


def _pair(row: dict[str, Any]) -> PairMeasurement:
    texts = ("victim", "neighbour", "device_type", "mode", "metric", "reason", "source", "campaign", "device_name")
    try:
        status = PairStatus(_text(row["status"]))
    except ValueError:
        known = ", ".join(status.value for status in PairStatus)
        raise InvalidInputError.from_violations(
            [Violation(field="status", what="unknown", value=repr(row["status"]), remedy=f"one of {known}")]
        ) from None
    pair = PairMeasurement(
        **{name: _text(row[name]) for name in texts},
        **_numbers(row, *texts, "passes", "status", "feasible"),
        passes=_list("passes", row["passes"]),
        status=status,
    )
    if row["feasible"] is not pair.feasible:
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field="feasible",
                    what=f"contradicts status {status.value}",
                    value=repr(row["feasible"]),
                    remedy="feasible is false exactly where status is infeasible",
                )
            ]
        )
    return pair


def _nulls(value: Any) -> Any:
    """NaN to null, at every depth."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {name: _nulls(inner) for name, inner in value.items()}
    return [_nulls(inner) for inner in value] if isinstance(value, list | tuple) else value
