"""Imports Gavel's `.trace` files: its own job types, arriving as in Microsoft's Philly trace (Jeon et al., ATC 2019).

Tab-separated, no header: job type, command, name of the steps argument, needs a data folder, total steps, arrival in s,
GPUs. The run time of a job follows from a throughput: duration = total steps / steps per second on that many devices.
"""

import math
from pathlib import Path

from interfere.data.importers.gavel import Throughputs, read_throughputs
from interfere.data.importers.import_result import (
    ImportResult,
    Notice,
    Treatment,
    nonempty_notices,
    out_of_order_notice,
)
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.data.traces import JobTrace, TraceJob
from interfere.errors import InvalidInputError
from interfere.records import NAN

COLUMNS = ("job_type", "command", "steps_argument", "needs_data", "total_steps", "arrival", "gpus")
FORMAT_NOTES = (
    "job_id is the row of the file; arrival_s as in the file; the command is not read",
    "duration_s = total steps / solo throughput of the job type on that many devices of the named device type",
)


def import_philly(
    path: Path, *, throughputs: Path | None = None, device_type: str = "v100", name: str = "philly"
) -> ImportResult:
    """Import the trace in `path`, with durations where Gavel's file `throughputs` has them. Raises TableError."""
    file = read_csv(path, COLUMNS, delimiter="\t", header=False)
    gavel = read_throughputs(throughputs) if throughputs else None
    steps_per_s = _steps_per_s(gavel, device_type) if gavel else {}
    jobs = [_job(row, steps_per_s) for row in file.rows]
    missing = (
        f"no throughput of the job type on that many {device_type}"
        if gavel
        else "no throughputs were given (--throughputs)"
    )
    return ImportResult(
        source_format="philly",
        files=(file.source, *((gavel.source,) if gavel else ())),
        format_notes=(*FORMAT_NOTES, f"device type: {device_type if gavel else 'none named'}"),
        trace=JobTrace(name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s))),
        notices=nonempty_notices(
            Notice(
                treatment=Treatment.FLAGGED,
                subject=f"of {len(jobs)} jobs have no duration",
                count=sum(math.isnan(job.duration_s) for job in jobs),
                reason=f"{missing}; total_steps is known",
            ),
            out_of_order_notice([job.arrival_s for job in jobs]),
        ),
    )


def _steps_per_s(gavel: Throughputs, device_type: str) -> dict[tuple[str, int], float]:
    """Positive solo throughputs in steps/s, by job type and number of devices."""
    known = sorted({solo.device_type for solo in gavel.solo})
    if device_type not in known:
        raise InvalidInputError(
            "no throughputs of this device type", value=device_type, remedy=f"one of {', '.join(known)}"
        )
    return {
        (solo.job, solo.gpus): solo.steps_per_s
        for solo in gavel.solo
        if solo.device_type == device_type and solo.steps_per_s > 0
    }


def _job(row: CsvRow, steps_per_s: dict[tuple[str, int], float]) -> TraceJob:
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
