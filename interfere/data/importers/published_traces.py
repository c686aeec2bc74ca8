"""Imports job traces that were published with schedulers: Gavel's (OSDI 2020), and Helios' (Hu et al., SC 2021).

Gavel's `.trace` files hold its own job types, arriving as in Microsoft's Philly trace (Jeon et al., ATC 2019).
Tab-separated, no header: job type, command, name of the steps argument, needs a data folder, total steps, arrival in s,
GPUs. The run time of a job follows from a throughput: duration = total steps / steps per second on that many devices.

A trace of SenseTime's Helios clusters, and of Lucid's evaluation on Venus, has one CSV row a submission: `job_id, user,
vc, gpu_num, state, submit_time, duration`. Lucid's file adds `dataset, model, batchsize, amp`, which name a
configuration of its pairs. `vc_config.csv` gives the nodes of each virtual cluster.
"""

import math
from pathlib import Path

from interfere.data.importers.gavel import Throughputs, read_throughputs
from interfere.data.importers.import_result import ImportResult, dropped, flagged, out_of_order_notice
from interfere.data.importers.lucid import configuration_name
from interfere.data.importers.strict_reading import CsvFile, CsvRow, check_unique, read_csv
from interfere.data.traces import TraceJob, VirtualCluster, trace_of_jobs
from interfere.errors import InvalidInputError
from interfere.records import NAN

# --- Gavel's, with the arrivals of Philly -----------------------------------------------------------------------------

PHILLY_COLUMNS = ("job_type", "command", "steps_argument", "needs_data", "total_steps", "arrival", "gpus")
PHILLY_NOTES = (
    "job_id is the row of the file; arrival_s as in the file; the command is not read",
    "duration_s = total steps / solo throughput of the job type on that many devices of the named device type",
)


def import_philly(path: Path, *, throughputs: Path | None = None, device_type: str = "v100") -> ImportResult:
    """Import a job trace; `throughputs` is Gavel's file that gives the jobs their durations. Raises TableError."""
    file = read_csv(path, PHILLY_COLUMNS, delimiter="\t", header=False)
    read = read_throughputs(throughputs) if throughputs else None
    steps_per_s = _steps_per_s(read, device_type) if read else {}
    jobs = [_philly_job(row, steps_per_s) for row in file.rows]
    missing = (
        f"no throughput of the job type on that many {device_type}"
        if read
        else "no throughputs were given (--throughputs)"
    )
    without_duration = sum(math.isnan(job.duration_s) for job in jobs)
    return ImportResult(
        source_format="philly",
        files=(file.source, *((read.source,) if read else ())),
        format_notes=(*PHILLY_NOTES, f"device type: {device_type if read else 'none named'}"),
        trace=trace_of_jobs(path.stem, jobs, dated=False),
        notices=(
            flagged(without_duration, f"of {len(jobs)} jobs have no duration", f"{missing}; total_steps is known"),
            out_of_order_notice([job.arrival_s for job in jobs]),
        ),
    )


def _steps_per_s(read: Throughputs, device_type: str) -> dict[tuple[str, int], float]:
    """Return the positive solo throughputs of a device type in steps/s, by job type and number of devices."""
    known = sorted({each for each, _, _ in read.solo})
    if device_type not in known:
        raise InvalidInputError(
            "no throughputs of this device type", value=device_type, remedy=f"one of {', '.join(known)}"
        )
    return {(job, gpus): rate for (each, job, gpus), rate in read.solo.items() if each == device_type and rate > 0}


def _philly_job(row: CsvRow, steps_per_s: dict[tuple[str, int], float]) -> TraceJob:
    workload = row.text("job_type")
    steps = row.integer("total_steps", low=1, high=2**53)
    gpus = row.integer("gpus", low=1)
    throughput = steps_per_s.get((workload, gpus))
    return TraceJob(
        job_id=str(row.row_number),
        workload=workload,
        arrival_s=row.number("arrival", low=0.0),
        gpus=gpus,
        total_steps=steps,
        duration_s=steps / throughput if throughput else NAN,
    )


