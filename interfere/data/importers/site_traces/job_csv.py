"""Imports a CSV file of jobs whose columns the user names: one row a submission, in any order.

Needed are job_id, arrival and gpus, and duration or both start and end. Times are seconds, or dates and times such as
2026-11-22T10:00:00 (UTC where they name no zone); one file has one kind. Optional: name, user, vc, status.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, Notice, Treatment, nonempty_notices
from interfere.data.importers.site_traces.workload_map import WorkloadMap, frequent_names
from interfere.data.importers.strict_reading import NUMBER, CsvRow, read_csv
from interfere.data.traces import JobTrace, TraceJob
from interfere.errors import InvalidInputError
from interfere.records import NAN

NEEDED, TIMES, OPTIONAL = ("job_id", "arrival", "gpus"), ("duration", "start", "end"), ("name", "user", "vc", "status")
FIELDS = (*NEEDED, *TIMES, *OPTIONAL)
FORMAT_NOTES = (
    "arrival_s counts from the first submission where arrivals are dates; duration_s is the run time without queueing",
)


def import_job_csv(
    path: Path, columns: Mapping[str, str], *, workloads: WorkloadMap | None = None, name: str = "jobs"
) -> ImportResult:
    """Import the jobs in `path`.

    `columns` maps fields to columns of the file. A field that it does not name is read from the column of the same
    name. Raises TableError with file, row and column; InvalidInputError for an unknown field.
    """
    if unknown := sorted(set(columns) - set(FIELDS)):
        raise InvalidInputError("no such field of a job", value=unknown[0], remedy=f"one of {', '.join(FIELDS)}")
    named = {field: columns.get(field, field) for field in FIELDS}
    by_ends = "duration" not in columns and {"start", "end"} <= set(columns)
    times = ("start", "end") if by_ends else ("duration",)
    optional = tuple(named[field] for field in OPTIONAL if field in columns)
    file = read_csv(path, (*(named[field] for field in (*NEEDED, *times)), *optional))
    present = {field: column for field, column in named.items() if column in file.columns}
    with_gpus = [row for row in file.rows if row.integer(named["gpus"])]
    ended = [row for row in with_gpus if all(row.fields[named[field]] for field in times)]
    is_dated = any(not NUMBER.fullmatch(row.fields[named["arrival"]]) for row in ended)
    start_s = min((_time_s(row, named["arrival"]) for row in ended), default=0.0) if is_dated else 0.0
    seen: set[str] = set()
    jobs, names = [], []
    for row in ended:
        if row.text(named["job_id"]) in seen:
            row.fail(named["job_id"], "a second row of this job", "keep one of the two rows")
        seen.add(row.text(named["job_id"]))
        names.append(row.fields[present["name"]] if "name" in present else "")
        workload = names[-1] if workloads is None else workloads.workload(names[-1])
        jobs.append(_job(row, present, start_s, workload, by_ends=by_ends))
    return ImportResult(
        source_format="csv",
        files=(file.source, *((workloads.source,) if workloads is not None else ())),
        format_notes=FORMAT_NOTES,
        trace=JobTrace(
            name=name,
            jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)),
            start_s=start_s if is_dated else NAN,
        ),
        notices=_notices(
            without_gpus=len(file.rows) - len(with_gpus),
            without_times=len(with_gpus) - len(ended),
            unnamed=[name for name, job in zip(names, jobs, strict=True) if not job.workload],
        ),
    )


def _notices(*, without_gpus: int, without_times: int, unnamed: Sequence[str]) -> tuple[Notice, ...]:
    dropped, flagged = Treatment.DROPPED, Treatment.FLAGGED
    frequent = f"they run alone in a replay; most frequent names: {frequent_names(unnamed)}"
    return nonempty_notices(
        Notice(treatment=dropped, subject="jobs without a GPU", count=without_gpus, reason="they share no device"),
        Notice(
            treatment=dropped, subject="jobs without times", count=without_times, reason="their run time is unknown"
        ),
        Notice(treatment=flagged, subject="jobs without a workload", count=len(unnamed), reason=frequent),
    )


def _job(row: CsvRow, present: Mapping[str, str], start_s: float, workload: str, *, by_ends: bool) -> TraceJob:
    if by_ends:
        duration_s = _time_s(row, present["end"]) - _time_s(row, present["start"])
        if duration_s < 0:
            row.fail(present["end"], "before the job's start", "export the jobs again")
    else:
        duration_s = row.number(present["duration"], low=0.0)

    def text(field: str) -> str:
        return row.fields[present[field]] if field in present else ""

    return TraceJob(
        job_id=row.text(present["job_id"]),
        workload=workload,
        arrival_s=_time_s(row, present["arrival"]) - start_s,
        gpus=row.integer(present["gpus"], low=1),
        duration_s=duration_s,
        user=text("user"),
        vc=text("vc"),
        status=text("status").lower(),
    )


def _time_s(row: CsvRow, column: str) -> float:
    if NUMBER.fullmatch(row.fields[column]):
        return row.number(column, low=0.0)
    try:
        moment = datetime.fromisoformat(row.fields[column])
    except ValueError:
        row.fail(
            column, "seconds, or a time such as 2026-11-22T10:00:00 expected", "write times in one of the two ways"
        )
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
