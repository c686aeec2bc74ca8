"""docs/troubleshooting.md quotes errors as the program prints them."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.architecture_page import ROOT
from tests.structure import source_files

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
VARIES = "…"


def texts(node: ast.AST) -> Iterator[str]:
    """Every text in a syntax tree; what an f-string computes is `…`, and a choice between two texts is both."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        written = [""]
        for part in node.values:
            choices = [VARIES]
            if isinstance(part, ast.Constant):
                choices = [str(part.value)]
            elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.IfExp):
                choices = [
                    str(ast.literal_eval(each)) for each in (part.value.body, part.value.orelse) if _is_text(each)
                ]
            written = [before + choice for before in written for choice in choices or [VARIES]]
        yield from written
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.fixture(scope="module")
def printed() -> str:
    """All texts of the program, one a line."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in source_files())
    return "\n".join(" ".join(text.split()) for tree in trees for text in texts(tree))


def test_the_page_has_the_errors_of_all_parts() -> None:
    assert len(QUOTED) > 50
    assert len(set(QUOTED)) == len(QUOTED)


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_error_is_one_that_the_program_raises(quoted: str, printed: str) -> None:
    pattern = ".{0,80}".join(re.escape(part) for part in quoted.split(VARIES))
    assert re.search(pattern, printed)
