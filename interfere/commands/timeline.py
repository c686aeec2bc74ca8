"""Replay two jobs, kernel by kernel, under every sharing mode."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from interfere.commands.options import DEFAULT_WORK
from interfere.commands.output import JsonFlag, emit, progress_note

if TYPE_CHECKING:
    from interfere.records import JobProfile

app = typer.Typer(add_completion=False)
Source = Annotated[Path | None, typer.Option("--data", help="Folder of a table. Default: the shipped one.")]
Profiles = Annotated[Path | None, typer.Option(help="File of profiles, instead of a table.")]
Device = Annotated[str, typer.Option("--device-type", help="Device type, where the jobs are profiled on several.")]
Mode = Annotated[
    list[str] | None,
    typer.Option(
        help="How they share: exclusive, timeslice, fair, queued, unpredicted, priority, filling (repeatable). "
        "Default: what fits."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for timeline.html, the picture.")]


@app.command()
def timeline(
    high: Annotated[str, typer.Argument(metavar="HIGH", help="Workload of the job that goes first.")],
    low: Annotated[str, typer.Argument(metavar="LOW", help="Workload of the other one.")],
    table: Source = None,
    profiles: Profiles = None,
    device: Device = "",
    mode: Mode = None,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay two jobs on one device, from the profile of each alone, under every sharing mode.

    The results show, among others, how much the low job gains when its kernels fill the gaps of the high one.
    """
    from dataclasses import asdict

    from interfere.reports.document import table_of
    from interfere.reports.html_page import write_html_page
    from interfere.timeline.kernel_schedulers import select_kernel_schedulers
    from interfere.timeline.mode_comparison import (
        COLUMNS,
        compare_sharing_modes,
        comparison_document,
        explanatory_notes,
        scenario_from_profiles,
        shown_window_s,
    )

    high_profile, low_profile = _profile_pair(_profiles(table, profiles), (high, low), device)
    modes = select_kernel_schedulers(mode or (), high_profile.device_type)
    scenario = scenario_from_profiles(high_profile, low_profile)
    window_s = shown_window_s(scenario.high) if out else 0.0
    results = compare_sharing_modes(scenario, modes, record_spans_until_s=window_s)
    page = comparison_document(scenario, results)
    picture = write_html_page(out / "timeline.html", page) if out else None
    figures = table_of(f"{high} (high) beside {low} (low), replayed", COLUMNS, results)
    jobs = {
        side: {"workload": job.name, "solo_s": job.solo_s, "gaps": job.gaps, "order": job.order}
        for side, job in (("high", scenario.high), ("low", scenario.low))
    }
    document = jobs | {
        "low_kernels_too_long": scenario.oversized_low_kernels,
        "modes": [{k: v for k, v in asdict(result).items() if k != "spans"} for result in results],
        "picture": picture,
    }
    emit(document, [figures], as_json=as_json)
    for line in (*explanatory_notes(scenario), *([f"wrote {picture}"] if picture else [])):
        progress_note(escape(line))


def _profile_pair(
    profiles: "Sequence[JobProfile]", workloads: tuple[str, str], device: str
) -> tuple["JobProfile", "JobProfile"]:
    """Return the profiles of two workloads on the one device type on which both are profiled.

    `device` chooses where both are profiled on several device types.
    """
    from interfere.errors import InvalidInputError, NotFoundError, remedy_for_name

    by_device: list[dict[str, JobProfile]] = []
    for workload in workloads:
        matches = [job for job in profiles if job.workload == workload and device in ("", job.device_type)]
        if not matches:
            raise NotFoundError(
                f"no profile of such a workload{f' on {device}' if device else ''}",
                value=workload,
                remedy=remedy_for_name(workload, sorted({job.workload for job in profiles})),
            )
        by_device.append({job.device_type: job for job in reversed(matches)})
    common = sorted(by_device[0].keys() & by_device[1].keys())
    if len(common) != 1:
        raise InvalidInputError(
            "the two jobs must be profiled on one device type",
            value=", ".join(common) or "none in common",
            remedy="choose one with --device-type" if common else "profile both on the same device type",
        )
    return by_device[0][common[0]], by_device[1][common[0]]


def _profiles(table: Path | None, profiles: Path | None) -> "tuple[JobProfile, ...]":
    """Return the profiles of a file, else of a table, by default the shipped table."""
    from interfere.data.loading import read_profiles, shipped_table
    from interfere.data.tables import read_table

    if table is not None and profiles is not None:
        raise typer.BadParameter("give --data or --profiles, not both", param_hint="--profiles")
    if profiles is None:
        return read_table(table or shipped_table()).jobs
    return read_profiles(str(profiles), DEFAULT_WORK, mapping={})
