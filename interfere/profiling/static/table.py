"""Adds a static profile to a table: as a row of its own, or into the measured profile of the same job.

Law: nothing measured is changed or lost, and a table that a profiler is working on is refused.
"""

from contextlib import nullcontext
from pathlib import Path

from interfere.data.tables import JOBS_FILE, PAIRS_FILE, add_profiles, read_table
from interfere.profiling.measurement_log import lock_log
from interfere.profiling.static.profiles import merge_static
from interfere.records import JobProfile


def add_static(folder: Path, static: JobProfile) -> JobProfile:
    """Write a static profile into the table in `folder`, made if needed; the row as the table now holds it.

    Raises UnfitError when another profiler works in the folder, and TableError for a table that cannot be read.
    """
    raw_folder = folder / "raw"  # only a campaign has one; made here, it would make an imported table look like one
    with lock_log(raw_folder) if raw_folder.is_dir() else nullcontext():
        jobs = read_table(folder).jobs if (folder / JOBS_FILE).exists() or (folder / PAIRS_FILE).exists() else ()
        row = merge_static(jobs, static)
        add_profiles(folder, (row,))
    return row
