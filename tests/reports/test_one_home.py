"""How reports look is said in interfere/reports alone: no tag, style or column width in a string anywhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import ROOT, source_files

HOME = "interfere/reports/"
# Named groups of regular expressions, (?P<name>...), are no tags.
TAG = re.compile(r"(?<!\?P)</?[a-z][a-z0-9-]*(\s[^<>]*)?/?>|&(lt|gt|amp|quot|nbsp);")
STYLE = re.compile(
    r"(?:^|[;{\"'])\s*(color|background|stroke|fill|width|height|font-size|margin|padding|display)\s*:\s*\S"
)
RULE = re.compile(r"\|\s*:?-{3,}")  # of a table in Markdown
WIDTH = re.compile(r"^(.?[<>^])?0?[1-9]\d*(\.\d+)?[a-z%]?$")  # a width in a format specification: 24, >9, <12.3f
ZERO_PADDED = re.compile(r"^0\d")  # digits of a number, not a column
TERMINAL_TABLES = {"rich.table", "rich.columns", "rich.markdown"}


def faults(path: Path) -> list[str]:
    """What a module says of how something looks."""
    return list(_faults(ast.parse(path.read_text(encoding="utf-8"))))


def _faults(tree: ast.AST) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from (
                f"{node.lineno}: {each.group()}" for rule in (TAG, STYLE, RULE) if (each := rule.search(node.value))
            )
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            text = "".join(str(part.value) for part in node.format_spec.values if isinstance(part, ast.Constant))
            if WIDTH.match(text) and not ZERO_PADDED.match(text):
                yield f"{node.lineno}: width {text}"
        if isinstance(node, ast.ImportFrom) and node.module in TERMINAL_TABLES:
            yield f"{node.lineno}: {node.module}"


def test_no_other_module_says_how_something_looks() -> None:
    found = {path.relative_to(ROOT).as_posix(): faults(path) for path in source_files()}
    assert {name: each for name, each in found.items() if each and not name.startswith(HOME)} == {}


@pytest.mark.parametrize(
    "line",
    [
        "x = '<p class=\"dim\">'",
        "x = f'</{name}><td>{y}</td>'",
        "x = 'color: red'",
        "x = '|---|---|'",
        "x = f'{name:24} {n:>9}'",
        "from rich.table import Table",
    ],
)
def test_the_finder_finds(line: str) -> None:
    assert list(_faults(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ['"""<p>"""', "x = r'(?P<job>.+)'", "x = f'{x:.2f} {y:+.1f} {z:,.0f} {k:02d}'", "x = 'a < b > c'"]
)
def test_the_finder_spares(line: str) -> None:
    assert not list(_faults(ast.parse(line)))
