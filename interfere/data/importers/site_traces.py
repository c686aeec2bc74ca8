"""Imports the job histories that sites have: Slurm's accounting, the pods of a Kubernetes cluster, or any CSV of jobs.

Law 1: a trace holds the jobs that were allocated devices, started and ended; the others are dropped and counted.
Law 2: without a map a job's workload is the name that the site gave it. With a map it is the workload of the first row
whose pattern is found in that name; a job whose name no pattern matches has no workload, and runs alone in a replay.

`sacct`: one row a job, by `SACCT_COMMAND`; rows of job steps (`12.batch`) are left out.
`pods`: one pod is one job on as many devices as its containers ask for.
`csv`: one row a submission, in any order, whose columns the user names. Needed are job_id, arrival and gpus, and
duration or both start and end. Times are seconds, or dates and times such as 2026-11-22T10:00:00 (UTC where they name
no zone); one file has one kind. Optional: name, user, vc, status.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, dropped, flagged
from interfere.data.importers.strict_reading import NUMBER, CsvRow, check_unique, read_csv, read_json
from interfere.data.traces import TraceJob, trace_of_jobs
from interfere.errors import InvalidInputError, TableError

NO_DEVICE = "they share no device"
NO_RUN_TIME = "their run time is unknown"

# --- names of workloads ----------------------------------------------------------------------------------------------

MAP_COLUMNS = ("pattern", "workload")
MAX_NAMES = 5  # of unmatched jobs that a notice shows, the most frequent


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadMap:
    """Regular expressions of job names with their workloads, in the order of the file that they are from."""

    patterns: tuple[tuple[re.Pattern[str], str], ...]
    source: SourceFile

    def workload(self, job_name: str) -> str:
        """Return the workload of a job; "" where no pattern matches the job's name."""
        return next((workload for pattern, workload in self.patterns if pattern.search(job_name)), "")


def read_workload_map(path: Path) -> WorkloadMap:
    """Return the map in a CSV file `pattern,workload`. Raises TableError, which names file and row."""
    file = read_csv(path, MAP_COLUMNS)
    patterns = []
    for row in file.rows:
        try:
            patterns.append((re.compile(row.text("pattern")), row.text("workload")))
        except re.error as error:
            row.fail("pattern", f"not a regular expression ({error})", "escape special characters with a backslash")
    return WorkloadMap(patterns=tuple(patterns), source=file.source)


def _workload(job_name: str, workloads: WorkloadMap | None) -> str:
    return job_name if workloads is None else workloads.workload(job_name)


def _site_import(
    source_format: str,
    jobs: Sequence[tuple[str, TraceJob]],
    source: SourceFile,
    workloads: WorkloadMap | None,
    *,
    notes: tuple[str, ...],
    notices: tuple[Notice, ...],
    unnamed: str,
    dated: bool = True,
) -> ImportResult:
    """Return the import of a trace. `jobs` holds the jobs with the names that the site gave them.

    `unnamed` describes jobs without a workload, for the notice that counts them. `dated`: arrivals are unix times.
    """
    frequent = Counter(job_name for job_name, job in jobs if not job.workload)
    names = ", ".join(f"{job_name} ({count})" for job_name, count in frequent.most_common(MAX_NAMES))
    reason = f"they run alone in a replay; most frequent: {names}"
    return ImportResult(
        source_format=source_format,
        files=(source, *((workloads.source,) if workloads is not None else ())),
        format_notes=notes,
        trace=trace_of_jobs(source.path.stem, [job for _, job in jobs], dated=dated),
        notices=(*notices, flagged(frequent.total(), unnamed, reason)),
    )


# --- Slurm -----------------------------------------------------------------------------------------------------------

# The job's name comes last: it may hold the "|" that separates columns.
SACCT_COLUMNS = ("JobID", "User", "Partition", "State", "Submit", "Start", "End", "AllocTRES", "JobName")
SACCT_COMMAND = f"sacct --allusers --allocations --parsable2 --starttime=now-30days --format={','.join(SACCT_COLUMNS)}"
GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?:,|$)")
SHARDS = re.compile(r"(?:^|,)gres/shard=[1-9]")
NO_TIME = ("Unknown", "None", "")
SACCT_NOTES = (
    "arrival_s counts from the first submission; times are read as UTC, sacct prints them in the site's time zone",
    "duration_s = End - Start, the run time without queueing; gpus = gres/gpu in AllocTRES; vc = Partition",
    "a job with shards of a GPU (gres/shard) counts as one GPU",
    "jobs that failed, timed out or were cancelled while they ran are kept, with their status",
)


