"""Print what a command found: one JSON document on standard output with `--json`, else text; logs on standard error."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table

from interfere.reports.terminal import TerminalDocument
from interfere.strict_json import json_value

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def emit(document: dict[str, Any] | list[Any], human: TerminalDocument | Table | Group | str, *, as_json: bool) -> None:
    """Print `document` (with --json) or `human` (without) on standard output; lines of a text are never broken."""
    if as_json:
        typer.echo(json.dumps(json_value(document), indent=2))
    else:
        out.print(human, soft_wrap=isinstance(human, str))


def progress_note(text: str) -> None:
    """Print a line about the progress of a command on standard error."""
    err.print(text, style="dim", soft_wrap=True)
