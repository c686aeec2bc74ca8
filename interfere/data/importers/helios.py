"""Imports job traces of SenseTime's Helios clusters (Hu et al., SC 2021), and of Lucid's evaluation on Venus.

One CSV row a submission: `job_id, user, vc, gpu_num, state, submit_time, duration`. Lucid's file adds `dataset, model,
batchsize, amp`, which name a configuration of its pairs. `vc_config.csv` gives the nodes of each virtual cluster.
"""

from datetime import UTC, datetime
from pathlib import Path

from interfere.data.importers.import_result import (
    ImportResult,
    Notice,
    Treatment,
    nonempty_notices,
    out_of_order_notice,
)
from interfere.data.importers.lucid import configuration_name
from interfere.data.importers.strict_reading import CsvFile, CsvRow, read_csv
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster

COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
CONFIGURATION_COLUMNS = ("dataset", "model", "batchsize", "amp")
GPUS_PER_NODE = 8  # Helios, SC 2021, table 1: Venus has 133 nodes and 1,064 GPUs
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
FORMAT_NOTES = (
    "arrival_s counts from the first submission; submit_time is read as UTC, the file names no time zone",
    "duration_s is the run time, without queueing; jobs with equal arrival keep the order of the file",
    "jobs that were cancelled or failed ran for the stated time: they are kept, with their status",
)


def import_helios(
    path: Path, *, vc_config: Path | None = None, gpus_per_node: int = GPUS_PER_NODE, name: str = "helios"
) -> ImportResult:
    """Import the trace in `path`. Raises TableError, which names file, row and column."""
    # 1. Read the files.
    file = read_csv(path, COLUMNS)
    has_configurations = all(column in file.columns for column in CONFIGURATION_COLUMNS)
    config = read_csv(vc_config, ("vc", "num")) if vc_config else None
    clusters = _virtual_clusters(config, gpus_per_node) if config else ()
    # 2. Turn the rows that ask for GPUs into jobs.
    submitted_s = {row.row_number: _submit_time_s(row) for row in file.rows}
    gpu_rows = [row for row in file.rows if row.integer("gpu_num")]
    start_s = min((submitted_s[row.row_number] for row in gpu_rows), default=0.0)
    job_ids: set[str] = set()
    jobs = []
    for row in gpu_rows:
        if row.text("job_id") in job_ids:
            row.fail("job_id", "a second row of this job", "keep one of the two rows")
        job_ids.add(row.text("job_id"))
        jobs.append(_job(row, submitted_s[row.row_number] - start_s, has_configurations=has_configurations))
    return ImportResult(
        source_format="helios",
        files=(file.source, *((config.source,) if config else ())),
        format_notes=FORMAT_NOTES,
        trace=JobTrace(
            name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)), start_s=start_s, clusters=clusters
        ),
        notices=_notices(file, jobs, clusters, has_configurations=has_configurations),
    )


def _notices(
    file: CsvFile, jobs: list[TraceJob], clusters: tuple[VirtualCluster, ...], *, has_configurations: bool
) -> tuple[Notice, ...]:
    arrivals_s = [job.arrival_s for job in jobs]
    capacity = {cluster.vc: cluster.nodes * cluster.gpus_per_node for cluster in clusters}
    unread = file.unread_columns(*COLUMNS, *CONFIGURATION_COLUMNS)
    return nonempty_notices(
        Notice(
            treatment=Treatment.DROPPED,
            subject="jobs without a GPU",
            count=len(file.rows) - len(jobs),
            reason="they share no device",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="jobs without a named configuration",
            count=0 if has_configurations else len(jobs),
            reason=f"the file lacks {', '.join(CONFIGURATION_COLUMNS)}: `workload` is empty",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="jobs in the same second as an earlier one",
            count=len(jobs) - len(set(arrivals_s)),
            reason="their order is that of the file; it changes first-come-first-served results by per cents",
        ),
        out_of_order_notice(arrivals_s),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="jobs of a virtual cluster that the configuration lacks",
            count=sum(job.vc not in capacity for job in jobs) if clusters else 0,
            reason="no devices are known for them",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="jobs that ask for more devices than their virtual cluster has",
            count=sum(job.gpus > capacity.get(job.vc, job.gpus) for job in jobs),
            reason="they never fit as configured",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"columns: {', '.join(unread)}",
            count=len(unread),
            reason="not part of a trace",
        ),
    )


def _job(row: CsvRow, arrival_s: float, *, has_configurations: bool) -> TraceJob:
    return TraceJob(
        job_id=row.text("job_id"),
        workload=configuration_name(row) if has_configurations else "",
        arrival_s=arrival_s,
        gpus=row.integer("gpu_num", low=1),
        duration_s=row.number("duration", low=0.0),
        user=row.text("user"),
        vc=row.text("vc"),
        status=row.text("state").lower(),
    )


def _submit_time_s(row: CsvRow) -> float:
    try:
        return datetime.strptime(row.fields["submit_time"], TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        row.fail("submit_time", "a time such as 2020-09-01 00:14:58 expected", "give year-month-day hour:minute:second")


def _virtual_clusters(config: CsvFile, gpus_per_node: int) -> tuple[VirtualCluster, ...]:
    clusters: dict[str, VirtualCluster] = {}
    for row in config.rows:
        vc = row.text("vc")
        if vc in clusters:
            row.fail("vc", "a second row of this virtual cluster", "keep one of the two rows")
        clusters[vc] = VirtualCluster(vc=vc, nodes=row.integer("num", low=1), gpus_per_node=gpus_per_node)
    return tuple(clusters.values())
