"""Reads Nsight Systems reports exported to SQLite (`nsys export --type sqlite`), one job a file.

Read by NVIDIA's "SQLite Export Schema Reference": CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY and _MEMSET hold what ran on a
GPU, in ns; StringIds the names; TARGET_INFO_GPU the devices; NVTX_EVENTS the ranges that a program marked. Tables are
created only where there is something to put into them.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from interfere.data.importers.kernels.kernel_files import (
    PROFILED_STEP_NOTE,
    TIMED_NOTE,
    KernelFile,
    KernelFormat,
    KernelLaunch,
)
from interfere.data.importers.strict_reading import read_bytes
from interfere.devices import device_type_of_product
from interfere.errors import TableError

NANOSECOND = 1e-9
KERNELS, COPIES, FILLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
KERNEL_COLUMNS = ("start", "end", "deviceId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")


def _read_report(path: Path, step_range: str) -> KernelFile:
    """Read the launches and marked steps of one report. Raises TableError."""
    _, source = read_bytes(path)
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
                for row in database.execute(f"SELECT DISTINCT deviceId FROM {KERNELS} ORDER BY deviceId")  # noqa: S608 - ours
            ]
            launches = tuple(_launches(database, tables, devices[0] if devices else 0))
            spans_s = tuple(_ranges(path, database, tables, step_range))
            product = _device_name(database, tables, devices[0] if devices else 0)
    except sqlite3.Error as error:
        raise TableError(
            f"{path.name}: not a readable SQLite export ({error})",
            value=path,
            remedy="export it again: nsys export --type sqlite report.nsys-rep",
        ) from None
    if not launches:
        raise TableError(f"{path.name}, table {KERNELS}: empty", value=path, remedy="profile a run that uses the GPU")
    return KernelFile(
        source=source,
        launches=launches,
        step_spans_s=spans_s,
        device_type=device_type_of_product(product),
        device_count=len(devices),
    )


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in database.execute(f"PRAGMA table_info({table})")}


def _launches(database: sqlite3.Connection, tables: set[str], device: int) -> Iterator[KernelLaunch]:
    """Yield the kernels, copies and fills of a device, with demangled names where the report has them."""
    name_column = next(
        (name for name in ("demangledName", "shortName", "mangledName") if name in _columns(database, KERNELS)), ""
    )
    names: dict[int, str] = {}
    if "StringIds" in tables:
        names = {row["id"]: row["value"] for row in database.execute("SELECT id, value FROM StringIds")}
    columns = ", ".join((*(f'"{column}"' for column in KERNEL_COLUMNS), *((name_column,) if name_column else ())))
    for row in database.execute(f"SELECT {columns} FROM {KERNELS} WHERE deviceId = ?", (device,)):  # noqa: S608 - ours
        name = names.get(row[name_column], "kernel") if name_column else "kernel"
        grid, block = (tuple(row[f"{what}{axis}"] for axis in "XYZ") for what in ("grid", "block"))
        yield _launch(row, name, grid=grid, block=block)
    for table, name in ((COPIES, "memcpy"), (FILLS, "memset")):
        if table not in tables:
            continue
        query = f'SELECT "start", "end", bytes FROM {table} WHERE deviceId = ?'  # noqa: S608  a constant of ours
        for row in database.execute(query, (device,)):
            yield _launch(row, name, bytes=float(row["bytes"]))


def _launch(row: Any, name: str, **facts: Any) -> KernelLaunch:
    start_s, end_s = row["start"] * NANOSECOND, row["end"] * NANOSECOND
    return KernelLaunch(
        name=name, duration_s=(row["end"] - row["start"]) * NANOSECOND, start_s=start_s, end_s=end_s, **facts
    )


def _ranges(path: Path, database: sqlite3.Connection, tables: set[str], text: str) -> Iterator[tuple[float, float]]:
    """Yield start and end of each NVTX range with this text, in order. Raises TableError where there is none."""
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
    """Return the product name of a device; "" where the report does not name it."""
    if "TARGET_INFO_GPU" not in tables:
        return ""
    columns = _columns(database, "TARGET_INFO_GPU")
    if not {"id", "name"} <= columns:
        return ""
    row = database.execute("SELECT name FROM TARGET_INFO_GPU WHERE id = ?", (device,)).fetchone()
    return str(row["name"]) if row else ""


NSIGHT_SYSTEMS = KernelFormat(
    name="nsys",
    read=_read_report,
    patterns=("*.sqlite",),
    is_timed=True,
    unmarked="reports without marked steps: give --step-range or --steps",
    notes=(
        TIMED_NOTE,
        "read by the published schema; never yet from a report of a GPU of ours",
        PROFILED_STEP_NOTE,
    ),
)
