"""Own measurements in a spreadsheet: write one to fill in, and import it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.data.importing import check_target_folder, report_document, report_table, write_and_report
from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit
from interfere.data.importers.spreadsheet.options import (
    Conditions,
    Decimal,
    Shape,
    SpreadsheetOptions,
    Victims,
    parse_map,
)
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.data.importers.spreadsheet.columns import ColumnUse

Pairs = Annotated[Path, typer.Argument(help="CSV or Parquet file of pairs, long or as a matrix.")]
Roles = Annotated[list[str] | None, typer.Argument(metavar="[ROLE=COLUMN]...", help="More of --column.")]
Profiles = Annotated[Path | None, typer.Option(help="CSV or Parquet file of the jobs alone: one row a job.")]
Map = Annotated[list[str] | None, typer.Option("--column", help="ROLE=COLUMN, such as victim=job_a. Repeatable.")]
MapProfile = Annotated[list[str] | None, typer.Option(help="ROLE=COLUMN of --profiles. Repeatable.")]
Value = Annotated[str, typer.Option(help="What a matrix holds: slowdown, speed, throughput, step_time_ms, ...")]
Source = Annotated[str, typer.Option(help="Who measured: imports of one source into one folder replace each other.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder to write. Default: WORK/tables/NAME.", show_default=False)
]


def table(
    path: Pairs,
    more: Roles = None,
    profiles: Profiles = None,
    columns: Map = None,
    map_profile: MapProfile = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type, where no column says it.")] = "",
    mode: Annotated[SharingMode, typer.Option(help="Sharing mode, where no column says it.")] = DEFAULT_MODE,
    metric: Annotated[str, typer.Option(help="step_time_mean, latency_p50 or latency_p99. Default: by column.")] = "",
    decimal: Annotated[
        Decimal | None,
        typer.Option(help="Sign before fractions. Default: a point; between semicolons as the first number has it."),
    ] = None,
    shape: Annotated[
        Shape, typer.Option(help="Long: one row a pair. Wide: a matrix. Auto: by the header.")
    ] = Shape.AUTO,
    value: Value = "",
    victims: Annotated[Victims, typer.Option(help="Where a matrix has its victims.")] = Victims.ROWS,
    source: Source = "user",
    name: Annotated[str, typer.Option(help="Name of the table. Default: that of the file.")] = "",
    out: Out = None,
    work: Work = DEFAULT_WORK,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print how each column is read; write nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import own measurements: slowdowns, speeds, or throughputs or times with those alone.

    `interfere data template` writes a file to fill; docs/own-tables.md explains every column.
    """
    from interfere.data.importers.spreadsheet.own_table import read_spreadsheet

    target = out or work / "tables" / (name or path.stem)
    if not dry_run:
        check_target_folder(target)
    options = SpreadsheetOptions(
        mapping=parse_map((*(columns or ()), *(more or ()))),
        profile_mapping=parse_map(map_profile or ()),
        device_type=device,
        mode=mode,
        metric=metric,
        decimal=decimal,
        shape=shape,
        value=value,
        victims=victims,
        source=source,
    )
    result = read_spreadsheet(path, profiles, options)
    if not dry_run:
        write_and_report(target, result.imported, as_json=as_json)
        return
    document = report_document(result.imported) | {"columns": [_document(use) for use in result.columns]}
    emit(document, [*_uses(result.columns), report_table(result.imported)], as_json=as_json)


def _document(use: "ColumnUse") -> dict[str, object]:
    from dataclasses import asdict

    return asdict(use)


def _uses(uses: "tuple[ColumnUse, ...]") -> list[Part]:
    rows = (
        (use.file, use.column or "(every row)", use.role, use.meaning, str(use.values), use.example) for use in uses
    )
    table = text_table("", ("file", "column", "read as", "meaning", "values", "such as"), rows)
    return [table, Sentence("dry run: nothing was written", tone=Tone.NOTE)]


def template(
    folder: Annotated[Path, typer.Argument(help="Folder to write pairs.csv and jobs.csv into.")] = Path(),
    job: Annotated[list[str] | None, typer.Option(help="Name of a job. Repeatable.", show_default=False)] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type, such as a100-80gb.")] = "a100-80gb",
    mode: Annotated[SharingMode, typer.Option(help="How the jobs share a device.")] = DEFAULT_MODE,
    value: Annotated[str, typer.Option(help="What you measure: slowdown, speed, throughput, step_time_ms, ...")] = (
        "step_time_ms"
    ),
    shape: Annotated[Shape, typer.Option(help="Long: one row a pair. Wide: a matrix.")] = Shape.LONG,
    as_json: JsonFlag = False,
) -> None:
    """Write a spreadsheet to fill in: one file of pairs, one of the jobs alone. Cells may stay empty."""
    from interfere.data.importers.device_names import device_type_of_product
    from interfere.data.importers.spreadsheet.own_table import EXAMPLE_JOBS, write_template

    conditions = Conditions(device_type=device_type_of_product(device), mode=mode)
    jobs = tuple(job or EXAMPLE_JOBS)
    files = write_template(folder, jobs, device_type=conditions.device_type, mode=mode, value=value, shape=shape)
    flags = f" --device-type {conditions.device_type} --mode {mode}" if shape is Shape.WIDE else ""
    following = f"interfere data import table {files[0]} --profiles {files[1]}{flags} --name mine --dry-run"
    text = "\n".join((*(f"wrote {path}" for path in files), f"fill them in, then: {following}"))
    emit({"files": [str(path) for path in files], "next": following}, text, as_json=as_json)
