"""Replay two jobs on one device from what they do alone, by sharing mode; what filling gaps by priority buys."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table as Grid

from interfere.commands.output import JsonFlag, emit, progress_note

if TYPE_CHECKING:
    from interfere.records import JobProfile
    from interfere.timeline.mode_comparison import ModeResult, PairScenario

app = typer.Typer(add_completion=False)
Source = Annotated[Path | None, typer.Option("--table", help="Folder of a table. Default: the shipped one.")]
Profiles = Annotated[Path | None, typer.Option(help="JSON list of profiles, instead of a table.")]
Device = Annotated[str, typer.Option(help="Device type, where the jobs are profiled on several.")]
Mode = Annotated[
    list[str] | None,
    typer.Option(help="exclusive, timeslice, fair, spatial, queued, priority (repeatable). Default: what fits."),
]
GapShare = Annotated[
    float | None, typer.Option(help="Draw gaps for the high job that take this share of its time alone.")
]
GapEvery = Annotated[int, typer.Option(min=1, help="A drawn gap after every so many kernels.")]
Error = Annotated[float, typer.Option(min=0.0, help="Relative error of the times that the planner believes.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for timeline.html, the picture.")]


@app.command()
def timeline(
    high: Annotated[str, typer.Argument(metavar="HIGH", help="Workload of the job that goes first.")],
    low: Annotated[str, typer.Argument(metavar="LOW", help="Workload of the other one.")],
    table: Source = None,
    profiles: Profiles = None,
    device: Device = "",
    mode: Mode = None,
    gap_share: GapShare = None,
    gap_every: GapEvery = 1,
    error: Error = 0.0,
    seed: Seed = 0,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay two jobs on one device from what they do alone, by sharing mode; what filling gaps by priority buys."""
    from interfere.timeline.comparison_page import shown_window_s, write_comparison_page
    from interfere.timeline.mode_comparison import compare_sharing_modes, scenario_from_profiles, select_sharing_modes

    first, second = _pair(high, low, device, table, profiles)
    modes = select_sharing_modes(mode or (), first.device_type)
    scenario = scenario_from_profiles(
        first, second, gap_frac=gap_share, gap_every=gap_every, error_frac=error, seed=seed
    )
    window_s = shown_window_s(scenario.high) if out else 0.0
    results = compare_sharing_modes(scenario, modes, record_spans_until_s=window_s)
    path = write_comparison_page(out / "timeline.html", scenario, results) if out else None
    _show(scenario, results, path, as_json=as_json)


def _show(scenario: "PairScenario", results: "Sequence[ModeResult]", path: Path | None, *, as_json: bool) -> None:
    """The figures of each mode, and what they are made of."""
    from dataclasses import asdict

    from interfere.timeline.comparison_page import COLUMNS, comparison_rows, explanatory_notes

    one, other = scenario.high, scenario.low
    title = escape(f"{one.name} (high) beside {other.name} (low), replayed")
    grid = Grid(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for k, column in enumerate(COLUMNS):
        grid.add_column(column, justify="right" if k else "left", no_wrap=True)
    for row in comparison_rows(results):
        grid.add_row(*row)
    document = {
        "high": {"workload": one.name, "solo_s": one.solo_s, "gaps": one.gaps, "order": one.order},
        "low": {"workload": other.name, "solo_s": other.solo_s, "gaps": other.gaps, "order": other.order},
        "low_kernels_too_long": scenario.oversized_low_kernels,
        "modes": [{k: v for k, v in asdict(result).items() if k != "spans"} for result in results],
        "picture": str(path) if path else None,
    }
    emit(document, grid, as_json=as_json)
    for line in (*explanatory_notes(scenario), *([f"wrote {path}"] if path else [])):
        progress_note(escape(line))


def _pair(
    high: str, low: str, device: str, table: Path | None, profiles: Path | None
) -> tuple["JobProfile", "JobProfile"]:
    from interfere.errors import InvalidInputError, NotFoundError

    known = _profiles(table, profiles)
    found = []
    for name in (high, low):
        rows = [job for job in known if job.workload == name and device in ("", job.device_type)]
        if not rows:
            where = f" on {device}" if device else ""
            raise NotFoundError(
                f"no profile of such a workload{where}",
                value=name,
                remedy=f"one of {', '.join(sorted({job.workload for job in known})) or '(none)'}",
            )
        found.append(rows)
    common = sorted({job.device_type for job in found[0]} & {job.device_type for job in found[1]})
    if len(common) != 1:
        raise InvalidInputError(
            "the two jobs must be profiled on one device type",
            value=", ".join(common) or "none in common",
            remedy="choose one with --device" if common else "profile both on the same device type",
        )
    first, second = (next(job for job in rows if job.device_type == common[0]) for rows in found)
    return first, second


def _profiles(table: Path | None, profiles: Path | None) -> "tuple[JobProfile, ...]":
    from interfere.data.shipped_tables import shipped_table
    from interfere.data.tables import read_table
    from interfere.errors import InvalidInputError
    from interfere.records import JobProfile
    from interfere.wire.documents import read_json

    if table is not None and profiles is not None:
        raise typer.BadParameter("give --table or --profiles, not both", param_hint="--profiles")
    if profiles is None:
        return read_table(table or shipped_table()).jobs
    rows = read_json(str(profiles))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError("not a list of profiles", value=profiles, remedy='[{"workload": ..., "kernels": ...}]')
    return tuple(map(JobProfile.from_dict, rows))
