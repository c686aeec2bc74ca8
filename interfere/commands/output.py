"""Print what a command found: one JSON document on standard output with `--json`, else text; logs on standard error."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from interfere.reports.document import Document, Part
from interfere.reports.terminal import TerminalDocument
from interfere.strict_json import json_value

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def emit(facts: object, human: Document | Sequence[Part] | str, *, as_json: bool) -> None:
    """Print `facts` (with --json) or `human` (without) on standard output; lines of a text are never broken.

    `facts`: a record, or a mapping or list that may hold some, as `json_value` takes them.
    """
    if as_json:
        typer.echo(json.dumps(json_value(facts), indent=2))
    elif isinstance(human, str):
        out.print(human, soft_wrap=True)
    else:
        out.print(TerminalDocument(human))


def progress_note(text: str) -> None:
    """Print a line about the progress of a command on standard error."""
    err.print(text, style="dim", soft_wrap=True)


@contextmanager
def keeps_when_interrupted(what: str) -> Iterator[None]:
    """Tell whoever ends the block with Ctrl-C what is kept and how to go on: a note of the KeyboardInterrupt.

    Also a decorator of a command. The command line prints the first note of an interrupt, which is the innermost one.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(what)
        raise
