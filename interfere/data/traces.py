"""A trace of jobs as it happened: who submitted what when, for how long and on how many devices.

Laws: jobs are in order of arrival, the first one at 0 or later; ties keep the order of the source; a job without a
known duration is NaN there, never 0; reading what was written gives equal records.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from interfere.data.parquet import read_rows, write_rows
from interfere.data.schema import clusters_schema, trace_schema
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN
from interfere.records.checks import check, number_violations, text_violations

TRACE, CLUSTERS = "trace.parquet", "clusters.parquet"
TEXTS = ("job_id", "workload", "user", "vc", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One submission. `duration_s` is the run time alone on its devices, queueing excluded."""

    job_id: str
    workload: str  # as the tables of measurements name it; empty where the source does not say
    arrival_s: float  # after the start of the trace
    gpus: int
    duration_s: float = NAN
    total_steps: float = NAN
    user: str = ""
    vc: str = ""  # virtual cluster: a share of the cluster with its own queue
    status: str = ""  # how it ended, in the source's word

    def __post_init__(self) -> None:
        bad = text_violations(self, "job_id")
        for name in TEXTS[1:]:
            if getattr(self, name):
                bad += text_violations(self, name)
        bad += number_violations(self, "arrival_s", nan=False) + number_violations(self, "duration_s", "total_steps")
        bad += number_violations(self, "gpus", low=1.0, nan=False)
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCluster:
    """The devices of one virtual cluster."""

    vc: str
    nodes: int
    gpus_per_node: int

    def __post_init__(self) -> None:
        check(text_violations(self, "vc") + number_violations(self, "nodes", "gpus_per_node", low=1.0, nan=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """Jobs in order of arrival, and the cluster they ran on where the source says."""

    name: str
    jobs: tuple[TraceJob, ...]
    start_s: float = NAN  # unix time of arrival 0
    clusters: tuple[TraceCluster, ...] = ()

    def __post_init__(self) -> None:
        for before, job in pairwise(self.jobs):
            if job.arrival_s < before.arrival_s:
                raise InvalidInputError(
                    "a trace must be in order of arrival", value=job.job_id, remedy="sort the jobs by arrival_s"
                )
        for what, names in (("job", [j.job_id for j in self.jobs]), ("virtual cluster", [c.vc for c in self.clusters])):
            if twice := sorted(name for name, count in Counter(names).items() if count > 1):
                raise InvalidInputError(f"a {what} is in the trace twice", value=twice[0], remedy="keep one of the two")


def write_trace(folder: Path, trace: JobTrace) -> None:
    """Write `trace.parquet` and `clusters.parquet` into `folder`, each whole or not at all."""
    start_s = None if math.isnan(trace.start_s) else trace.start_s
    write_rows(folder / CLUSTERS, [asdict(cluster) for cluster in trace.clusters], clusters_schema())
    write_rows(folder / TRACE, [{**_nulls(asdict(job)), "start_s": start_s} for job in trace.jobs], trace_schema())


def read_trace(folder: Path) -> JobTrace:
    """The trace in `folder`. Raises TableError that names file and row."""
    if not (folder / TRACE).exists():
        raise TableError(
            f"no trace: {TRACE} is missing", value=folder, remedy="import one: interfere data import helios (or philly)"
        )
    rows = read_rows(folder / TRACE, trace_schema())
    jobs = [_record(folder / TRACE, k, TraceJob, row) for k, row in enumerate(rows)]
    clusters = enumerate(read_rows(folder / CLUSTERS, clusters_schema()))
    try:
        return JobTrace(
            name=folder.resolve().name,
            jobs=tuple(jobs),
            start_s=_value("start_s", rows[0]["start_s"]) if rows else NAN,
            clusters=tuple(_record(folder / CLUSTERS, k, TraceCluster, row) for k, row in clusters),
        )
    except TableError:
        raise
    except InvalidInputError as error:
        raise TableError(f"{TRACE}: {error.what}", value=f"{error.value} in {folder}", remedy=error.remedy) from None


def _record(path: Path, row: int, make: Any, values: dict[str, Any]) -> Any:
    try:
        return make(**{name: _value(name, value) for name, value in values.items() if name != "start_s"})
    except InvalidInputError as error:
        raise TableError(
            f"{path.name}, row {row}: {error.what}", value=f"{error.value} in {path.parent}", remedy=error.remedy
        ) from None


def _value(name: str, value: Any) -> Any:
    if value is None:
        return "" if name in TEXTS else 0 if name in ("gpus", "nodes", "gpus_per_node") else NAN
    return value


def _nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
