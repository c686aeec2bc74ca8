"""Imports Nsight Systems reports exported to SQLite (`nsys export --type sqlite`), one job a file.

Read by NVIDIA's "SQLite Export Schema Reference": CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY and _MEMSET hold what ran on a
GPU, in ns; StringIds the names; TARGET_INFO_GPU the devices; NVTX_EVENTS the ranges that a program marked. Tables are
created only where there is something to put into them.
"""

import hashlib
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.kernels.kernel_table import KernelLaunch, check_single_file_options
from interfere.data.importers.kernels.timeline import PROFILED_STEP_NOTE, StepMarks, TimedLaunch, profile_of_timeline
from interfere.errors import TableError
from interfere.records import NAN, JobProfile

SOURCE = "nsys"
NANOSECOND = 1e-9
KERNELS, COPIES, FILLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
KERNEL_COLUMNS = ("start", "end", "deviceId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
FORMAT_NOTES = (
    "one file is one job; an identity is (name, grid, block); gap_s is the time until the next launch on the device",
    "read by the published schema; never yet from a report of a GPU of ours",
    PROFILED_STEP_NOTE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    source: SourceFile
    launches: tuple[TimedLaunch, ...]
    marks: StepMarks
    device_name: str
    devices: int  # GPUs with events


def import_nsight_systems(
    path: Path,
    *,
    device_type: str = "",
    name: str = "",
    steps: int = 1,
    step_range: str = "",
    step_time_s: float = NAN,
) -> ImportResult:
    """Import one profile per report. `step_range` is the text of the NVTX range of a step; without it `steps` count.

    Raises TableError, which names file and table.
    """
    paths = tuple(sorted(path.glob("*.sqlite"))) if path.is_dir() else (path,)
    if not paths:
        raise TableError(
            "no report in the folder", value=path, remedy="export one: nsys export --type sqlite report.nsys-rep"
        )
    check_single_file_options(paths, name, step_time_s)
    reports = [_read_report(each, step_range) for each in paths]
    jobs = [_profile(report, device_type, name, steps, step_time_s) for report in reports]
    return ImportResult(
        source_format=SOURCE,
        files=tuple(report.source for report in reports),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs),
        notices=nonempty_notices(
            Notice(
                treatment=Treatment.FLAGGED,
                subject="profiles whose step time comes from the profiled run",
                count=len(jobs) if math.isnan(step_time_s) else 0,
                reason=PROFILED_STEP_NOTE,
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="reports without marked steps",
                count=sum(not report.marks.spans_s for report in reports),
                reason=f"taken as {steps} steps from the first launch to the last: give --step-range or --steps",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="reports with events of several GPUs",
                count=sum(report.devices > 1 for report in reports),
                reason="a profile is about one device: only the events of the first one count",
            ),
        ),
    )


def _profile(report: _Report, device_type: str, name: str, steps: int, step_time_s: float) -> JobProfile:
    if not device_type and not report.device_name:
        raise TableError(
            f"{report.source.path.name}: the report does not name its GPU",
            value=report.source.path,
            remedy="name the device type: --device a100-80gb",
        )
    return profile_of_timeline(
        report.launches,
        report.marks,
        workload=name or report.source.path.stem,
        device_type=device_type or device_type_of_product(report.device_name),
        source=SOURCE,
        steps=steps,
        step_time_s=step_time_s,
    )


def _read_report(path: Path, step_range: str) -> _Report:
    """Read one report. Raises TableError."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TableError(
            f"{path.name} cannot be read", value=f"{path}: {error.strerror}", remedy="give a file that exists"
        ) from None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.row_factory = sqlite3.Row
            tables = {row["name"] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if KERNELS not in tables:
                raise TableError(
                    f"{path.name}, table {KERNELS}: missing",
                    value=f"{path}: {len(tables)} tables",
                    remedy="trace CUDA (nsys profile --trace cuda,nvtx) and export with --type sqlite",
                )
            devices = [
                row["deviceId"]
                for row in database.execute(f"SELECT DISTINCT deviceId FROM {KERNELS} ORDER BY deviceId")  # noqa: S608  ours
            ]
            launches = tuple(_launches(database, tables, devices[0] if devices else 0))
            marks = StepMarks(spans_s=tuple(_ranges(path, database, tables, step_range)))
            device_name = _device_name(database, tables, devices[0] if devices else 0)
    except sqlite3.Error as error:
        raise TableError(
            f"{path.name}: not a readable SQLite export ({error})",
            value=path,
            remedy="export it again: nsys export --type sqlite report.nsys-rep",
        ) from None
    if not launches:
        raise TableError(f"{path.name}, table {KERNELS}: empty", value=path, remedy="profile a run that uses the GPU")
    return _Report(
        source=SourceFile(path=path, sha256=digest),
        launches=launches,
        marks=marks,
        device_name=device_name,
        devices=len(devices),
    )


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in database.execute(f"PRAGMA table_info({table})")}


def _launches(database: sqlite3.Connection, tables: set[str], device: int) -> Iterator[TimedLaunch]:
    """Kernels, copies and fills of one device; a name is the demangled one where the report has it."""
    name_column = next(
        (name for name in ("demangledName", "shortName", "mangledName") if name in _columns(database, KERNELS)), ""
    )
    names: dict[int, str] = {}
    if "StringIds" in tables:
        names = {row["id"]: row["value"] for row in database.execute("SELECT id, value FROM StringIds")}
    columns = ", ".join((*(f'"{column}"' for column in KERNEL_COLUMNS), *((name_column,) if name_column else ())))
    for row in database.execute(f"SELECT {columns} FROM {KERNELS} WHERE deviceId = ?", (device,)):  # noqa: S608  ours
        launch = KernelLaunch(
            name=names.get(row[name_column], "kernel") if name_column else "kernel",
            duration_s=(row["end"] - row["start"]) * NANOSECOND,
            grid=(row["gridX"], row["gridY"], row["gridZ"]),
            block=(row["blockX"], row["blockY"], row["blockZ"]),
        )
        yield _timed(row, launch)
    for table, name in ((COPIES, "memcpy"), (FILLS, "memset")):
        if table not in tables:
            continue
        query = f'SELECT "start", "end", bytes FROM {table} WHERE deviceId = ?'  # noqa: S608  a constant of ours
        for row in database.execute(query, (device,)):
            duration_s = (row["end"] - row["start"]) * NANOSECOND
            yield _timed(row, KernelLaunch(name=name, duration_s=duration_s, bytes=float(row["bytes"])))


def _timed(row: Any, launch: KernelLaunch) -> TimedLaunch:
    return TimedLaunch(start_s=row["start"] * NANOSECOND, end_s=row["end"] * NANOSECOND, launch=launch)


def _ranges(path: Path, database: sqlite3.Connection, tables: set[str], text: str) -> Iterator[tuple[float, float]]:
    """(start, end) of the NVTX ranges with this text, in order. Raises TableError where there is none."""
    if not text:
        return
    rows: list[Any] = []
    if "NVTX_EVENTS" in tables:
        has_ids = "textId" in _columns(database, "NVTX_EVENTS") and "StringIds" in tables
        own = "COALESCE(n.text, s.value)" if has_ids else "n.text"
        join = "LEFT JOIN StringIds s ON s.id = n.textId" if has_ids else ""
        query = (
            f'SELECT n."start" AS "start", n."end" AS "end" FROM NVTX_EVENTS n {join} '  # noqa: S608  constants of ours
            f'WHERE {own} = ? AND n."end" IS NOT NULL ORDER BY n."start"'
        )
        rows = list(database.execute(query, (text,)))
    if not rows:
        raise TableError(
            f"{path.name}, table NVTX_EVENTS: no such range",
            value=repr(text),
            remedy="mark the steps: torch.cuda.nvtx.range_push(NAME) ... range_pop(), and trace nvtx",
        )
    yield from ((row["start"] * NANOSECOND, row["end"] * NANOSECOND) for row in rows)


def _device_name(database: sqlite3.Connection, tables: set[str], device: int) -> str:
    """The product name of a device; "" where the report has none."""
    if "TARGET_INFO_GPU" not in tables:
        return ""
    columns = _columns(database, "TARGET_INFO_GPU")
    if not {"id", "name"} <= columns:
        return ""
    row = database.execute("SELECT name FROM TARGET_INFO_GPU WHERE id = ?", (device,)).fetchone()
    return str(row["name"]) if row else ""
