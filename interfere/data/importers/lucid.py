"""Imports Lucid's measurements on an RTX 3090 (Hu et al., ASPLOS 2023).

The folder of measurements holds `colocate_info.csv` (the speeds of both jobs of a pair as a share of their speed alone,
and utilisation measured while they share the device) and `single_data.csv` (samples/s, GPU and memory utilisation, and
memory of each configuration alone). The publishers' `workloads/*/profile_*.py` compute speed as iterations · batch size
/ s; `profile/co_collect.py` starts two plain processes, so pairs share the device in time slices.

Law: what was measured while two jobs shared the device is never a fact of one job: those columns are not read.
"""

import math
from collections import Counter
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, SourceFile, dropped, flagged
from interfere.data.importers.strict_reading import CsvFile, CsvRow, read_csv
from interfere.errors import TableError
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile, PairMeasurement
from interfere.sharing_modes import SharingMode

PAIRS_CSV, SOLO_CSV = "colocate_info.csv", "single_data.csv"
SUBFOLDERS = {PAIRS_CSV: ("", "simulation/data"), SOLO_CSV: ("", "simulation/analyzer")}  # or as in their repository
DEVICE_TYPE = "rtx3090"  # simulation/policy/lucid.py: "RTX 3090 24GB Memory for our benchmarking"
SOLO_COLUMNS = ("model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem")
SIDE_COLUMNS = ("model", "dataset", "gpu_num", "batchsize", "amp", "speed")
MIB = 2**20  # profile/co_collect.py strips nvidia-smi's " MiB" from this number
DEFAULT_SPEED_MODELS = ("PPO", "TD3")  # all their published speeds are 1.000
FORMAT_NOTES = (
    "step_time_s = batch size / samples per second alone; slowdown = 1 / published speed",
    "mode timeslice: two plain processes on one device, no MPS",
    "profiles come from single_data.csv only",
)


def import_lucid(folder: Path) -> ImportResult:
    """Import profiles and pairs. Raises TableError, which names file, row and column."""
    solo = read_csv(_find_file(folder, SOLO_CSV), SOLO_COLUMNS)
    pair_columns = tuple(f"{name}{side}" for side in (1, 2) for name in SIDE_COLUMNS)
    shared = read_csv(_find_file(folder, PAIRS_CSV), pair_columns)
    jobs = _profiles(solo)
    found: dict[tuple[str, str], list[float]] = {}  # slowdowns by victim and neighbour
    counts = Counter[str]()
    for row in shared.rows:
        _add_row(row, jobs, found, counts)
    pairs = tuple(_pair(shared.source, names, slowdowns) for names, slowdowns in found.items())
    kept = sum(map(len, found.values()))
    shared_unread, solo_unread = shared.unread_columns(*pair_columns), solo.unread_columns(*SOLO_COLUMNS)
    above_one = "the publishers divided by a solo time that is too long for the configuration: a bias per job, kept as "
    default = "always exactly 1.000, a default and no measurement: these jobs are kept as neighbours only"
    leak = "measured while co-located: as inputs of a model they would leak the answer"
    return ImportResult(
        source_format="lucid",
        files=(shared.source, solo.source),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs.values()),
        pairs=pairs,
        notices=(
            flagged(counts["above one"], f"of {kept} speeds kept are above 1", above_one + "published"),
            dropped(counts["default"], f"speeds of {' and '.join(DEFAULT_SPEED_MODELS)}", default),
            flagged(
                counts["repeat"],
                "speeds that repeat a pair already in the file",
                "a repeated measurement: one more entry in `passes`",
            ),
            dropped(counts["several devices"], "rows on several devices", "a row is about one shared device"),
            dropped(
                counts["no profile"],
                f"rows with a job that {SOLO_CSV} lacks",
                "a pair needs the profiles of both jobs",
            ),
            dropped(len(shared_unread), f"columns of {PAIRS_CSV}: {', '.join(shared_unread)}", leak),
            dropped(len(solo_unread), f"columns of {SOLO_CSV}: {', '.join(solo_unread)}", "not a measured fact"),
        ),
    )


def configuration_name(row: CsvRow, side: str = "") -> str:
    """Return the name of a job's configuration: model, dataset, batch size, and whether it uses mixed precision.

    `side` is the suffix of the columns: "1" or "2" in a row about a pair.
    """
    amp = row.integer(f"amp{side}")
    if amp > 1:
        row.fail(f"amp{side}", "0 or 1 expected", "0 is float32, 1 mixed precision")
    batch = row.integer(f"batchsize{side}", low=1)
    return f"{row.text(f'model{side}')} {row.text(f'dataset{side}')} bs{batch} amp{amp}"


def _find_file(folder: Path, name: str) -> Path:
    for subfolder in SUBFOLDERS[name]:
        if (folder / subfolder / name).is_file():
            return folder / subfolder / name
    raise TableError(
        f"the folder has no {name}",
        value=folder,
        remedy=f"give a folder with {PAIRS_CSV} and {SOLO_CSV} (`interfere data sources`)",
    )


def _profiles(solo: CsvFile) -> dict[str, JobProfile]:
    """Return the profile of each configuration in `single_data.csv`, by the configuration's name."""
    jobs: dict[str, JobProfile] = {}
    for row in solo.rows:
        name = configuration_name(row)
        if name in jobs:
            row.fail("model", f"a second profile of {name}", "keep one of the two rows")
        jobs[name] = JobProfile(
            workload=name,
            device_type=DEVICE_TYPE,
            step_time_s=row.integer("batchsize", low=1) / row.number("speed", low=0.0, exclude_low=True),
            gpu_util_frac=row.number("gpu_util", low=0.0, high=100.0) / 100,
            memory_util_frac=row.number("gmem_util", low=0.0, high=100.0) / 100,
            memory_peak_bytes=row.number("gmem", low=0.0, exclude_low=True) * MIB,
            source="lucid",
            family=row.text("model"),
        )
    return jobs


def _add_row(
    row: CsvRow, jobs: dict[str, JobProfile], found: dict[tuple[str, str], list[float]], counts: Counter[str]
) -> None:
    """Add the slowdowns of both jobs of a row to `found`, or count why they are left out."""
    names = (configuration_name(row, "1"), configuration_name(row, "2"))
    speeds = (_speed(row, "speed1"), _speed(row, "speed2"))
    if max(row.integer("gpu_num1", low=1), row.integer("gpu_num2", low=1)) > 1:
        counts["several devices"] += 1
        return
    if not set(names) <= set(jobs):
        counts["no profile"] += 1
        return
    earlier = found.keys() & {names, names[::-1]}
    for side, speed in enumerate(speeds):
        if row.fields[f"model{side + 1}"] in DEFAULT_SPEED_MODELS:
            counts["default"] += 1
            continue
        pair = (names[side], names[1 - side])
        counts["above one"] += speed > 1
        counts["repeat"] += pair in earlier
        found.setdefault(pair, []).append(1 / speed)


def _speed(row: CsvRow, column: str) -> float:
    """Return a speed relative to the job alone. Raises TableError where 1 / speed is no possible slowdown."""
    return row.number(column, low=1 / MAX_SLOWDOWN, high=1 / MIN_SLOWDOWN)


def _pair(source: SourceFile, names: tuple[str, str], slowdowns: list[float]) -> PairMeasurement:
    return PairMeasurement(
        victim=names[0],
        neighbour=names[1],
        device_type=DEVICE_TYPE,
        mode=SharingMode.TIMESLICE,
        slowdown=math.prod(slowdowns) ** (1 / len(slowdowns)),
        passes=tuple(slowdowns),
        source="lucid",
        campaign=source.campaign,
    )
