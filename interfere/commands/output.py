"""What every command prints: one JSON document on standard output with `--json`, else text; logs on standard error."""

import json
import math
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def jsonable(value: Any) -> Any:
    """NaN and infinities become null, tuples lists: strict JSON only."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def emit(document: dict[str, Any] | list[Any], human: Table | Group | str, *, as_json: bool) -> None:
    """Print `document` (with --json) or `human` (without) on standard output; lines of a text are never broken."""
    if as_json:
        typer.echo(json.dumps(jsonable(document), indent=2))
    else:
        out.print(human, soft_wrap=isinstance(human, str))


def progress_note(text: str) -> None:
    """A line about what is going on, on standard error."""
    err.print(text, style="dim", soft_wrap=True)
