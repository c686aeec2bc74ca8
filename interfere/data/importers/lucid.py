"""Lucid's pairs (Hu et al., ASPLOS 2023): normalised speeds of two training jobs on one RTX 3090, and solo profiles.

`PATH` is a folder with `colocate_info.csv` (speeds of both sides as a share of alone, and utilisation measured while
co-located) and `single_data.csv` (samples/s, GPU and memory utilisation, memory, of each configuration alone). The
publishers' `workloads/*/profile_*.py` compute speed as iterations · batch size / s; `profile/co_collect.py` starts two
plain processes, so the pair shares in time slices.

Law: what was measured while co-located is never a fact of a job alone: those columns are not read.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from interfere.data.importers.import_result import Fate, Imported, Notice, SourceFile, notices
from interfere.data.importers.strict_reading import CsvFile, Row, read_csv
from interfere.errors import TableError
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile, PairMeasurement

PAIRS, SOLO = "colocate_info.csv", "single_data.csv"
WHERE = {PAIRS: ("", "simulation/data"), SOLO: ("", "simulation/analyzer")}  # in a plain folder, or in their repository
DEVICE = "rtx3090"  # simulation/policy/lucid.py: "RTX 3090 24GB Memory for our benchmarking"
SOLO_COLUMNS = ("model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem")
SIDE_COLUMNS = ("model", "dataset", "gpu_num", "batchsize", "amp", "speed")
MIB = 2**20  # profile/co_collect.py strips " MiB" of nvidia-smi from this number
DEFAULTED = ("PPO", "TD3")  # every published speed of theirs is 1.000
FACTS = (
    "step_time_s = batch size / samples per second alone; slowdown = 1 / published speed",
    "mode timeslice: two plain processes on one device, no MPS",
    "profiles come from single_data.csv alone",
)


@dataclass(slots=True)
class _Count:
    above_one: int = 0
    defaulted: int = 0
    several: int = 0
    unprofiled: int = 0
    repeats: int = 0
    passes: dict[tuple[str, str], list[float]] = field(default_factory=dict)


def import_lucid(folder: Path) -> Imported:
    """Profiles and pairs. Raises TableError that names file, row and column."""
    solo = read_csv(_find(folder, SOLO), SOLO_COLUMNS)
    both = tuple(f"{name}{side}" for side in (1, 2) for name in SIDE_COLUMNS)
    shared = read_csv(_find(folder, PAIRS), both)
    jobs = _profiles(solo)
    count = _Count()
    for row in shared.rows:
        _row(row, jobs, count)
    pairs = [_pair(shared.source, names, passes) for names, passes in count.passes.items()]
    leaks = shared.unread(*both)
    return Imported(
        kind="lucid",
        files=(shared.source, solo.source),
        facts=FACTS,
        jobs=tuple(jobs.values()),
        pairs=tuple(pairs),
        notices=notices(
            Notice(
                fate=Fate.FLAGGED,
                what=f"of {sum(map(len, count.passes.values()))} speeds kept are above 1",
                count=count.above_one,
                why="the publishers divided by a time alone that was too long for the configuration: a bias per job, "
                "kept as published",
            ),
            Notice(
                fate=Fate.DROPPED,
                what=f"speeds of {' and '.join(DEFAULTED)}",
                count=count.defaulted,
                why="always exactly 1.000, a default and no measurement: never targets, they remain as neighbours",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="speeds that repeat a pair already in the file",
                count=count.repeats,
                why="a repeated measurement: one more entry in `passes`",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="rows on several devices",
                count=count.several,
                why="a row is about one shared device",
            ),
            Notice(
                fate=Fate.DROPPED,
                what=f"rows with a job that {SOLO} lacks",
                count=count.unprofiled,
                why="a pair needs the profiles of both jobs",
            ),
            Notice(
                fate=Fate.DROPPED,
                what=f"columns of {PAIRS}: {', '.join(leaks)}",
                count=len(leaks),
                why="measured while co-located: as inputs they would leak the answer",
            ),
            Notice(
                fate=Fate.DROPPED,
                what=f"columns of {SOLO}: {', '.join(solo.unread(*SOLO_COLUMNS))}",
                count=len(solo.unread(*SOLO_COLUMNS)),
                why="not a measured fact",
            ),
        ),
    )


def workload(row: Row, side: str = "") -> str:
    """The name of a configuration: model, dataset, batch size, mixed precision or not."""
    amp = row.whole(f"amp{side}")
    if amp > 1:
        row.fail(f"amp{side}", "0 or 1 expected", "0 is float32, 1 mixed precision")
    batch = row.whole(f"batchsize{side}", low=1)
    return f"{row.text(f'model{side}')} {row.text(f'dataset{side}')} bs{batch} amp{amp}"


def _find(folder: Path, name: str) -> Path:
    for below in WHERE[name]:
        if (folder / below / name).is_file():
            return folder / below / name
    raise TableError(
        f"the folder lacks {name}",
        value=folder,
        remedy=f"give a folder with {PAIRS} and {SOLO} (`interfere data sources`)",
    )


def _profiles(solo: CsvFile) -> dict[str, JobProfile]:
    jobs: dict[str, JobProfile] = {}
    for row in solo.rows:
        name = workload(row)
        if name in jobs:
            row.fail("model", f"a second profile of {name}", "keep one of the two rows")
        jobs[name] = JobProfile(
            workload=name,
            device_type=DEVICE,
            step_time_s=row.whole("batchsize", low=1) / row.number("speed", low=0.0, above=True),
            gpu_util_frac=row.number("gpu_util", low=0.0, high=100.0) / 100,
            memory_util_frac=row.number("gmem_util", low=0.0, high=100.0) / 100,
            memory_peak_bytes=row.number("gmem", low=0.0, above=True) * MIB,
            source="lucid",
            family=row.text("model"),
        )
    return jobs


def _row(row: Row, jobs: dict[str, JobProfile], count: _Count) -> None:
    names = (workload(row, "1"), workload(row, "2"))
    speeds = (_speed(row, "speed1"), _speed(row, "speed2"))
    if max(row.whole("gpu_num1", low=1), row.whole("gpu_num2", low=1)) > 1:
        count.several += 1
        return
    if not set(names) <= set(jobs):
        count.unprofiled += 1
        return
    known = count.passes.keys() & {names, names[::-1]}
    for side, speed in enumerate(speeds):
        if row.fields[f"model{side + 1}"] in DEFAULTED:
            count.defaulted += 1
            continue
        pair = (names[side], names[1 - side])
        count.above_one += speed > 1
        count.repeats += pair in known
        count.passes.setdefault(pair, []).append(1 / speed)


def _speed(row: Row, column: str) -> float:
    """A speed whose slowdown is one that a record may hold."""
    return row.number(column, low=1 / MAX_SLOWDOWN, high=1 / MIN_SLOWDOWN)


def _pair(source: SourceFile, names: tuple[str, str], passes: list[float]) -> PairMeasurement:
    return PairMeasurement(
        victim=names[0],
        neighbour=names[1],
        device_type=DEVICE,
        mode="timeslice",
        slowdown=math.prod(passes) ** (1 / len(passes)),
        passes=tuple(passes),
        source="lucid",
        campaign=source.campaign,
    )
