"""The page of the command line, from the help texts of the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docs.site.reference.markdown import code, plain, table
from interfere.cli import PURPOSES, load_command, registered_commands

INTRODUCTION = """# Command line

Every command of the installed package with its options, as its `--help` says it. [Commands](../commands.md) shows them
at work.
"""


def commands_page() -> str:
    """Return the page: the commands under what people come for, then those under no purpose."""
    commands = {name: load_command(entry) for name, entry in registered_commands().items()}
    listed = {name for names in PURPOSES.values() for name in names}
    purposes = {**PURPOSES, "More": tuple(name for name in commands if name not in listed)}
    parts = [INTRODUCTION]
    for purpose, names in purposes.items():
        present = [name for name in names if name in commands]
        parts += [f"## {purpose}\n"] if present else []
        for name in present:
            parts += _sections(commands[name], f"interfere {name}", level=3)
    return "\n".join(parts)


def _sections(command: Any, name: str, level: int) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands."""
    context = command.context_class(command, info_name=name)
    yield f"{'#' * level} {name}\n"
    if not (subcommands := getattr(command, "commands", None)):
        yield f"```text\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```\n"
    if command.help:
        yield re.sub(r"(?<=\S) *\n(?=\S)", " ", inspect.cleandoc(command.help).replace("\b\n", "")) + "\n"
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    rows = [(code(option), plain(text)) for option, text in records if not option.startswith("--help")]
    if rows:
        yield table(("option or argument", "meaning"), rows)
    for subcommand, inner in (subcommands or {}).items():
        yield from _sections(inner, f"{name} {subcommand}", min(level + 1, 5))
