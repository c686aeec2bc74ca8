"""Audit what sharing GPUs has cost, from recorded monitoring."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress as Bar

from interfere.commands.monitoring.options import TokenFile, describe_candidates, monitoring_settings
from interfere.commands.options import with_options
from interfere.commands.output import JsonFlag, emit, err, keeps_when_interrupted, progress_note

if TYPE_CHECKING:
    from interfere.monitoring.audit.audit import AuditReport
    from interfere.monitoring.prometheus import PrometheusSource
    from interfere.monitoring.saved_answers import SavedAnswers
    from interfere.monitoring.settings import MonitoringSettings

TRIES = 3  # a long audit should not end with one request that timed out

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@with_options("settings", monitoring_settings)
@keeps_when_interrupted("nothing is kept: the same command reads the time series anew")
def audit(
    *,
    prometheus: Annotated[str | None, typer.Option(help="Address of Prometheus, such as http://host:9090.")] = None,
    from_files: Annotated[
        Path | None, typer.Option(help="Saved answers of Prometheus instead: a JSON file, or a folder of them.")
    ] = None,
    since: Annotated[
        str, typer.Option(help="Where to begin: 2026-10-31, 2026-10-31T08:00, unix seconds, or 30d before the end.")
    ] = "30d",
    until: Annotated[
        str, typer.Option(help="Where to end: 2026-10-31, 2026-10-31T08:00, unix seconds, or 6h ago. Default: now.")
    ] = "0s",
    settings: "MonitoringSettings",
    token_file: TokenFile = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("audit.html"),
    as_json: JsonFlag = False,
) -> None:
    """Say which workloads shared GPUs, what it cost them, who hurts whom, what to change, and what to measure next.

    Reads DCGM-exporter series and a counter of steps, and only reads. Writes one page to pass on.
    """
    from interfere.monitoring.audit.audit_document import audit_document
    from interfere.monitoring.audit.keeping_apart import orders
    from interfere.reports.html_page import write_html_page

    if (prometheus is None) == (from_files is None):
        raise typer.BadParameter("give either --prometheus URL or --from-files PATH")
    source, name = _source(prometheus, from_files, settings, token_file)
    report = _read(source, settings, since, until)
    match = None
    if can_match():
        from interfere.study.recorded_jobs import replay_with_match

        match = replay_with_match(report)
    document = audit_document(report, name, match)
    page = write_html_page(out, document)
    facts = {"match": match, "orders": orders(report.separations, report.estimates), "page": str(page)}
    emit(report.facts() | facts, document, as_json=as_json)
    progress_note(f"page: {page}")


def _read(
    source: "PrometheusSource | SavedAnswers", settings: "MonitoringSettings", since: str, until: str
) -> "AuditReport":
    """Return the audit of the requested time, read under a progress bar, and print what could not be done."""
    from interfere.installation import install_line
    from interfere.monitoring.audit.audit import audit as run_audit
    from interfere.monitoring.preflight import PreflightError
    from interfere.monitoring.prometheus import PrometheusSource
    from interfere.time_text import moment_s, start_s

    end_s = moment_s(until, source.now_s())
    begin_s = start_s(since, end_s)
    if not isinstance(source, PrometheusSource):
        begin_s = max(begin_s, source.first_s())
    if not can_match():
        progress_note(f"highspy is missing: nobody can say what Match would have done ({install_line('serve')})")
    try:
        with Bar(console=err, transient=True) as bar:
            task = bar.add_task("reading", total=None)
            report = run_audit(
                source,
                settings,
                begin_s,
                end_s,
                on_cell=lambda done, cells: bar.update(task, completed=done, total=cells),
            )
    except PreflightError:
        progress_note(describe_candidates(source, begin_s, end_s))
        raise
    if not settings.progress:
        progress_note(describe_candidates(source, begin_s, end_s))
    return report


def _source(
    url: str | None, path: Path | None, settings: "MonitoringSettings", token_file: Path | None
) -> "tuple[PrometheusSource | SavedAnswers, str]":
    """Return the source of the samples, and its name for the report."""
    if path is not None:
        from interfere.monitoring.saved_answers import SavedAnswers

        return SavedAnswers(path, settings), path.name
    from interfere.monitoring.prometheus import PrometheusSource

    source = PrometheusSource(url or "", settings, tries=TRIES, token_file=token_file)
    return source, source.url


def can_match() -> bool:
    """Return whether the libraries that a decision needs are installed. The bare install lacks them."""
    return find_spec("highspy") is not None
