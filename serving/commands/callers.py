"""Add, renew, list or remove the callers that may ask a server."""

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.errors import NotFoundError
from interfere.file_writing import write_text
from interfere.reports.document import text_table

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
CallersFile = Annotated[Path, typer.Option("--file", help="The file that `serve --callers` reads.")]
Name = Annotated[str, typer.Argument(help="Name of the caller; its reports carry it.")]
Entries = dict[str, dict[str, list[str]]]
TOKEN_BYTES = 32


@app.callback()
def callers() -> None:
    """The callers that may ask a server, and their roles. The file holds hashes of tokens, never a token."""


@app.command()
def add(
    name: Name,
    file: CallersFile = Path("callers.toml"),
    role: Annotated[
        list[str] | None, typer.Option(help="predict, read, report, decide or operate (repeatable).")
    ] = None,
    scope: Annotated[list[str] | None, typer.Option(help="Scope of the roles (repeatable). Default: all.")] = None,
    certificate: Annotated[
        list[str] | None, typer.Option(help="Name in a client certificate, such as a SPIFFE id, in place of a token.")
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Subject of an issuer's tokens, such as system:serviceaccount:NAMESPACE:NAME."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File to write the new token to. Default: printed once.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a caller with a new token; of a known caller, add one more token, so that the old one can be removed later.

    A running server reads the file again by itself.
    """
    entries = _entries(file)
    entry = entries.setdefault(name, {"roles": []})
    entry["roles"] = sorted({*entry["roles"], *(role or ())})
    if scope:
        entry["scopes"] = sorted({*entry.get("scopes", ()), *scope})
    token = ""
    for kind, names in (("certificates", certificate), ("subjects", subject)):
        if names:
            entry[kind] = sorted({*entry.get(kind, ()), *names})
    if not certificate and not subject:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        entry["sha256"] = [*entry.get("sha256", ()), hashlib.sha256(token.encode()).hexdigest()]
    _write(file, entries)
    if token and token_file is not None:
        descriptor = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(token + "\n")
    shown = token if token_file is None else ""
    document = {"name": name, "file": str(file), "roles": entry["roles"], "scopes": entry.get("scopes", [])}
    emit(
        document | ({"token": shown} if shown else {}), shown or f"{name}: {', '.join(entry['roles'])}", as_json=as_json
    )
    if token:
        where = f"INTERFERE_TOKEN_FILE={token_file or 'FILE'}"
        progress_note(f"the caller sends it with {where}; the server is started with --callers {file}")


@app.command(name="list")
def list_callers(file: CallersFile = Path("callers.toml"), as_json: JsonFlag = False) -> None:
    """List the callers with their roles, scopes and number of tokens."""
    entries = _entries(file)
    rows = []
    for name, entry in sorted(entries.items()):
        scopes, tokens = ", ".join(entry.get("scopes", ())) or "all", str(len(entry.get("sha256", ())))
        rows.append((name, ", ".join(entry["roles"]), scopes, tokens))
    emit({"callers": entries}, [text_table("", ("caller", "roles", "scopes", "tokens"), rows)], as_json=as_json)


@app.command()
def remove(
    name: Name,
    file: CallersFile = Path("callers.toml"),
    old_tokens: Annotated[
        bool, typer.Option("--old-tokens", help="All but its newest token; the caller stays.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove a caller, or its old tokens."""
    entries = _entries(file)
    if name not in entries:
        raise NotFoundError("no such caller", value=name, remedy=f"one of {', '.join(sorted(entries)) or 'none'}")
    if old_tokens:
        entries[name]["sha256"] = entries[name].get("sha256", [])[-1:]
    else:
        del entries[name]
    _write(file, entries)
    emit({"name": name, "removed": "old tokens" if old_tokens else "caller"}, f"removed: {name}", as_json=as_json)


def _entries(file: Path) -> Entries:
    """Return the callers of a file; none where it does not exist yet. Raises InvalidInputError."""
    from interfere.serving.calls.access import read_callers

    return read_callers(file)[1] if file.exists() else {}


def _write(file: Path, entries: Entries) -> None:
    """Write the file whole, after it was checked as a server checks it."""
    from interfere.serving.calls.access import check_callers

    check_callers(file, entries)
    lines = []
    for name, entry in sorted(entries.items()):
        lines.append(f"[callers.{json.dumps(name)}]")
        lines += [f"{key} = {json.dumps(values)}" for key, values in entry.items() if values]
        lines.append("")
    write_text(file, "\n".join(lines))
