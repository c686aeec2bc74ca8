"""Orion's kernel profiles (Strati et al., EuroSys 2024): one CSV row a launch of one step, in order of launch.

`Name, Profile, Memory_footprint, SM_usage, Duration`: Profile is 1 for compute-bound, 0 for memory-bound, -1 for
unknown; SM_usage the multiprocessors that the launch could fill (above those of the device for large grids); Duration
in ns. Files are named after their job: `resnet50_32_fb1.csv` is training, `resnet50_4_fwd.csv` inference.
"""

import math
from pathlib import Path

from interfere.data.importers.import_result import Fate, Imported, Notice, SourceFile, notices
from interfere.data.importers.kernels.kernel_table import SUM_FACT, Launch, check_single, csv_files, kernel_profile
from interfere.data.importers.strict_reading import Row, read_csv
from interfere.records import NAN, JobProfile

COLUMNS = ("Name", "Profile", "Memory_footprint", "SM_usage", "Duration")
BOUND = {"1": 1.0, "0": 0.0, "-1": NAN}
FACTS = (
    "one file is one step of one job: workload = file name",
    "no grid in this format: an identity is (name, SM_usage, Profile); gaps between kernels are unknown",
    "SM_usage is what a launch could fill: it may pass the multiprocessors of the device",
)


def import_orion(path: Path, *, device_type: str = "v100", name: str = "", step_time_s: float = NAN) -> Imported:
    """One profile a file. Raises TableError that names file, row and column."""
    files = csv_files(path)
    check_single(files, name, step_time_s)
    unknown = footprints = total = 0
    jobs: list[JobProfile] = []
    sources: list[SourceFile] = []
    for one in files:
        file = read_csv(one, COLUMNS)
        launches = tuple(map(_launch, file.rows))
        unknown += sum(math.isnan(launch.compute_bound) for launch in launches)
        footprints += sum(row.number("Memory_footprint", low=0.0) > 0 for row in file.rows)
        total += len(launches)
        sources.append(file.source)
        jobs.append(
            kernel_profile(
                launches,
                workload=name or one.stem,
                device_type=device_type,
                source="orion",
                steps=1,
                step_time_s=step_time_s,
            )
        )
    return Imported(
        kind="orion",
        files=tuple(sources),
        facts=(*FACTS, SUM_FACT, f"device type: {device_type}, as named in the command (published files: V100)"),
        jobs=tuple(jobs),
        notices=notices(
            Notice(
                fate=Fate.FLAGGED,
                what=f"of {total} launches are of unknown kind",
                count=unknown,
                why="Profile is -1: neither compute- nor memory-bound, as Orion classed it",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="profiles whose step time is the sum of their kernels",
                count=len(jobs) if math.isnan(step_time_s) else 0,
                why="the format has no step time",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="launches with a memory footprint",
                count=footprints,
                why="its unit is not documented: the number is left out, the launch is kept",
            ),
        ),
    )


def orion_launches(path: Path) -> tuple[Launch, ...]:
    """The launches of one file, in order. Raises TableError that names file, row and column."""
    return tuple(map(_launch, read_csv(path, COLUMNS).rows))


def _launch(row: Row) -> Launch:
    if row.fields["Profile"] not in BOUND:
        row.fail("Profile", "1, 0 or -1 expected", "1 is compute-bound, 0 memory-bound, -1 unknown")
    return Launch(
        name=row.text("Name"),
        duration_s=row.number("Duration", low=0.0, above=True) * 1e-9,
        sm_used=float(row.whole("SM_usage", low=1)),
        compute_bound=BOUND[row.fields["Profile"]],
    )
