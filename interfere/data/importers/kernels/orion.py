"""Imports Orion's kernel profiles (Strati et al., EuroSys 2024): one CSV row per kernel launch of one step, in order.

Columns: `Name, Profile, Memory_footprint, SM_usage, Duration`. Profile is 1 for compute-bound, 0 for memory-bound, -1
for unknown. SM_usage is the number of multiprocessors that the launch could fill, which for large grids is more than
the device has. Duration is in ns. A file is named after its job: `resnet50_32_fb1.csv` is training,
`resnet50_4_fwd.csv` inference.
"""

import math
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.kernels.kernel_table import (
    SUM_NOTE,
    KernelLaunch,
    check_single_file_options,
    csv_files,
    profile_from_launches,
)
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.records import NAN, JobProfile

COLUMNS = ("Name", "Profile", "Memory_footprint", "SM_usage", "Duration")
COMPUTE_BOUND = {"1": 1.0, "0": 0.0, "-1": NAN}
FORMAT_NOTES = (
    "one file is one step of one job: workload = file name",
    "no grid in this format: an identity is (name, SM_usage, Profile); gaps between kernels are unknown",
    "SM_usage is what a launch could fill: it may be more than the multiprocessors of the device",
)


def import_orion(path: Path, *, device_type: str = "v100", name: str = "", step_time_s: float = NAN) -> ImportResult:
    """Import one profile per file. Raises TableError, which names file, row and column."""
    files = csv_files(path)
    check_single_file_options(files, name, step_time_s)
    unclassified = footprints = total = 0
    jobs: list[JobProfile] = []
    sources: list[SourceFile] = []
    for file_path in files:
        file = read_csv(file_path, COLUMNS)
        launches = tuple(map(_launch, file.rows))
        unclassified += sum(math.isnan(launch.compute_bound) for launch in launches)
        footprints += sum(row.number("Memory_footprint", low=0.0) > 0 for row in file.rows)
        total += len(launches)
        sources.append(file.source)
        jobs.append(
            profile_from_launches(
                launches,
                workload=name or file_path.stem,
                device_type=device_type,
                source="orion",
                steps=1,
                step_time_s=step_time_s,
            )
        )
    return ImportResult(
        source_format="orion",
        files=tuple(sources),
        format_notes=(
            *FORMAT_NOTES,
            SUM_NOTE,
            f"device type: {device_type}, as named in the command (published files: V100)",
        ),
        jobs=tuple(jobs),
        notices=nonempty_notices(
            Notice(
                treatment=Treatment.FLAGGED,
                subject=f"of {total} launches are of unknown kind",
                count=unclassified,
                reason="Profile is -1: Orion classed them neither as compute- nor as memory-bound",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="profiles whose step time is the sum of their kernels",
                count=len(jobs) if math.isnan(step_time_s) else 0,
                reason="the format has no step time",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="launches with a memory footprint",
                count=footprints,
                reason="its unit is not documented: the number is left out, the launch is kept",
            ),
        ),
    )


def orion_launches(path: Path) -> tuple[KernelLaunch, ...]:
    """The launches of one file, in order. Raises TableError, which names file, row and column."""
    return tuple(map(_launch, read_csv(path, COLUMNS).rows))


def _launch(row: CsvRow) -> KernelLaunch:
    if row.fields["Profile"] not in COMPUTE_BOUND:
        row.fail("Profile", "1, 0 or -1 expected", "1 is compute-bound, 0 memory-bound, -1 unknown")
    return KernelLaunch(
        name=row.text("Name"),
        duration_s=row.number("Duration", low=0.0, exclude_low=True) * 1e-9,
        sm_used=float(row.integer("SM_usage", low=1)),
        compute_bound=COMPUTE_BOUND[row.fields["Profile"]],
    )
