"""Report measured progress of running jobs to a server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from interfere.commands.options import DEFAULT_WORK, StoreFile, Target, Work, connect
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Part, Sentence, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interfere.records import Observation
    from interfere.store.observed_table import ObservedTable
    from interfere.store.store import StoreAddress

DEFAULT_COMMAND = "report"
Reason = Annotated[str, typer.Option(help="Why; people read it in the log.")]


class ReportByDefault(TyperGroup):
    """The group of `interfere observe`: without the name of a command, its arguments are those of `report`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `report` before arguments that begin with no command's name."""
        completes_name = ctx.resilient_parsing and not args
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return list(super().parse_args(ctx, args if named or completes_name else [DEFAULT_COMMAND, *args]))


app = typer.Typer(add_completion=False, cls=ReportByDefault)


@app.callback()
def observe() -> None:
    """Report what was measured (FILE); see what was learned (log), from whom (reporters, weigh); rollback; export."""


@app.command(DEFAULT_COMMAND)
def report(
    observations: Annotated[
        str, typer.Argument(metavar="FILE", help='JSON {"observations": [...]}; - is standard input.')
    ],
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Report measured progress of running jobs to a server, which learns from it.

    One observation: observation_id, job_id, workload, device_type, start_s, end_s, company (workloads; empty = alone),
    and steps or slowdown. With "what": "memory_usage" (bytes, start_s, end_s) it is held against the job's grant, with
    "outcome" (kind, at_s, reason) it releases what was planned. Exit status 1 when any was rejected; the others are
    stored all the same.
    """
    from interfere.wire.documents import read_json, read_observations

    _send(read_observations(read_json(observations)), target, as_json=as_json)


@app.command()
def log(
    at: Annotated[int | None, typer.Option(min=0, help="Entries and state up to this sequence number.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Newest entries to show.")] = 20,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the log of observations, newest first, and what was known at its end, or at any point of it."""
    from interfere.wire.documents import log_document

    with connect(target) as client:
        document = log_document(client.observation_log(at_sequence=at, limit=limit))
    emit(document, _log_page(document), as_json=as_json)


@app.command()
def rollback(
    reason: Reason,
    to: Annotated[int | None, typer.Option(min=0, help="Sequence number of the last entry that still counts.")] = None,
    reporter: Annotated[str, typer.Option(help="Roll back the entries of this reporter only.")] = "",
    undo: Annotated[int | None, typer.Option(min=1, help="Take back the rollback with this sequence number.")] = None,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Forget what was learned after a point of the log, from all or from one reporter; or take that back.

    The entries stay in the log; reporting goes on.
    """
    import secrets

    from interfere.records import Rollback

    if (to is None) == (undo is None):
        raise typer.BadParameter("give either --to or --undo")
    entry = Rollback(
        observation_id=f"rollback-{secrets.token_hex(8)}",
        to_sequence=to or 0,
        reason=reason,
        reporter=reporter,
        undoes=undo or 0,
    )
    _send((entry,), target, as_json=as_json)


@app.command()
def reporters(target: Target = None, as_json: JsonFlag = False) -> None:
    """List who reports: how many windows, how far they are off the others, their weight; and devices that slow jobs."""
    from interfere.records.documents import to_document

    with connect(target) as client:
        online = client.model().online
    found, odd = online.reporters, online.odd_devices
    rows = (
        (one.reporter, str(one.windows), f"{one.trust:.2f}", f"{one.weight:g}", f"{one.factor:.2f} ×") for one in found
    )
    tables = [text_table("", ("reporter", "windows", "trust", "weight", "jobs look slower by"), rows)]
    if odd:
        rows_of_devices = ((one.device, one.device_type, f"{one.factor:.2f} ×") for one in odd)
        tables.append(text_table("", ("device", "type", "jobs are slower by"), rows_of_devices))
    document = {"reporters": [to_document(one) for one in found], "odd_devices": [to_document(one) for one in odd]}
    emit(document, tables, as_json=as_json)


@app.command()
def weigh(
    reporter: Annotated[str, typer.Argument(help="Name of the reporter.")],
    weight: Annotated[float, typer.Option(min=0.0, max=1.0, help="0 mutes it, 1 trusts it as any.")],
    reason: Reason,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Learn less, or nothing, from the later windows of one reporter."""
    import secrets

    from interfere.records import ReporterWeight

    identity = f"weight-{secrets.token_hex(8)}"
    entry = ReporterWeight(observation_id=identity, reporter=reporter, weight=weight, reason=reason)
    _send((entry,), target, as_json=as_json)


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder of the table.")],
    store: StoreFile = None,
    model: Annotated[Path | None, typer.Option(help="Model folder whose profiles fill in missing ones.")] = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Write what was observed as a table to train on: interfere train --data DIR. The server may go on meanwhile."""
    from interfere.config import load_settings
    from interfere.data.tables import write_table

    observed = _observed(load_settings(store=store, work=work).store_address, model, name=out.resolve().name)
    write_table(out, observed.table)
    table = observed.table
    counts = {"pairs": len(table.pairs), "group_rows": len(table.groups), "jobs": len(table.jobs)}
    of_groups = f" and {counts['group_rows']} rows of groups" if table.groups else ""
    text = f"{out}: {counts['pairs']} pairs{of_groups} of {counts['jobs']} jobs from {observed.windows} windows"
    if observed.without_facts:
        text += f"; left out for want of a profile: {', '.join(observed.without_facts)}"
    document = {"table": str(out), **counts, "windows": observed.windows, "without_facts": list(observed.without_facts)}
    emit(document, escape(text), as_json=as_json)


@app.command()
def losses(
    since: Annotated[
        str, typer.Option(help="Only windows that end later: 2026-10-31, 2026-10-31T08:00, or 7d before the newest.")
    ] = "7d",
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many, the largest loss first.")] = 10,
    store: StoreFile = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Show the neighbours that cost each workload most, by all observations.

    The server may run meanwhile.
    """
    from interfere.config import load_settings
    from interfere.dashboard.pages import losses_table
    from interfere.store.observed_table import logged_windows, pair_losses
    from interfere.store.store import open_store
    from interfere.time_text import start_s

    opened = open_store(load_settings(store=store, work=work).store_address, read_only=True)
    try:
        logged, _ = logged_windows(opened)
    finally:
        opened.close()
    newest_s = max((each.window.end_s for each in logged), default=0.0)
    found = pair_losses(logged, within_s=newest_s - start_s(since, newest_s)) if logged else []
    total = sum(loss.lost_hours for loss in found)
    summary = f"{total:.1f} hours lost in {sum(loss.hours for loss in found):.1f} hours side by side, since {since}"
    page: list[Part] = (
        [losses_table(found[:count]), Sentence(summary)] if found else [Sentence("no window in company is stored")]
    )
    emit({"losses": [loss._asdict() for loss in found[:count]], "lost_hours": total}, page, as_json=as_json)


def _observed(address: "StoreAddress", model: Path | None, *, name: str) -> "ObservedTable":
    """Return the store's observations as a table. Raises UnfitError when no observation can become a row."""
    from interfere.errors import UnfitError
    from interfere.predict.manifest import shipped_profiles
    from interfere.store.observed_table import observed_table
    from interfere.store.store import open_store

    store = open_store(address, read_only=True)
    try:
        observed = observed_table(store, shipped_profiles(model) if model else (), name=name)
    finally:
        store.close()
    if not observed.table.measurements:
        missing = ", ".join(observed.without_facts[:5])
        raise UnfitError(
            "nothing observed can become a table",
            value=address,
            remedy=f"register profiles of {missing}, or give --model DIR" if missing else "report windows in company",
        )
    return observed


def _log_page(document: dict[str, Any]) -> list[Part]:
    rows = []
    for entry in document["entries"]:
        stored = datetime.fromtimestamp(entry["received_s"], UTC).strftime("%F %T")
        result = entry["result"] + (", rolled back" if entry["rolled_back"] else "")
        rows.append(
            (str(entry["sequence"]), stored, entry["what"], entry["job"], entry["about"], result, entry["reason"])
        )
    table = text_table("", ("sequence", "stored", "what", "job", "about", "result", "why"), rows)
    online = dict(document["online"])
    relearning = "; the log is being learned again, this is from before" if online.pop("relearning") else ""
    counts = ", ".join(_known(name.replace("_", " "), value) for name, value in online.items() if value)
    return [table, Sentence(f"known here: {counts or 'nothing'}{relearning}")]


def _known(name: str, value: int | list[str] | list[dict[str, Any]]) -> str:
    """Return one field of the online state: a count with its name, or the names of what a list holds."""
    if not isinstance(value, list):
        return f"{value} {name}"
    names = [each if isinstance(each, str) else str(next(iter(each.values()))) for each in value]
    return f"{name}: {' '.join(names)}"


def _send(observations: "Sequence[Observation]", target: str | None, *, as_json: bool) -> None:
    """Report observations and print the server's answer to each. Exit status 1 when any was rejected."""
    from interfere.records import ObservationResult
    from interfere.records.documents import to_document

    with connect(target) as client:
        answers = client.observe(observations)
    rows = ((answer.observation_id, answer.result.value, answer.reason) for answer in answers)
    table = text_table("", ("observation", "result", "why"), rows)
    emit({"observations": [to_document(answer) for answer in answers]}, [table], as_json=as_json)
    if any(answer.result is ObservationResult.REJECTED for answer in answers):
        raise typer.Exit(1)