# --- Helios -----------------------------------------------------------------------------------------------------------

HELIOS_COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
CONFIGURATION_COLUMNS = ("dataset", "model", "batchsize", "amp")
GPUS_PER_NODE = 8  # Helios, SC 2021, table 1: Venus has 133 nodes and 1,064 GPUs
HELIOS_NOTES = (
    "arrival_s counts from the first submission; submit_time is read as UTC, the file names no time zone",
    "duration_s is the run time, without queueing; jobs with equal arrival keep the order of the file",
    "jobs that were cancelled or failed ran for the stated time: they are kept, with their status",
)


def import_helios(path: Path, *, vc_config: Path | None = None, gpus_per_node: int = GPUS_PER_NODE) -> ImportResult:
    """Import the trace in `path`. Raises TableError, which names file, row and column."""
    file = read_csv(path, HELIOS_COLUMNS)
    named = all(column in file.columns for column in CONFIGURATION_COLUMNS)
    config = read_csv(vc_config, ("vc", "num")) if vc_config else None
    clusters = _virtual_clusters(config, gpus_per_node) if config else ()
    gpu_rows = [row for row in file.rows if row.integer("gpu_num")]
    check_unique(gpu_rows, "job_id", "this job", "keep one of the two rows")
    jobs = [_helios_job(row, configuration_name(row) if named else "") for row in gpu_rows]
    arrivals_s = [job.arrival_s for job in jobs]
    capacity = {cluster.vc: cluster.nodes * cluster.gpus_per_node for cluster in clusters}
    unread = file.unread_columns(*HELIOS_COLUMNS, *CONFIGURATION_COLUMNS)
    return ImportResult(
        source_format="helios",
        files=(file.source, *((config.source,) if config else ())),
        format_notes=HELIOS_NOTES,
        trace=trace_of_jobs(path.stem, jobs, dated=True, clusters=clusters),
        notices=(
            dropped(len(file.rows) - len(jobs), "jobs without a GPU", "they share no device"),
            flagged(
                0 if named else len(jobs),
                "jobs without a named configuration",
                f"the file lacks {', '.join(CONFIGURATION_COLUMNS)}: `workload` is empty",
            ),
            flagged(
                len(jobs) - len(set(arrivals_s)),
                "jobs in the same second as an earlier one",
                "their order is that of the file; it changes first-come-first-served results by per cents",
            ),
            out_of_order_notice(arrivals_s),
            flagged(
                sum(job.vc not in capacity for job in jobs) if clusters else 0,
                "jobs of a virtual cluster that the configuration lacks",
                "no devices are known for them",
            ),
            flagged(
                sum(job.gpus > capacity.get(job.vc, job.gpus) for job in jobs),
                "jobs that ask for more devices than their virtual cluster has",
                "they never fit as configured",
            ),
            dropped(len(unread), f"columns: {', '.join(unread)}", "not part of a trace"),
        ),
    )


def _helios_job(row: CsvRow, workload: str) -> TraceJob:
    remedy = "give year-month-day hour:minute:second"
    return TraceJob(
        job_id=row.text("job_id"),
        workload=workload,
        arrival_s=row.time_s("submit_time", "%Y-%m-%d %H:%M:%S", remedy),
        gpus=row.integer("gpu_num", low=1),
        duration_s=row.number("duration", low=0.0),
        user=row.text("user"),
        vc=row.text("vc"),
        status=row.text("state").lower(),
    )


def _virtual_clusters(config: CsvFile, gpus_per_node: int) -> tuple[VirtualCluster, ...]:
    check_unique(config.rows, "vc", "this virtual cluster", "keep one of the two rows")
    return tuple(
        VirtualCluster(vc=row.text("vc"), nodes=row.integer("num", low=1), gpus_per_node=gpus_per_node)
        for row in config.rows
    )
