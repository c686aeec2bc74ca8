"""Kernel tables from Nsight Compute's CSV: `ncu --csv`, on its raw page or its details page, and renamed derivatives.

Raw page: one row a launch, one column a metric, units in the row below the header. Details page: one row a launch and
metric. A derivative (such as Echo's) has one row a launch and columns renamed after the sections of the details page.
Lines of the program or of ncu (`==PROF== ...`) before and after the table are skipped and counted. Nsight Compute runs
kernels one at a time and by default locks the clocks: durations are those of a kernel alone, a little longer than live.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interfere.data.importers.device_names import device_type_of
from interfere.data.importers.import_result import Fate, Imported, Notice, SourceFile, notices
from interfere.data.importers.kernels.kernel_table import (
    MAX_NAME,
    SUM_FACT,
    Launch,
    check_single,
    csv_files,
    kernel_profile,
)
from interfere.data.importers.kernels.ncu_table import read_table_text
from interfere.data.importers.strict_reading import MAX_WHOLE, NUMBER, Row, check_columns
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile

NAME, METRIC, UNIT, VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
DISPLAY = "device__attribute_display_name"
# Our field ← the metric's raw name, its name on the details page, and that of derivatives (lower case: matched so).
METRICS = {
    "duration_s": ("gpu__time_duration.sum", "gpu__time_duration.avg", "duration"),
    "occupancy_frac": ("sm__warps_active.avg.pct_of_peak_sustained_active", "achieved occupancy"),
    "compute_frac": (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "compute (sm) throughput",
        "compute throughput",
    ),
    "memory_frac": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "dram throughput",
    ),
    "read_bytes": ("dram__bytes_read.sum",),
    "written_bytes": ("dram__bytes_write.sum",),
}
FIELD_OF = {name: field for field, names in METRICS.items() for name in names}
# Nsight Compute scales units to the value; both spellings are its own, of older and newer releases.
SECONDS = {
    "ns": 1e-9,
    "nsecond": 1e-9,
    "us": 1e-6,
    "usecond": 1e-6,
    "ms": 1e-3,
    "msecond": 1e-3,
    "s": 1.0,
    "second": 1.0,
}
BYTES = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9}
PERCENT = {"%": 0.01}
UNITS = {  # the first of each is meant where a derivative names none
    "duration_s": SECONDS,
    "read_bytes": BYTES,
    "written_bytes": BYTES,
    "occupancy_frac": PERCENT,
    "compute_frac": PERCENT,
    "memory_frac": PERCENT,
}
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
SIZE = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?", re.ASCII)
ABSENT = ("", "n/a", "nan", "(!) n/a")
FACTS = (
    "one file is one job; an identity is (name, grid, block); gaps between kernels are unknown",
    "memory_frac is device memory (DRAM) throughput; shares are means over launches",
    "Nsight Compute runs kernels one at a time and by default locks clocks: durations are a little longer than live",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    source: SourceFile
    launches: tuple[Launch, ...]
    skipped: int  # lines that are no part of the table
    absent: int  # metrics without a value
    device_name: str
    unread: tuple[str, ...]  # columns of a derivative that say nothing a kernel table holds


def import_nsight(
    path: Path, *, device_type: str = "", name: str = "", steps: int = 1, step_time_s: float = NAN
) -> Imported:
    """One profile a file; `steps` is how many steps each file covers. Raises TableError naming file, row, column."""
    files = csv_files(path)
    check_single(files, name, step_time_s)
    read = [_read(one) for one in files]
    jobs = [_profile(one, device_type, name, steps, step_time_s) for one in read]
    long = sum(len(launch.name) > MAX_NAME for one in read for launch in one.launches)
    return Imported(
        kind="nsight",
        files=tuple(one.source for one in read),
        facts=(*FACTS, SUM_FACT, f"steps in a file: {steps}"),
        jobs=tuple(jobs),
        notices=notices(
            Notice(
                fate=Fate.FLAGGED,
                what="profiles whose step time is the sum of their kernels",
                count=len(jobs) if math.isnan(step_time_s) else 0,
                why="the format has no step time",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="values that Nsight Compute could not give",
                count=sum(one.absent for one in read),
                why="n/a or empty: NaN",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="lines outside of the table",
                count=sum(one.skipped for one in read),
                why="output of the program or of ncu itself",
            ),
            *(
                Notice(
                    fate=Fate.DROPPED,
                    what=f"columns of {one.source.path.name}: {', '.join(one.unread)}",
                    count=len(one.unread),
                    why="no fact of a kernel alone, or of unknown unit",
                )
                for one in read
            ),
            Notice(
                fate=Fate.REPAIRED,
                what="launches with a name that is too long",
                count=long,
                why=f"cut to {MAX_NAME} characters, the last of them a digest of the whole name",
            ),
        ),
    )


def nsight_launches(path: Path) -> tuple[Launch, ...]:
    """The launches of one file, in order. Raises TableError naming file, row, column."""
    return _read(path).launches


def _profile(file: _File, device_type: str, name: str, steps: int, step_time_s: float) -> JobProfile:
    device = device_type or device_type_of(file.device_name)
    if not device:
        raise InvalidInputError(
            f"{file.source.path.name} does not say which device it was measured on",
            value=f"no {DISPLAY}",
            remedy="name the device type: --device a100",
        )
    return kernel_profile(
        file.launches,
        workload=name or file.source.path.stem,
        device_type=device,
        source="nsight",
        steps=steps,
        step_time_s=step_time_s,
    )


def _read(path: Path) -> _File:
    table = read_table_text(path, NAME)
    body, units = list(table.rows), dict[str, str]()
    long = VALUE in table.columns
    if not long and not body[0].fields[NAME].strip():
        units = body.pop(0).fields
    if not body:
        raise TableError(f"{path.name}, row {table.row + 1}: no launches below it", value=path, remedy="profile again")
    launches = tuple(_long(body) if long else _wide(body, units, table.columns))
    if long:
        display = next((row.fields[VALUE] for row in body if row.fields[METRIC] == DISPLAY), "")
    else:
        display = next((row.fields[DISPLAY] for row in body if row.fields.get(DISPLAY)), "")
    return _File(
        source=table.source,
        launches=tuple(launch for launch, _ in launches),
        skipped=table.skipped,
        absent=sum(absent for _, absent in launches),
        device_name=display,
        unread=() if long or units else tuple(c for c in table.columns if not _is_read(c)),
    )


def _is_read(column: str) -> bool:
    return column.lower() in FIELD_OF or column in (NAME, "ID", "Grid Size", "Block Size", DISPLAY)


def _wide(body: list[Row], units: dict[str, str], columns: tuple[str, ...]) -> Iterator[tuple[Launch, int]]:
    """One row a launch. The first column that gives a field counts."""
    metrics: dict[str, str] = {}
    for column in columns:
        metrics.setdefault(FIELD_OF.get(column.lower(), ""), column)
    metrics.pop("", None)
    if "duration_s" not in metrics:
        check_columns(body[0].path, columns, (METRICS["duration_s"][0],), row=body[0].row - 1)
    for row in body:
        values = {field: _value(row, column, field, units.get(column, "")) for field, column in metrics.items()}
        yield _launch(row, values)


def _long(body: list[Row]) -> Iterator[tuple[Launch, int]]:
    """Rows of one launch (ID, and process where there is one) follow each other."""
    check_columns(body[0].path, tuple(body[0].fields), ("ID", METRIC, UNIT, VALUE), row=body[0].row - 1)
    launch: tuple[str, ...] = ()
    first, values = body[0], dict[str, float]()
    seen: set[tuple[str, ...]] = set()
    for row in body:
        key = (row.fields.get("Process ID", ""), row.fields["ID"])
        if key != launch:
            if launch:
                yield _launch(first, values)
            if key in seen:
                row.fail("ID", "a launch that ended above goes on here", "keep the rows of a launch together")
            seen.add(key)
            launch, first, values = key, row, {}
        elif row.text(NAME) != first.text(NAME):
            row.fail(NAME, f"another kernel under the same ID as in row {first.row}", "give each launch its own ID")
        field = FIELD_OF.get(row.fields[METRIC].lower(), "")
        # Some names appear twice on the details page, as a share and as a rate: another unit is another metric.
        if not field or row.fields[UNIT].lower() not in (*UNITS[field], ""):
            continue
        if field in values and not math.isnan(values[field]):
            row.fail(METRIC, f"given twice for the launch of row {first.row}", "keep one of the two rows")
        values[field] = _value(row, VALUE, field, row.fields[UNIT])
    yield _launch(first, values)


def _launch(row: Row, values: dict[str, float]) -> tuple[Launch, int]:
    """The launch, and how many of its metrics have no value."""
    duration_s = values.pop("duration_s", NAN)
    if math.isnan(duration_s) or duration_s <= 0:
        row.fail(NAME, "this launch has no duration", f"export {METRICS['duration_s'][0]} too")
    absent = sum(map(math.isnan, values.values()))
    traffic = values.pop("read_bytes", NAN) + values.pop("written_bytes", NAN)
    name = row.fields[NAME].strip()
    if not name or not name.isprintable():
        row.fail(NAME, "a name expected", "give printable characters")
    launch = Launch(
        name=name,
        duration_s=duration_s,
        grid=_size(row, "Grid Size"),
        block=_size(row, "Block Size"),
        bytes=traffic,
        **values,
    )
    return launch, absent


def _value(row: Row, column: str, field: str, unit: str) -> float:
    text = row.fields[column].strip()
    if text.lower() in ABSENT:
        return NAN
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not NUMBER.fullmatch(text):
        row.fail(column, "a number expected", "write digits with a decimal point, such as 1,205.00")
    scales = UNITS[field]
    scale = scales.get(unit.lower() or next(iter(scales)))
    if scale is None:
        row.fail(column, f"unit {unit!r} is not one of {', '.join(scales)}", "export it in one of these units")
    value = float(text) * scale
    # Peaks are sustained ones: a kernel may pass them by a little.
    if not math.isfinite(value) or value < 0 or (field.endswith("_frac") and value > 1.05):
        row.fail(column, "out of range", "give what Nsight Compute exported")
    return value


def _size(row: Row, column: str) -> tuple[int, ...]:
    text = row.fields.get(column, "").strip()
    if not text:
        return ()
    found = SIZE.fullmatch(text)
    if not found or max(map(float, found.groups())) > MAX_WHOLE:  # also the most blocks that CUDA launches
        row.fail(column, "three whole numbers expected", "such as (256, 1, 1)")
    return tuple(int(one) for one in found.groups())
