"""Imports Lucid's measurements (Hu et al., ASPLOS 2023): speeds of pairs of training jobs on an RTX 3090, and alone.

The folder holds `colocate_info.csv` (the speeds of both jobs of a pair as a share of their speed alone, and utilisation
measured while they share the device) and `single_data.csv` (samples/s, GPU and memory utilisation, and memory of each
configuration alone). The publishers' `workloads/*/profile_*.py` compute speed as iterations · batch size / s;
`profile/co_collect.py` starts two plain processes, so pairs share the device in time slices.

Law: what was measured while two jobs shared the device is never a fact of one job: those columns are not pair_rows.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
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


@dataclass(slots=True)
class _PairRows:
    """Sums over the rows of `colocate_info.csv` for one pair."""

    above_one: int = 0
    default_speeds: int = 0
    multi_device: int = 0
    unprofiled: int = 0
    repeats: int = 0
    slowdowns: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # by (victim, neighbour)


def import_lucid(folder: Path) -> ImportResult:
    """Import profiles and pairs. Raises TableError, which names file, row and column."""
    solo = read_csv(_find_file(folder, SOLO_CSV), SOLO_COLUMNS)
    pair_columns = tuple(f"{name}{side}" for side in (1, 2) for name in SIDE_COLUMNS)
    shared = read_csv(_find_file(folder, PAIRS_CSV), pair_columns)
    jobs = _profiles(solo)
    pair_rows = _PairRows()
    for row in shared.rows:
        _add_row(row, jobs, pair_rows)
    pairs = [_pair(shared.source, names, slowdowns) for names, slowdowns in pair_rows.slowdowns.items()]
    return ImportResult(
        source_format="lucid",
        files=(shared.source, solo.source),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs.values()),
        pairs=tuple(pairs),
        notices=_notices(pair_rows, shared.unread_columns(*pair_columns), solo.unread_columns(*SOLO_COLUMNS)),
    )


def _notices(pair_rows: _PairRows, shared_unread: tuple[str, ...], solo_unread: tuple[str, ...]) -> tuple[Notice, ...]:
    return nonempty_notices(
        Notice(
            treatment=Treatment.FLAGGED,
            subject=f"of {sum(map(len, pair_rows.slowdowns.values()))} speeds kept are above 1",
            count=pair_rows.above_one,
            reason="the publishers divided by a solo time that is too long for the configuration: a bias per job, "
            "kept as published",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"speeds of {' and '.join(DEFAULT_SPEED_MODELS)}",
            count=pair_rows.default_speeds,
            reason="always exactly 1.000, a default and no measurement: these jobs are kept as neighbours only",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="speeds that repeat a pair already in the file",
            count=pair_rows.repeats,
            reason="a repeated measurement: one more entry in `passes`",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="rows on several devices",
            count=pair_rows.multi_device,
            reason="a row is about one shared device",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"rows with a job that {SOLO_CSV} lacks",
            count=pair_rows.unprofiled,
            reason="a pair needs the profiles of both jobs",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"columns of {PAIRS_CSV}: {', '.join(shared_unread)}",
            count=len(shared_unread),
            reason="measured while co-located: as inputs of a model they would leak the answer",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"columns of {SOLO_CSV}: {', '.join(solo_unread)}",
            count=len(solo_unread),
            reason="not a measured fact",
        ),
    )


def configuration_name(row: CsvRow, side: str = "") -> str:
    """The name of a job's configuration: model, dataset, batch size, and whether it uses mixed precision.

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
    """The profile of each configuration, by its name."""
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


def _add_row(row: CsvRow, jobs: dict[str, JobProfile], pair_rows: _PairRows) -> None:
    """Add the slowdowns of both jobs of one row, or count why they are left out."""
    names = (configuration_name(row, "1"), configuration_name(row, "2"))
    speeds = (_speed(row, "speed1"), _speed(row, "speed2"))
    if max(row.integer("gpu_num1", low=1), row.integer("gpu_num2", low=1)) > 1:
        pair_rows.multi_device += 1
        return
    if not set(names) <= set(jobs):
        pair_rows.unprofiled += 1
        return
    earlier = pair_rows.slowdowns.keys() & {names, names[::-1]}
    for side, speed in enumerate(speeds):
        if row.fields[f"model{side + 1}"] in DEFAULT_SPEED_MODELS:
            pair_rows.default_speeds += 1
            continue
        pair = (names[side], names[1 - side])
        pair_rows.above_one += speed > 1
        pair_rows.repeats += pair in earlier
        pair_rows.slowdowns.setdefault(pair, []).append(1 / speed)


def _speed(row: CsvRow, column: str) -> float:
    """A relative speed whose slowdown is in the range of a record."""
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
