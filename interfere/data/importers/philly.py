"""Gavel's `.trace` files: jobs of its own set, arriving as in Microsoft's Philly trace (Jeon et al., ATC 2019).

Tab-separated, no header: job type, command, name of the steps argument, needs a data folder, total steps, arrival in s,
GPUs. How long a job runs follows from a throughput: duration = total steps / steps per second on that many devices.
"""

import math
from pathlib import Path

from interfere.data.importers.gavel import Throughputs, read_throughputs
from interfere.data.importers.import_result import Fate, Imported, Notice, notices, unsorted
from interfere.data.importers.strict_reading import Row, read_csv
from interfere.data.traces import JobTrace, TraceJob
from interfere.errors import InvalidInputError
from interfere.records import NAN

COLUMNS = ("job_type", "command", "steps_argument", "needs_data", "total_steps", "arrival", "gpus")
FACTS = (
    "job_id is the row of the file; arrival_s as in the file; the command is not read",
    "duration_s = total steps / throughput alone of the job type on that many devices of the device type named",
)


def import_philly(
    path: Path, *, throughputs: Path | None = None, device_type: str = "v100", name: str = "philly"
) -> Imported:
    """The trace; durations where `throughputs` (a file of Gavel's) knows them. Raises TableError."""
    file = read_csv(path, COLUMNS, delimiter="\t", header=False)
    read = read_throughputs(throughputs) if throughputs else None
    rates = _rates(read, device_type) if read else {}
    jobs = [_job(row, rates) for row in file.rows]
    arrived = [job.arrival_s for job in jobs]
    missing = sum(math.isnan(job.duration_s) for job in jobs)
    why = f"no throughput of the job type on that many {device_type}" if read else "no throughputs were given"
    return Imported(
        kind="philly",
        files=(file.source, *((read.source,) if read else ())),
        facts=(*FACTS, f"device type: {device_type if read else 'none named'}"),
        trace=JobTrace(name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s))),
        notices=notices(
            Notice(
                fate=Fate.FLAGGED,
                what=f"of {len(jobs)} jobs have no duration",
                count=missing,
                why=f"{why}: total_steps is there",
            ),
            unsorted(arrived),
        ),
    )


def _rates(read: Throughputs, device_type: str) -> dict[tuple[str, int], float]:
    """Steps/s by job type and number of devices, where above zero."""
    known = sorted({one.device_type for one in read.alone})
    if device_type not in known:
        raise InvalidInputError(
            "no throughputs of this device type", value=device_type, remedy=f"one of {', '.join(known)}"
        )
    return {
        (one.job, one.gpus): one.steps_per_s
        for one in read.alone
        if one.device_type == device_type and one.steps_per_s > 0
    }


def _job(row: Row, rates: dict[tuple[str, int], float]) -> TraceJob:
    workload, steps, gpus = row.text("job_type"), row.whole("total_steps", low=1, high=2**53), row.whole("gpus", low=1)
    rate = rates.get((workload, gpus))
    return TraceJob(
        job_id=str(row.row),
        workload=workload,
        arrival_s=row.number("arrival", low=0.0),
        gpus=gpus,
        total_steps=steps,
        duration_s=steps / rate if rate else NAN,
    )
