"""Report measured progress of running jobs to a server, which learns from it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from interfere.commands.output import JsonFlag, emit

DEFAULT = "report"
Target = Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")]


class ReportUnlessNamed(TyperGroup):
    """`interfere observe FILE` reports; `log` and `rollback` are named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is no command's name is the first argument of `report`."""
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return list(super().parse_args(ctx, args if named else [DEFAULT, *args]))


app = typer.Typer(add_completion=False, cls=ReportUnlessNamed)


@app.callback()
def observe() -> None:
    """Report what was measured (FILE), look at what was learned (log), go back (rollback), train on it (export)."""


@app.command(DEFAULT)
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
    """The log of observations, newest first, and what was known at its end, or at any point of it."""
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.wire.documents import log_document

    settings = load_settings(target=target)
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        document = log_document(client.observation_log(at_sequence=at, limit=limit))
    table = Table("sequence", "stored", "what", "job", "about", "result", "why")
    for entry in document["entries"]:
        stored = datetime.fromtimestamp(entry["received_s"], UTC).strftime("%F %T")
        result = entry["result"] + (", rolled back" if entry["rolled_back"] else "")
        row = (str(entry["sequence"]), stored, entry["what"], entry["job"], entry["about"], result, entry["reason"])
        table.add_row(*map(escape, row))
    known = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in document["online"].items() if value)
    emit(document, Group(table, escape(f"known here: {known or 'nothing'}")), as_json=as_json)


@app.command()
def rollback(
    to: Annotated[int, typer.Option(min=0, help="Sequence number of the last entry that still counts.")],
    reason: Annotated[str, typer.Option(help="Why; people read it in the log.")],
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Forget what was learned after a point of the log. The entries stay in it; reporting goes on."""
    import secrets

    from interfere.records import Rollback

    _send(
        (Rollback(observation_id=f"rollback-{secrets.token_hex(8)}", to_sequence=to, reason=reason),),
        target,
        as_json=as_json,
    )


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder of the table.")],
    store: Annotated[Path | None, typer.Option(help="SQLite file of the store. Default: WORK/store.db.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder whose profiles fill in missing ones.")] = None,
    work: Annotated[Path | None, typer.Option(help="Workspace. Default: ./interfere-work.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """What was observed as a table to train on: interfere train --data DIR. The server may go on meanwhile."""
    from interfere.config import load_settings
    from interfere.data.tables import write_table
    from interfere.errors import UnfitError
    from interfere.predict.model_profiles import shipped_profiles
    from interfere.store.observed_table import observed_table
    from interfere.store.sqlite import SqliteStore

    settings = load_settings(store=store, work=work)
    opened = SqliteStore(settings.store_path, read_only=True)
    try:
        observed = observed_table(opened, shipped_profiles(model) if model else (), name=out.resolve().name)
    finally:
        opened.close()
    if not observed.table.pairs:
        missing = ", ".join(observed.without_facts[:5])
        raise UnfitError(
            "nothing observed can become a table",
            value=settings.store_path,
            remedy=f"register profiles of {missing}, or give --model DIR" if missing else "report windows of pairs",
        )
    write_table(out, observed.table)
    document = {
        "table": str(out),
        "pairs": len(observed.table.pairs),
        "jobs": len(observed.table.jobs),
        "windows": observed.windows,
        "without_facts": list(observed.without_facts),
    }
    left = f"; left out for want of a profile: {', '.join(observed.without_facts)}" if observed.without_facts else ""
    emit(
        document,
        escape(f"{out}: {document['pairs']} pairs of {document['jobs']} jobs from {observed.windows} windows{left}"),
        as_json=as_json,
    )


def _send(observations: tuple[Any, ...], target: str | None, *, as_json: bool) -> None:
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.records import ObservationResult
    from interfere.wire.documents import answers_document

    settings = load_settings(target=target)
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        answers = client.observe(observations)
    table = Table("observation", "result", "why")
    for answer in answers:
        table.add_row(*map(escape, (answer.observation_id, answer.result.value, answer.reason)))
    emit(answers_document(answers), table, as_json=as_json)
    if any(answer.result is ObservationResult.REJECTED for answer in answers):
        raise typer.Exit(1)
