"""Puts a static profile into a table: beside the others, or into the measured profile of the same job.

Law: nothing measured is changed or lost, and a table that a profiler is working on is refused.
"""

from contextlib import nullcontext
from pathlib import Path

from interfere.data.tables import JOBS_FILE, PAIRS_FILE, add_profiles, read_table
from interfere.profiling.raw import locked
from interfere.profiling.static.profiles import merged
from interfere.records import JobProfile


def add_static(folder: Path, static: JobProfile) -> JobProfile:
    """Write it; the row as it stands now. Raises UnfitError when another profiler has the folder, TableError."""
    raw = folder / "raw"  # only a campaign's folder has one; made here, it would make an import's folder foreign
    with locked(raw) if raw.is_dir() else nullcontext():
        known = read_table(folder).jobs if (folder / JOBS_FILE).exists() or (folder / PAIRS_FILE).exists() else ()
        row = merged(known, static)
        add_profiles(folder, (row,))
    return row
