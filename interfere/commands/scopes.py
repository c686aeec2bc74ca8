"""List a server's scopes and decisions, or forget a scope."""

from typing import Annotated

import typer
from rich.markup import escape

from interfere.commands.options import DEFAULT_WORK, Scope, StoreFile, Target, Work, connect
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Part, Sentence, text_table

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def scopes() -> None:
    """Look after the scopes of a server: list them and their decisions, forget one whose clock was wrong."""


@app.command("list")
def list_scopes(target: Target = None, as_json: JsonFlag = False) -> None:
    """List the scopes that a server has decided in with a clock, and what it keeps for each."""
    from interfere.records.documents import to_document

    with connect(target) as client:
        listed = client.scopes()
    rows = (
        (each.scope, f"{each.now_s:.15g}", *map(str, (each.promises, each.accepted_deadlines, each.grants)))
        for each in listed.scopes
    )
    columns = ("scope", "its clock, s", "promised starts", "deadlines", "grants")
    page: list[Part] = (
        [text_table("scopes of the server", columns, rows)] if listed.scopes else [Sentence("no scope has a clock")]
    )
    emit(to_document(listed), page, as_json=as_json)


@app.command()
def show(
    scope: Scope = "default",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Show who is where in a scope and who shares a device, and who waits and why, as of its newest decision."""
    from interfere.dashboard.decision_parts import state_parts
    from interfere.records.documents import to_document

    with connect(target) as client:
        state = client.scope(scope)
    emit(to_document(state), state_parts(state), as_json=as_json)


@app.command()
def decisions(
    scope: Scope = "default",
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """List the newest decisions of a server in a scope: how many jobs started and waited, and why.

    The ids are those that explain takes. The server keeps the newest 1,000 decisions of all scopes.
    """
    from interfere.dashboard.decision_parts import decisions_parts
    from interfere.records.documents import to_document

    with connect(target) as client:
        listed = client.decisions(scope=scope, limit=limit)
    emit(to_document(listed), decisions_parts(listed), as_json=as_json)


@app.command()
def reset(
    scope: Scope,
    store: StoreFile = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Forget the clock, the promises, the accepted deadlines, the grants and the stored decisions of one scope.

    For a scope whose clock jumped: its next snapshot may have any time. Works while the server runs. Jobs that run keep
    running; planned starts that were not carried out yet are planned anew.
    """
    from interfere.config import load_settings
    from interfere.store.store import reset_scope

    settings = load_settings(None, store=store, work=work)
    path = settings.store_address
    forgotten = reset_scope(path, scope)
    document = {
        "scope": scope,
        "store": str(path),
        "now_s": forgotten.now_s,
        "promises": len(forgotten.promises),
        "accepted_deadlines": len(forgotten.accepted_deadlines),
        "grants": len(forgotten.grants),
    }
    counts = (f"{document[name]} {name.replace('_', ' ')}" for name in ("promises", "accepted_deadlines", "grants"))
    text = f"scope {scope} of {path}: forgot its clock ({forgotten.now_s:.15g} s), {', '.join(counts)}"
    emit(document, escape(text), as_json=as_json)
