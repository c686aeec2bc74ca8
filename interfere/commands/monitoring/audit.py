"""Audit what sharing GPUs has cost, from recorded monitoring."""

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress as Bar

from interfere.commands.monitoring.options import TokenFile, describe_candidates, monitoring_settings
from interfere.commands.options import with_options
from interfere.commands.output import JsonFlag, emit, err, keeps_when_interrupted, progress_note

if TYPE_CHECKING:
    from interfere.monitoring.audit.advice import MatchReplay
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
    days: Annotated[float, typer.Option(min=0.01, max=3660, help="How many days to read.")] = 30.0,
    until: Annotated[
        str | None, typer.Option(help="End of these days: 2026-10-31, 2026-10-31T08:00, or unix seconds. Default: now.")
    ] = None,
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
    report = _read(source, settings, days, until)
    match = _replay(report)
    document = audit_document(report, name, match)
    page = write_html_page(out, document)
    facts = {"match": match, "orders": orders(report.separations, report.estimates), "page": str(page)}
    emit(report.facts() | facts, document, as_json=as_json)
    progress_note(f"page: {page}")


def _read(
    source: "PrometheusSource | SavedAnswers", settings: "MonitoringSettings", days: float, until: str | None
) -> "AuditReport":
    """Return the audit of the requested time, read under a progress bar, and print what could not be done."""
    from interfere.installation import install_line
    from interfere.monitoring.audit.audit import audit as run_audit
    from interfere.monitoring.preflight import PreflightError
    from interfere.monitoring.prometheus import PrometheusSource

    end_s = _time_s(until) if until else source.now_s()
    start_s = end_s - days * 86400
    if not isinstance(source, PrometheusSource):
        start_s = max(start_s, source.first_s())
    if not can_match():
        progress_note(f"highspy is missing: nobody can say what Match would have done ({install_line('serve')})")
    try:
        with Bar(console=err, transient=True) as bar:
            task = bar.add_task("reading", total=None)
            report = run_audit(
                source,
                settings,
                start_s,
                end_s,
                on_cell=lambda done, cells: bar.update(task, completed=done, total=cells),
            )
    except PreflightError:
        progress_note(describe_candidates(source, start_s, end_s))
        raise
    if not settings.progress:
        progress_note(describe_candidates(source, start_s, end_s))
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


def _time_s(text: str) -> float:
    """Return the unix time of a number, or of a date or time in ISO 8601, UTC by default. Raises InvalidInputError."""
    from interfere.errors import InvalidInputError

    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write 2026-10-31, 2026-10-31T08:00, or unix seconds"
        raise InvalidInputError("not a time", value=repr(text), remedy=remedy) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _replay(report: "AuditReport") -> "MatchReplay | None":
    """Return what Match would have done; None where the libraries that it needs are not installed."""
    if not can_match():
        return None
    from interfere.study.recorded_jobs import replay_with_match

    return replay_with_match(report)


def can_match() -> bool:
    """Return whether the libraries that a decision needs are installed. The bare install lacks them."""
    return find_spec("highspy") is not None