def import_sacct(path: Path, *, workloads: WorkloadMap | None = None) -> ImportResult:
    """Import the output of `SACCT_COMMAND`. Raises TableError, which names file, row and column."""
    remedy = f"export it by {SACCT_COMMAND}"
    file = read_csv(path, SACCT_COLUMNS, delimiter="|", free_text="JobName", header_remedy=remedy)
    allocations = [row for row in file.rows if "." not in row.text("JobID")]
    with_gpus = [row for row in allocations if _allocated_gpus(row)]
    ended = [row for row in with_gpus if row.fields["Start"] not in NO_TIME and row.fields["End"] not in NO_TIME]
    check_unique(ended, "JobID", "this job", "leave --duplicates out")
    jobs = [(row.fields["JobName"], _slurm_job(row, workloads)) for row in ended]
    shard_reason = "their run time is that beside the jobs they shared it with"
    return _site_import(
        "sacct",
        jobs,
        file.source,
        workloads,
        notes=SACCT_NOTES,
        notices=(
            dropped(len(file.rows) - len(allocations), "rows of job steps", "the row of their job counts"),
            dropped(len(allocations) - len(with_gpus), "jobs without a GPU", NO_DEVICE),
            dropped(len(with_gpus) - len(ended), "jobs that have not started or ended", NO_RUN_TIME),
            flagged(sum(map(_holds_shards, ended)), "jobs that held shards of a GPU", shard_reason),
        ),
        unnamed="jobs whose name no pattern matches",
    )


def _allocated_gpus(row: CsvRow) -> int:
    """Return the number of allocated GPUs of all types: 1 for shards of a GPU, 0 where neither was allocated."""
    found = GPUS.search(row.fields["AllocTRES"])
    return int(found.group(1)) if found else int(_holds_shards(row))


def _holds_shards(row: CsvRow) -> bool:
    """Return whether a job was allocated shards of a GPU instead of whole GPUs."""
    allocated = row.fields["AllocTRES"]
    return SHARDS.search(allocated) is not None and GPUS.search(allocated) is None


def _slurm_job(row: CsvRow, workloads: WorkloadMap | None) -> TraceJob:
    submitted_s, started_s, ended_s = (
        row.time_s(column, "%Y-%m-%dT%H:%M:%S", "unset SLURM_TIME_FORMAT and export it again")
        for column in ("Submit", "Start", "End")
    )
    if ended_s < started_s:
        row.fail("End", "before the job's start", "export the accounting again")
    return TraceJob(
        job_id=row.text("JobID"),
        workload=_workload(row.fields["JobName"], workloads),
        arrival_s=submitted_s,
        gpus=_allocated_gpus(row),
        duration_s=ended_s - started_s,
        user=row.fields["User"],
        vc=row.fields["Partition"],
        status=row.text("State").split()[0].lower(),
    )


# --- Kubernetes ------------------------------------------------------------------------------------------------------

RESOURCE = "nvidia.com/gpu"
PODS_COMMAND = "kubectl get pods --all-namespaces --output json"
POD_NOTES = (
    "arrival_s counts from the first creationTimestamp; duration_s from the first start of a container to the last end",
    "gpus = limits of the resource, summed over containers; vc = namespace; user = the pod's service account",
    "pods that failed are kept, with their phase; pods that were deleted are not in the list",
)


def import_pods(
    path: Path,
    *,
    workloads: WorkloadMap | None = None,
    name_label: str = "",
    resource: str = RESOURCE,
) -> ImportResult:
    """Import the list of pods that `PODS_COMMAND` prints. Raises TableError, which names the file and the pod.

    The map of workloads looks up the value of a pod's label `name_label`, or the pod's name. A pod's devices are the
    limits of `resource`, summed over its containers.
    """
    document, source = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        seen = ", ".join(sorted(document)) if isinstance(document, dict) else type(document).__name__
        raise TableError(
            f"{path.name}: not a list of pods: `items` is missing",
            value=f"found {seen[:200]} in {path}",
            remedy=f"give the output of `{PODS_COMMAND}`",
        )
    jobs: list[tuple[str, TraceJob]] = []
    without_devices = not_ended = 0
    for index, item in enumerate(document["items"]):
        try:
            gpus, run_s = _pod_gpus(item, resource), _pod_run_s(item)
            if gpus and run_s is not None:
                jobs.append(_pod_job(item, gpus, run_s, name_label, workloads))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(
                f"{path.name}, item {index}: not a pod ({type(error).__name__}: {error})",
                value=path,
                remedy=f"give the output of `{PODS_COMMAND}`",
            ) from None
        without_devices += not gpus
        not_ended += bool(gpus) and run_s is None
    return _site_import(
        "pods",
        jobs,
        source,
        workloads,
        notes=POD_NOTES,
        notices=(
            dropped(without_devices, f"pods without {resource}", NO_DEVICE),
            dropped(not_ended, "pods that have not run or ended", NO_RUN_TIME),
        ),
        unnamed="pods whose name no pattern matches",
    )


