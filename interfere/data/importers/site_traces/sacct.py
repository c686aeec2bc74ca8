"""Imports the accounting of a Slurm cluster: the output of `sacct --parsable2` with the columns of `FORMAT`.

One row a job; rows of job steps (`12.batch`) are left out. Only jobs that were allocated GPUs, started and have ended
can be replayed; the others are dropped and counted. A job's workload is its name, or what a map says of its name.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, Notice, Treatment, nonempty_notices
from interfere.data.importers.site_traces.workload_map import WorkloadMap, frequent_names
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.data.traces import JobTrace, TraceJob

# The job's name comes last: it may hold the "|" that separates columns.
COLUMNS = ("JobID", "User", "Partition", "State", "Submit", "Start", "End", "AllocTRES", "JobName")
COMMAND = f"sacct --allusers --allocations --parsable2 --starttime=now-30days --format={','.join(COLUMNS)}"
GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?:,|$)")
SHARDS = re.compile(r"(?:^|,)gres/shard=[1-9]")
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"
NO_TIME = ("Unknown", "None", "")
FORMAT_NOTES = (
    "arrival_s counts from the first submission; times are read as UTC, sacct prints them in the site's time zone",
    "duration_s = End - Start, the run time without queueing; gpus = gres/gpu in AllocTRES; vc = Partition",
    "a job with shards of a GPU (gres/shard) counts as one GPU",
    "jobs that failed, timed out or were cancelled while they ran are kept, with their status",
)


def import_sacct(path: Path, *, workloads: WorkloadMap | None = None, name: str = "sacct") -> ImportResult:
    """Import the output in `path`. Raises TableError, which names file, row and column."""
    file = read_csv(path, COLUMNS, delimiter="|", free_text="JobName", header_remedy=f"export it by {COMMAND}")
    steps = [row for row in file.rows if "." in row.text("JobID")]
    allocations = [row for row in file.rows if "." not in row.text("JobID")]
    with_gpus = [row for row in allocations if _gpus(row)]
    ended = [row for row in with_gpus if row.fields["Start"] not in NO_TIME and row.fields["End"] not in NO_TIME]
    start_s = min((_time_s(row, "Submit") for row in ended), default=0.0)
    seen: set[str] = set()
    jobs = []
    for row in ended:
        if row.text("JobID") in seen:
            row.fail("JobID", "a second row of this job", "leave --duplicates out")
        seen.add(row.text("JobID"))
        jobs.append(_job(row, start_s, workloads))
    unnamed = [row.fields["JobName"] for row, job in zip(ended, jobs, strict=True) if not job.workload]
    return ImportResult(
        source_format="sacct",
        files=(file.source, *((workloads.source,) if workloads is not None else ())),
        format_notes=FORMAT_NOTES,
        trace=JobTrace(name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)), start_s=start_s),
        notices=nonempty_notices(
            _dropped("rows of job steps", len(steps), "the row of their job counts"),
            _dropped("jobs without a GPU", len(allocations) - len(with_gpus), "they share no device"),
            _dropped("jobs that have not started or ended", len(with_gpus) - len(ended), "their run time is unknown"),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="jobs that held shards of a GPU",
                count=sum(_shares_gpu(row) for row in ended),
                reason="their run time is that beside the jobs they shared it with",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="jobs whose name no pattern matches",
                count=len(unnamed),
                reason=f"they run alone in a replay; most frequent: {frequent_names(unnamed)}",
            ),
        ),
    )


def _dropped(subject: str, count: int, reason: str) -> Notice:
    return Notice(treatment=Treatment.DROPPED, subject=subject, count=count, reason=reason)


def _gpus(row: CsvRow) -> int:
    """Allocated GPUs of all types, one for shards of a GPU; 0 where neither was allocated."""
    found = GPUS.search(row.fields["AllocTRES"])
    return int(found.group(1)) if found else int(_shares_gpu(row))


def _shares_gpu(row: CsvRow) -> bool:
    """Whether the job was allocated shards of a GPU instead of a whole one."""
    allocated = row.fields["AllocTRES"]
    return SHARDS.search(allocated) is not None and GPUS.search(allocated) is None


def _job(row: CsvRow, start_s: float, workloads: WorkloadMap | None) -> TraceJob:
    job_name = row.fields["JobName"]
    duration_s = _time_s(row, "End") - _time_s(row, "Start")
    if duration_s < 0:
        row.fail("End", "before the job's start", "export the accounting again")
    return TraceJob(
        job_id=row.text("JobID"),
        workload=job_name if workloads is None else workloads.workload(job_name),
        arrival_s=_time_s(row, "Submit") - start_s,
        gpus=_gpus(row),
        duration_s=duration_s,
        user=row.fields["User"],
        vc=row.fields["Partition"],
        status=row.text("State").split()[0].lower(),
    )


def _time_s(row: CsvRow, column: str) -> float:
    try:
        return datetime.strptime(row.fields[column], TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        row.fail(column, "a time such as 2026-11-22T10:00:00 expected", "unset SLURM_TIME_FORMAT and export it again")
