"""Every command line in README and docs is one that the program takes: its commands and options exist."""

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator

import click
import pytest
import typer

from tests.docs.architecture_page import ROOT

PAGES = (
    "README.md",
    "docs/commands.md",
    "docs/requests.md",
    "docs/operations.md",
    "docs/gpu.md",
    "docs/own-tables.md",
    "docs/benchmark.md",
    "docs/monitoring.md",
    "docs/whatif.md",
    "docs/architecture.md",
    "docs/troubleshooting.md",
    "docs/faq.md",
    "docs/release.md",
    "CONTRIBUTING.md",
)


def command_lines() -> Iterator[tuple[str, str]]:
    """(page, line) of everything in a shell block that starts with `interfere`."""
    for name in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL):
            yield from ((name, line) for line in block.splitlines() if line.startswith("interfere "))


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and the words after its name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    first, *rest = words
    module, _, attribute = settings["project"]["entry-points"]["interfere.commands"][first].partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
    while subcommands := getattr(command, "commands", None):
        command, rest = subcommands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize(("name", "line"), list(command_lines()))
def test_a_documented_command_line_is_parsed(name: str, line: str) -> None:
    command, arguments = find_command(shlex.split(line, comments=True)[1:])
    parser = command.make_parser(click.Context(command))
    _, unread, _ = parser.parse_args(arguments)  # raises on an unknown option
    assert unread == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_in_the_text_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    named = {*re.findall(r"`make ([a-z]+)", text), *re.findall(r"^make ([a-z]+)", blocks, re.MULTILINE)}
    assert named - targets == set()