def _pod_gpus(item: Any, resource: str) -> int:
    """Return the number of devices that the containers of a pod ask for."""
    limits = [(container.get("resources") or {}).get("limits") or {} for container in item["spec"]["containers"]]
    return sum(int(limit.get(resource, 0)) for limit in limits)


def _pod_run_s(item: Any) -> tuple[float, float] | None:
    """Return the first start and the last end of a pod's containers in unix time; None where a container has not
    ended."""
    containers = item.get("status", {}).get("containerStatuses") or []
    ends = [container["state"].get("terminated") for container in containers]
    if not ends or not all(ends):
        return None
    return min(_pod_time_s(end["startedAt"]) for end in ends), max(_pod_time_s(end["finishedAt"]) for end in ends)


def _pod_time_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _pod_job(
    item: Any, gpus: int, run_s: tuple[float, float], name_label: str, workloads: WorkloadMap | None
) -> tuple[str, TraceJob]:
    """Return the name of a pod for the map of workloads, and the pod as a job."""
    metadata = item["metadata"]
    pod, namespace = str(metadata["name"]), str(metadata.get("namespace", ""))
    job_name = str((metadata.get("labels") or {}).get(name_label, "")) or pod
    job = TraceJob(
        job_id=str(metadata.get("uid") or f"{namespace}/{pod}"),
        workload=_workload(job_name, workloads),
        arrival_s=_pod_time_s(metadata["creationTimestamp"]),
        gpus=gpus,
        duration_s=max(0.0, run_s[1] - run_s[0]),
        user=str(item["spec"].get("serviceAccountName", "")),
        vc=namespace,
        status=str(item["status"].get("phase", "")).lower(),
    )
    return job_name, job


# --- CSV files -------------------------------------------------------------------------------------------------------

NEEDED, TIMES, OPTIONAL = ("job_id", "arrival", "gpus"), ("duration", "start", "end"), ("name", "user", "vc", "status")
FIELDS = (*NEEDED, *TIMES, *OPTIONAL)
CSV_NOTES = (
    "arrival_s counts from the first submission where arrivals are dates; duration_s is the run time without queueing",
)


def column_map(assignments: Iterable[str]) -> dict[str, str]:
    """Return the column of each field from texts `FIELD=COLUMN`. Raises InvalidInputError for another text."""
    columns = {}
    for assignment in assignments:
        field, equals, column = assignment.partition("=")
        if not (field and equals and column):
            raise InvalidInputError("not FIELD=COLUMN", value=assignment, remedy="for example gpus=AllocGPUs")
        columns[field] = column
    return columns


def import_job_csv(path: Path, columns: Mapping[str, str], *, workloads: WorkloadMap | None = None) -> ImportResult:
    """Import the jobs of a CSV file.

    `columns` maps fields to columns of the file; a field without an entry is read from the column of the same name.
    Raises TableError with file, row and column; InvalidInputError for an unknown field.
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
    check_unique(ended, named["job_id"], "this job", "keep one of the two rows")
    jobs = [_csv_job(row, present, workloads, by_ends=by_ends) for row in ended]
    return _site_import(
        "csv",
        jobs,
        file.source,
        workloads,
        notes=CSV_NOTES,
        notices=(
            dropped(len(file.rows) - len(with_gpus), "jobs without a GPU", NO_DEVICE),
            dropped(len(with_gpus) - len(ended), "jobs without times", NO_RUN_TIME),
        ),
        unnamed="jobs without a workload",
        dated=any(not NUMBER.fullmatch(row.fields[named["arrival"]]) for row in ended),
    )


def _csv_job(
    row: CsvRow, present: Mapping[str, str], workloads: WorkloadMap | None, *, by_ends: bool
) -> tuple[str, TraceJob]:
    """Return the name of the job in a row, and the job. `present` holds the column of each field that the file has."""
    texts = {field: row.fields[present[field]] if field in present else "" for field in OPTIONAL}
    if by_ends:
        duration_s = _seconds(row, present["end"]) - _seconds(row, present["start"])
        if duration_s < 0:
            row.fail(present["end"], "before the job's start", "export the jobs again")
    else:
        duration_s = row.number(present["duration"], low=0.0)
    job = TraceJob(
        job_id=row.text(present["job_id"]),
        workload=_workload(texts["name"], workloads),
        arrival_s=_seconds(row, present["arrival"]),
        gpus=row.integer(present["gpus"], low=1),
        duration_s=duration_s,
        user=texts["user"],
        vc=texts["vc"],
        status=texts["status"].lower(),
    )
    return texts["name"], job


def _seconds(row: CsvRow, column: str) -> float:
    """Return the seconds in a field, or the unix time of the date and time in the field."""
    if NUMBER.fullmatch(row.fields[column]):
        return row.number(column, low=0.0)
    try:
        moment = datetime.fromisoformat(row.fields[column])
    except ValueError:
        row.fail(
            column, "seconds, or a time such as 2026-11-22T10:00:00 expected", "write times in one of the two ways"
        )
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
