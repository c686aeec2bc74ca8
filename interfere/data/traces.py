"""A trace of jobs as it happened: who submitted what when, for how long and on how many devices.

Laws: jobs are in order of arrival, the first one at 0 or later; ties keep the order of the source; a job without a
known duration is NaN there, never 0; reading what was written gives equal records.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data.parquet import read_rows, write_rows
from interfere.data.schema import trace_schema
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN
from interfere.records.checks import check, number_violations, text_violations

TRACE = "trace.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One submission. `duration_s` is the run time alone on its devices, queueing excluded."""

    job_id: str
    workload: str  # as the tables of measurements name it, where one knows it
    arrival_s: float  # after the start of the trace
    gpus: int
    duration_s: float = NAN
    total_steps: float = NAN
    user: str = ""
    vc: str = ""  # virtual cluster: a share of the cluster with its own queue
    status: str = ""  # how it ended, in the source's word

    def __post_init__(self) -> None:
        bad = text_violations(self, "job_id", "workload")
        for name in ("user", "vc", "status"):
            if getattr(self, name):
                bad += text_violations(self, name)
        bad += number_violations(self, "arrival_s", nan=False) + number_violations(self, "duration_s", "total_steps")
        bad += number_violations(self, "gpus", low=1.0, nan=False)
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """Jobs in order of arrival."""

    name: str
    jobs: tuple[TraceJob, ...]
    start_s: float = NAN  # unix time of arrival 0, where the source says

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for before, job in zip((None, *self.jobs), self.jobs, strict=False):
            if before is not None and job.arrival_s < before.arrival_s:
                raise InvalidInputError(
                    "a trace must be in order of arrival", value=job.job_id, remedy="sort the jobs by arrival_s"
                )
            if job.job_id in seen:
                raise InvalidInputError("a job is in the trace twice", value=job.job_id, remedy="keep one of the two")
            seen.add(job.job_id)


def write_trace(folder: Path, trace: JobTrace) -> None:
    """Write `trace.parquet` into `folder`, whole or not at all."""
    rows = [{**_nulls(asdict(job)), "start_s": _nulls({"v": trace.start_s})["v"]} for job in trace.jobs]
    write_rows(folder / TRACE, rows, trace_schema())


def read_trace(folder: Path) -> JobTrace:
    """The trace in `folder`. Raises TableError that names file and row."""
    path = folder / TRACE
    jobs: list[TraceJob] = []
    start_s = NAN
    for number, row in enumerate(read_rows(path, trace_schema())):
        values = {name: _value(name, value) for name, value in row.items()}
        start_s = values.pop("start_s")
        try:
            jobs.append(TraceJob(**values))
        except InvalidInputError as error:
            raise TableError(
                f"{TRACE}, row {number}: {error.what}", value=f"{error.value} in {folder}", remedy=error.remedy
            ) from None
    try:
        return JobTrace(name=folder.resolve().name, jobs=tuple(jobs), start_s=start_s)
    except InvalidInputError as error:
        raise TableError(f"{TRACE}: {error.what}", value=f"{error.value} in {folder}", remedy=error.remedy) from None


def _value(name: str, value: Any) -> Any:
    if value is None:
        return "" if name in ("job_id", "workload", "user", "vc", "status") else 0 if name == "gpus" else NAN
    return value


def _nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
