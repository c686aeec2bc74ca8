"""Reads CSV exports with the time of each kernel launch: one reader, and a table of column names for each format.

Orion's profiles (Strati et al., EuroSys 2024) have one row per launch of one step. Profile is 1 for compute-bound, 0
for memory-bound, -1 for unknown; SM_usage is the number of multiprocessors that the launch could fill, which for large
grids is more than the device has; Duration is in ns. A file is named after its job: `resnet50_32_fb1.csv` is training,
`resnet50_4_fwd.csv` inference.

Nsight Compute (`ncu --csv`) has a raw page with one row per launch, one column per metric, and the units in the row
below the header; a details page with one row per launch and metric; and derivatives (such as Echo's) with one row per
launch, and columns named after the sections of the details page. Lines of the program or of ncu (`==PROF== ...`) before
and after the table are skipped and counted. It runs kernels one at a time and by default locks the clocks: durations
are those of a kernel alone, a little longer than in a normal run.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from interfere.data.importers.import_result import Notice, dropped, flagged
from interfere.data.importers.kernels.kernel_files import SUM_NOTE, KernelFile, KernelFormat, KernelLaunch
from interfere.data.importers.strict_reading import (
    MAX_INT32,
    NUMBER,
    CsvRow,
    check_columns,
    check_complete,
    csv_row,
    fault,
    parse_csv,
    read_text,
)
from interfere.devices import device_type_of_product
from interfere.errors import TableError
from interfere.records import NAN

METRIC, UNIT, VALUE = "Metric Name", "Metric Unit", "Metric Value"  # of a details page
DEVICE_NAME_METRIC = "device__attribute_display_name"
TOOL_LINE_PREFIX = "=="  # Nsight Compute's own lines begin so: ==PROF==, ==WARNING==
# Nsight Compute scales units to the value. Older and newer releases spell them differently.
SECONDS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
SECONDS |= {"s": 1.0, "second": 1.0}
BYTES = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9}
PERCENT = {"%": 0.01}
NUMBER_WITH_COMMAS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
DIMENSIONS = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?", re.ASCII)
NO_VALUE = ("", "n/a", "nan", "(!) n/a")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchColumn:
    """The column in which a format gives a number of a kernel launch."""

    names: tuple[str, ...]  # that it goes by; case is ignored
    units: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})  # the first where the file names none
    words: Mapping[str, float] = field(default_factory=dict)  # that stand for its numbers
    is_required: bool = False  # every file has it, and every row a value
    is_whole: bool = False
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchColumns:
    """The columns of a format: the column of kernel names, and for each field of `KernelLaunch` the column that fills
    it.

    `read_bytes` and `written_bytes` add up to `bytes`; `footprint` is counted and left out, for its unit is unknown.
    """

    name: str
    of_field: Mapping[str, LaunchColumn]
    how_to_export: str

    def field_of_name(self) -> dict[str, str]:
        """Return the field of each column, or of each metric of a details page, by the name in lower case."""
        return {name.lower(): field for field, column in self.of_field.items() for name in column.names}


ORION_COLUMNS = LaunchColumns(
    name="Name",
    of_field={
        "compute_bound": LaunchColumn(names=("Profile",), words={"1": 1.0, "0": 0.0, "-1": NAN}, is_required=True),
        "footprint": LaunchColumn(names=("Memory_footprint",), is_required=True),
        "sm_used": LaunchColumn(names=("SM_usage",), is_required=True, is_whole=True, low=1.0, high=MAX_INT32),
        "duration_s": LaunchColumn(names=("Duration",), units={"ns": 1e-9}, is_required=True),
    },
    how_to_export="give the file as published: same column names, comma-separated",
)
NSIGHT_COLUMNS = LaunchColumns(
    name="Kernel Name",
    of_field={
        "duration_s": LaunchColumn(
            names=("gpu__time_duration.sum", "gpu__time_duration.avg", "duration"), units=SECONDS
        ),
        "occupancy_frac": LaunchColumn(
            names=("sm__warps_active.avg.pct_of_peak_sustained_active", "achieved occupancy"), units=PERCENT, high=1.05
        ),
        "compute_frac": LaunchColumn(
            names=(
                "sm__throughput.avg.pct_of_peak_sustained_elapsed",
                "compute (sm) throughput",
                "compute throughput",
            ),
            units=PERCENT,
            high=1.05,  # shares are of the peak sustained rate, which a kernel may exceed a little
        ),
        "memory_frac": LaunchColumn(
            names=(
                "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
                "dram__throughput.avg.pct_of_peak_sustained_elapsed",
                "dram throughput",
            ),
            units=PERCENT,
            high=1.05,
        ),
        "read_bytes": LaunchColumn(names=("dram__bytes_read.sum",), units=BYTES),
        "written_bytes": LaunchColumn(names=("dram__bytes_write.sum",), units=BYTES),
    },
    how_to_export="export with `ncu --csv --page raw` (or details)",
)


def _read_export(columns: LaunchColumns, path: Path, _step_range: str = "") -> KernelFile:
    """Read the launches in one CSV export. Raises TableError, which names file, row and column."""
    # 1. Find the table between the lines of the program and of the profiler.
    text, source = read_text(path)
    lines = io.StringIO(text.replace("\r\n", "\n"), newline="").readlines()
    start, end = _table_lines(path, lines, columns)
    numbered = parse_csv(path, lines[start:end], lines_before=start)
    header = tuple(name.strip() for name in next(numbered)[1])
    check_columns(path, header, (), row=start + 1)
    rows = [csv_row(path, number, fields, header) for number, fields in numbered]
    is_details_page, units = VALUE in header, dict[str, str]()
    if rows and not is_details_page and not rows[0].fields[columns.name].strip():
        units = rows.pop(0).fields
    if not rows:
        problem = "no launches below it" if units else "no rows below the header"
        raise TableError(f"{path.name}, row {start + 2}: {problem}", value=path, remedy="profile again")
    # 2. Read its launches.
    if is_details_page:
        values = list(_details_page_values(rows, columns))
        device_name = next((row.fields[VALUE] for row in rows if row.fields[METRIC] == DEVICE_NAME_METRIC), "")
    else:
        values = list(_row_values(rows, columns, header, units))
        device_name = next((row.fields[DEVICE_NAME_METRIC] for row in rows if row.fields.get(DEVICE_NAME_METRIC)), "")
    launches = tuple(_launch(row, columns, numbers) for row, numbers in values)
    above_and_below = dropped(
        start + len(lines) - end, "lines outside of the table", "output of the program or of ncu itself"
    )
    unread = () if is_details_page or units else (_notice_of_unread_columns(path, columns, header),)
    return KernelFile(
        source=source,
        launches=launches,
        device_type=device_type_of_product(device_name),
        notices=(*_notices_of_values(columns, launches, [numbers for _, numbers in values]), above_and_below, *unread),
    )


def _notices_of_values(
    columns: LaunchColumns, launches: Sequence[KernelLaunch], values: Sequence[Mapping[str, float]]
) -> Iterator[Notice]:
    """Return notices on values that the launches of a file lack, and on values that the importer does not read."""
    words = {name for name, column in columns.of_field.items() if column.words}
    missing = sum(math.isnan(value) for each in values for name, value in each.items() if name not in words)
    yield flagged(
        sum(math.isnan(launch.compute_bound) for launch in launches) if "compute_bound" in words else 0,
        "of {launches} launches are of unknown kind",
        "Profile is -1: Orion classed them neither as compute- nor as memory-bound",
    )
    yield flagged(
        sum(each.get("footprint", 0.0) > 0 for each in values),
        "launches with a memory footprint",
        "its unit is not documented: the number is left out, the launch is kept",
    )
    yield flagged(missing, "values that Nsight Compute could not give", "n/a or empty: NaN")


def _notice_of_unread_columns(path: Path, columns: LaunchColumns, header: Sequence[str]) -> Notice:
    field_of = columns.field_of_name()
    known = (columns.name, "ID", "Grid Size", "Block Size", DEVICE_NAME_METRIC)
    unread = [name for name in header if name not in known and name.lower() not in field_of]
    subject = f"columns of {path.name}: {', '.join(unread)}"
    return dropped(len(unread), subject, "not a fact of a kernel alone, or of unknown unit")


def _table_lines(path: Path, lines: list[str], columns: LaunchColumns) -> tuple[int, int]:
    """Return the index of the header line, and that after the last row of the table. Raises TableError."""
    name = columns.name
    start = next((k for k, line in enumerate(lines) if name in line and name in next(csv.reader([line]))), None)
    if start is None:
        value = f"no header with it in {path}"
        raise fault(f"{path.name}, row 1, column {name}", "missing", value, columns.how_to_export)
    end = len(lines)
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith(TOOL_LINE_PREFIX)):
        end -= 1
    check_complete(path, lines[end - 1], end)
    return start, end


def _row_values(
    rows: list[CsvRow], columns: LaunchColumns, header: tuple[str, ...], units: Mapping[str, str]
) -> Iterator[tuple[CsvRow, dict[str, float]]]:
    """Yield each row with the values of its launch by field.

    Where several columns of the file fill the same field, the first one counts.
    """
    field_of, column_of = columns.field_of_name(), dict[str, str]()
    for name in header:
        column_of.setdefault(field_of.get(name.lower(), ""), name)
    column_of.pop("", None)
    for field_name, column in columns.of_field.items():
        if field_name not in column_of and (column.is_required or field_name == "duration_s"):
            check_columns(rows[0].path, header, (column.names[0],), row=rows[0].row_number - 1)
    for row in rows:
        yield (
            row,
            {
                field_name: _value(row, name, columns.of_field[field_name], units.get(name, ""))
                for field_name, name in column_of.items()
            },
        )


def _details_page_values(rows: list[CsvRow], columns: LaunchColumns) -> Iterator[tuple[CsvRow, dict[str, float]]]:
    """Yield the first row of each launch with the values of the launch by field.

    The rows of a launch follow each other and have the same ID (and the same process, if given).
    """
    check_columns(rows[0].path, tuple(rows[0].fields), ("ID", METRIC, UNIT, VALUE), row=rows[0].row_number - 1)
    field_of, launch_key = columns.field_of_name(), tuple[str, ...]()
    first_row, values = rows[0], dict[str, float]()
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        # 1. A new ID begins the next launch.
        key = (row.fields.get("Process ID", ""), row.fields["ID"])
        if key != launch_key:
            if launch_key:
                yield first_row, values
            if key in seen:
                row.fail("ID", "a launch that ended above goes on here", "keep the rows of a launch together")
            seen.add(key)
            launch_key, first_row, values = key, row, {}
        elif row.text(columns.name) != first_row.text(columns.name):
            row.fail(
                columns.name,
                f"another kernel under the same ID as in row {first_row.row_number}",
                "give each launch its own ID",
            )
        # 2. Add the row's metric. Some names appear twice on the details page, as a share and as a rate: the same name
        # in another unit is another metric.
        field_name = field_of.get(row.fields[METRIC].lower(), "")
        if not field_name or row.fields[UNIT].lower() not in (*columns.of_field[field_name].units, ""):
            continue
        if not math.isnan(values.get(field_name, NAN)):
            row.fail(METRIC, f"given twice for the launch of row {first_row.row_number}", "keep one of the two rows")
        values[field_name] = _value(row, VALUE, columns.of_field[field_name], row.fields[UNIT])
    yield first_row, values


def _launch(row: CsvRow, columns: LaunchColumns, values: Mapping[str, float]) -> KernelLaunch:
    if not values.get("duration_s", NAN) > 0:
        column = columns.of_field["duration_s"]
        place = column.names[0] if column.is_required else columns.name
        row.fail(place, "this launch has no duration", f"export {column.names[0]} too")
    name = row.fields[columns.name].strip()
    if not name or not name.isprintable():
        row.fail(columns.name, "a name expected", "give printable characters")
    left_out = ("read_bytes", "written_bytes", "footprint")
    return KernelLaunch(
        name=name,
        grid=_dimensions(row, "Grid Size"),
        block=_dimensions(row, "Block Size"),
        bytes=values.get("read_bytes", NAN) + values.get("written_bytes", NAN),
        **{field: value for field, value in values.items() if field not in left_out},
    )


def _value(row: CsvRow, name: str, column: LaunchColumn, unit: str) -> float:
    """Return the number in a cell in SI units, or as a share of 1; NaN where the cell has none."""
    text = row.fields[name].strip()
    if column.words:
        if text not in column.words:
            row.fail(
                name, f"one of {', '.join(column.words)} expected", "1 is compute-bound, 0 memory-bound, -1 unknown"
            )
        return column.words[text]
    if text.lower() in NO_VALUE and not column.is_required:
        return NAN
    if NUMBER_WITH_COMMAS.fullmatch(text):
        text = text.replace(",", "")
    if not NUMBER.fullmatch(text):
        row.fail(name, "a number expected", "write digits with a decimal point, such as 1,205.00")
    scale = column.units.get(unit.lower() or next(iter(column.units)))
    if scale is None:
        row.fail(name, f"unit {unit!r} is not one of {', '.join(column.units)}", "export it in one of these units")
    value = float(text) * scale
    if column.is_whole and value != int(value):
        row.fail(name, "a whole number expected", "give what the profiler exported")
    if not math.isfinite(value) or not column.low <= value <= column.high:
        row.fail(name, "out of range", "give what the profiler exported")
    return value


def _dimensions(row: CsvRow, column: str) -> tuple[int, ...]:
    """Return the three dimensions of a grid or block; an empty tuple where the file does not give them."""
    text = row.fields.get(column, "").strip()
    if not text:
        return ()
    match = DIMENSIONS.fullmatch(text)
    if not match or max(map(float, match.groups())) > MAX_INT32:  # also CUDA's limit of blocks in a grid
        row.fail(column, "three whole numbers expected", "such as (256, 1, 1)")
    return tuple(int(dimension) for dimension in match.groups())


ORION = KernelFormat(
    name="orion",
    read=partial(_read_export, ORION_COLUMNS),
    patterns=("*.csv",),
    is_timed=False,
    notes=(
        "one file is one step of one job: workload = file name",
        "no grid in this format: an identity is (name, SM_usage, Profile); gaps between kernels are unknown",
        "SM_usage is what a launch could fill: it may be more than the multiprocessors of the device",
        SUM_NOTE,
        "device type: {device_type}, as named in the command (published files: V100)",
    ),
    device_type="v100",
)
NSIGHT = KernelFormat(
    name="nsight",
    read=partial(_read_export, NSIGHT_COLUMNS),
    patterns=("*.csv",),
    is_timed=False,
    notes=(
        "one file is one job; an identity is (name, grid, block); gaps between kernels are unknown",
        "memory_frac is device memory (DRAM) throughput; shares are means over launches",
        "Nsight Compute runs kernels one at a time and by default locks clocks: durations are a little longer than in "
        "a normal run",
        SUM_NOTE,
        "steps in a file: {steps}",
    ),
)
