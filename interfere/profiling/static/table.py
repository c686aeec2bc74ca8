"""Adds a static profile to a table: as a row of its own, beside what other sources say of the same job.

Law: nothing measured is changed or lost, and a table that a profiler is working on is refused.
"""

from contextlib import nullcontext
from pathlib import Path

from interfere.data.tables import add_profiles
from interfere.profiling.measurement_log import lock_log
from interfere.records import JobProfile


def add_static(folder: Path, static: JobProfile) -> JobProfile:
    """Write a static profile into the table in `folder`, made if needed; the job as the table now knows it.

    Raises UnfitError when another profiler works in the folder, and TableError for a table that cannot be read.
    """
    raw_folder = folder / "raw"  # only a campaign has one; made here, it would make an imported table look like one
    with lock_log(raw_folder) if raw_folder.is_dir() else nullcontext():
        table = add_profiles(folder, (static,))
    key = (static.workload, static.device_type)
    return next(job for job in table.jobs if (job.workload, job.device_type) == key)
