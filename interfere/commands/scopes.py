"""Look after the scopes of a server's store: forget one whose clock was wrong."""

from typing import Annotated

import typer
from rich.markup import escape

from interfere.commands.options import DEFAULT_WORK, StoreFile, Work
from interfere.commands.output import JsonFlag, emit

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def scopes() -> None:
    """Look after the scopes of a server's store: forget one whose clock was wrong."""


@app.command()
def reset(
    scope: Annotated[str, typer.Argument(help="Cluster or partition, as in the snapshots sent to match.")],
    store: StoreFile = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Forget the clock, the promises, the accepted deadlines, the grants and the stored decisions of one scope.

    For a scope whose clock jumped: its next snapshot may have any time. Works while the server runs. Jobs that run keep
    running; planned starts that were not carried out yet are planned anew.
    """
    from interfere.config import load_settings
    from interfere.store.sqlite import reset_scope

    settings = load_settings(None, store=store, work=work)
    path = settings.store or settings.work / "store.db"
    forgotten = reset_scope(path, scope)
    document = {
        "scope": scope,
        "store": str(path),
        "now_s": forgotten.now_s,
        "promises": len(forgotten.promises),
        "accepted_deadlines": len(forgotten.accepted_deadlines),
        "grants": len(forgotten.grants),
    }
    counts = f"{document['promises']} promises, {document['accepted_deadlines']} accepted deadlines"
    text = f"scope {scope} of {path}: forgot its clock ({forgotten.now_s:g} s), {counts}, {document['grants']} grants"
    emit(document, escape(text), as_json=as_json)
