"""Imports kernel profiles from Nsight Compute's CSV output (`ncu --csv`), raw or details page, and derivatives of it.

The raw page has one row per launch, one column per metric, and the units in the row below the header. The details page
has one row per launch and metric. A derivative (such as Echo's) has one row per launch, and columns named after the
sections of the details page. Lines of the program or of ncu (`==PROF== ...`) before and after the table are skipped and
counted. Nsight Compute runs kernels one at a time and by default locks the clocks: durations are those of a kernel
alone, a little longer than in a normal run.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.kernels.kernel_table import (
    MAX_NAME,
    SUM_NOTE,
    KernelLaunch,
    check_single_file_options,
    csv_files,
    profile_from_launches,
)
from interfere.data.importers.kernels.ncu_table import read_embedded_table
from interfere.data.importers.strict_reading import MAX_INT32, NUMBER, CsvRow, check_columns
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile

NAME, METRIC, UNIT, VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
DEVICE_NAME_METRIC = "device__attribute_display_name"
# For each field of KernelLaunch: the metric's names on the raw page, on the details page and in derivatives, in lower
# case, since case is ignored.
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
# Nsight Compute scales units to the value. Older and newer releases spell them differently.
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
UNITS = {  # the first one is assumed where a derivative names none
    "duration_s": SECONDS,
    "read_bytes": BYTES,
    "written_bytes": BYTES,
    "occupancy_frac": PERCENT,
    "compute_frac": PERCENT,
    "memory_frac": PERCENT,
}
NUMBER_WITH_COMMAS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
DIMENSIONS = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?", re.ASCII)
NO_VALUE = ("", "n/a", "nan", "(!) n/a")
FORMAT_NOTES = (
    "one file is one job; an identity is (name, grid, block); gaps between kernels are unknown",
    "memory_frac is device memory (DRAM) throughput; shares are means over launches",
    "Nsight Compute runs kernels one at a time and by default locks clocks: durations are a little longer than in a "
    "normal run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProfilerFile:
    source: SourceFile
    launches: tuple[KernelLaunch, ...]
    skipped_lines: int  # lines that do not belong to the table
    missing_values: int  # metrics without a value
    device_name: str
    unread_columns: tuple[str, ...]  # columns of a derivative that hold no field of a kernel table


def import_nsight(
    path: Path, *, device_type: str = "", name: str = "", steps: int = 1, step_time_s: float = NAN
) -> ImportResult:
    """Import one profile per file; `steps` is the number of steps that each file covers.

    Raises TableError, which names file, row and column.
    """
    paths = csv_files(path)
    check_single_file_options(paths, name, step_time_s)
    files = [_read_file(file_path) for file_path in paths]
    jobs = [_profile(file, device_type, name, steps, step_time_s) for file in files]
    long_names = sum(len(launch.name) > MAX_NAME for file in files for launch in file.launches)
    return ImportResult(
        source_format="nsight",
        files=tuple(file.source for file in files),
        format_notes=(*FORMAT_NOTES, SUM_NOTE, f"steps in a file: {steps}"),
        jobs=tuple(jobs),
        notices=nonempty_notices(
            Notice(
                treatment=Treatment.FLAGGED,
                subject="profiles whose step time is the sum of their kernels",
                count=len(jobs) if math.isnan(step_time_s) else 0,
                reason="the format has no step time",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="values that Nsight Compute could not give",
                count=sum(file.missing_values for file in files),
                reason="n/a or empty: NaN",
            ),
            Notice(
                treatment=Treatment.DROPPED,
                subject="lines outside of the table",
                count=sum(file.skipped_lines for file in files),
                reason="output of the program or of ncu itself",
            ),
            *(
                Notice(
                    treatment=Treatment.DROPPED,
                    subject=f"columns of {file.source.path.name}: {', '.join(file.unread_columns)}",
                    count=len(file.unread_columns),
                    reason="not a fact of a kernel alone, or of unknown unit",
                )
                for file in files
            ),
            Notice(
                treatment=Treatment.REPAIRED,
                subject="launches with a name that is too long",
                count=long_names,
                reason=f"cut to {MAX_NAME} characters, the last of them a digest of the whole name",
            ),
        ),
    )


def nsight_launches(path: Path) -> tuple[KernelLaunch, ...]:
    """The launches of one file, in order. Raises TableError, which names file, row and column."""
    return _read_file(path).launches


def _profile(file: _ProfilerFile, device_type: str, name: str, steps: int, step_time_s: float) -> JobProfile:
    device_type = device_type or device_type_of_product(file.device_name)
    if not device_type:
        raise InvalidInputError(
            f"{file.source.path.name} does not say which device it was measured on",
            value=f"no {DEVICE_NAME_METRIC}",
            remedy="name the device type: --device a100",
        )
    return profile_from_launches(
        file.launches,
        workload=name or file.source.path.stem,
        device_type=device_type,
        source="nsight",
        steps=steps,
        step_time_s=step_time_s,
    )


def _read_file(path: Path) -> _ProfilerFile:
    table = read_embedded_table(path, NAME)
    rows, units = list(table.rows), dict[str, str]()
    is_details_page = VALUE in table.columns
    if not is_details_page and not rows[0].fields[NAME].strip():
        units = rows.pop(0).fields
    if not rows:
        raise TableError(
            f"{path.name}, row {table.header_row + 1}: no launches below it", value=path, remedy="profile again"
        )
    if is_details_page:
        launches = tuple(_details_page_launches(rows))
        device_name = next((row.fields[VALUE] for row in rows if row.fields[METRIC] == DEVICE_NAME_METRIC), "")
    else:
        launches = tuple(_raw_page_launches(rows, units, table.columns))
        device_name = next((row.fields[DEVICE_NAME_METRIC] for row in rows if row.fields.get(DEVICE_NAME_METRIC)), "")
    is_derivative = not is_details_page and not units
    return _ProfilerFile(
        source=table.source,
        launches=tuple(launch for launch, _ in launches),
        skipped_lines=table.skipped_lines,
        missing_values=sum(missing for _, missing in launches),
        device_name=device_name,
        unread_columns=tuple(column for column in table.columns if not _is_read(column)) if is_derivative else (),
    )


def _is_read(column: str) -> bool:
    return column.lower() in FIELD_OF or column in (NAME, "ID", "Grid Size", "Block Size", DEVICE_NAME_METRIC)


def _raw_page_launches(
    rows: list[CsvRow], units: dict[str, str], columns: tuple[str, ...]
) -> Iterator[tuple[KernelLaunch, int]]:
    """The launch of each row, with its number of missing values. Of several columns for a field the first counts."""
    column_of: dict[str, str] = {}
    for column in columns:
        column_of.setdefault(FIELD_OF.get(column.lower(), ""), column)
    column_of.pop("", None)
    if "duration_s" not in column_of:
        check_columns(rows[0].path, columns, (METRICS["duration_s"][0],), row=rows[0].row_number - 1)
    for row in rows:
        values = {field: _value(row, column, field, units.get(column, "")) for field, column in column_of.items()}
        yield _launch(row, values)


def _details_page_launches(rows: list[CsvRow]) -> Iterator[tuple[KernelLaunch, int]]:
    """Each launch with its number of missing values, from consecutive rows of one ID (and process, if given)."""
    check_columns(rows[0].path, tuple(rows[0].fields), ("ID", METRIC, UNIT, VALUE), row=rows[0].row_number - 1)
    launch_key: tuple[str, ...] = ()
    first_row, values = rows[0], dict[str, float]()
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        # 1. A new ID begins the next launch.
        key = (row.fields.get("Process ID", ""), row.fields["ID"])
        if key != launch_key:
            if launch_key:
                yield _launch(first_row, values)
            if key in seen:
                row.fail("ID", "a launch that ended above goes on here", "keep the rows of a launch together")
            seen.add(key)
            launch_key, first_row, values = key, row, {}
        elif row.text(NAME) != first_row.text(NAME):
            row.fail(
                NAME,
                f"another kernel under the same ID as in row {first_row.row_number}",
                "give each launch its own ID",
            )
        # 2. Add the row's metric. Some names appear twice on the details page, as a share and as a rate: the same name
        # in another unit is another metric.
        field = FIELD_OF.get(row.fields[METRIC].lower(), "")
        if not field or row.fields[UNIT].lower() not in (*UNITS[field], ""):
            continue
        if field in values and not math.isnan(values[field]):
            row.fail(METRIC, f"given twice for the launch of row {first_row.row_number}", "keep one of the two rows")
        values[field] = _value(row, VALUE, field, row.fields[UNIT])
    yield _launch(first_row, values)


def _launch(row: CsvRow, values: dict[str, float]) -> tuple[KernelLaunch, int]:
    """The launch, and the number of its metrics without a value."""
    duration_s = values.pop("duration_s", NAN)
    if math.isnan(duration_s) or duration_s <= 0:
        row.fail(NAME, "this launch has no duration", f"export {METRICS['duration_s'][0]} too")
    missing_values = sum(map(math.isnan, values.values()))
    traffic_bytes = values.pop("read_bytes", NAN) + values.pop("written_bytes", NAN)
    name = row.fields[NAME].strip()
    if not name or not name.isprintable():
        row.fail(NAME, "a name expected", "give printable characters")
    launch = KernelLaunch(
        name=name,
        duration_s=duration_s,
        grid=_dimensions(row, "Grid Size"),
        block=_dimensions(row, "Block Size"),
        bytes=traffic_bytes,
        **values,
    )
    return launch, missing_values


def _value(row: CsvRow, column: str, field: str, unit: str) -> float:
    """The value of a metric in SI units, or as a share; NaN where Nsight Compute has none."""
    text = row.fields[column].strip()
    if text.lower() in NO_VALUE:
        return NAN
    if NUMBER_WITH_COMMAS.fullmatch(text):
        text = text.replace(",", "")
    if not NUMBER.fullmatch(text):
        row.fail(column, "a number expected", "write digits with a decimal point, such as 1,205.00")
    scales = UNITS[field]
    scale = scales.get(unit.lower() or next(iter(scales)))
    if scale is None:
        row.fail(column, f"unit {unit!r} is not one of {', '.join(scales)}", "export it in one of these units")
    value = float(text) * scale
    # Shares are of the peak sustained rate, which a kernel may exceed a little.
    if not math.isfinite(value) or value < 0 or (field.endswith("_frac") and value > 1.05):
        row.fail(column, "out of range", "give what Nsight Compute exported")
    return value


def _dimensions(row: CsvRow, column: str) -> tuple[int, ...]:
    """The three dimensions of a grid or block; empty where the column is missing or empty."""
    text = row.fields.get(column, "").strip()
    if not text:
        return ()
    match = DIMENSIONS.fullmatch(text)
    if not match or max(map(float, match.groups())) > MAX_INT32:  # also CUDA's limit of blocks in a grid
        row.fail(column, "three whole numbers expected", "such as (256, 1, 1)")
    return tuple(int(dimension) for dimension in match.groups())
