"""docs/architecture.md says what is there: its layers are the enforced ones, its files and functions exist."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.architecture_page import ROOT, layers, quoted, walk_rows
from tests.structure import source_files

WALK = walk_rows()


def contract_layers(container: str) -> list[set[str]]:
    """The layers that import-linter enforces inside a package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [c for c in contracts if c["type"] == "layers" and c.get("containers", []) == [container]]
    return [set(re.split(r"\s\|\s", layer)) for layer in contract["layers"]]


def definitions(path: Path) -> set[str]:
    """Names of the functions, classes and top-level values of a file; `Class.method` for methods."""
    return set(_definitions(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize(("name", "container"), [("interfere", "interfere"), ("training", "interfere.training")])
def test_the_layers_are_those_that_are_enforced(name: str, container: str) -> None:
    assert layers(name) == contract_layers(container)


@pytest.mark.parametrize(("files", "names"), WALK, ids=[f"{k}-{files[0]}" for k, (files, _) in enumerate(WALK)])
def test_every_file_of_the_walk_defines_the_names_beside_it(files: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert [file for file in files if not (ROOT / file).is_file()] == []
    defined = set().union(*(definitions(ROOT / file) for file in files))
    assert set(names) - defined == set()


def test_the_walk_has_its_three_parts() -> None:
    """Guards the reader of the tables: the request, its stages and the training together have so many rows."""
    assert len(WALK) > 40
    assert {files[0] for files, _ in WALK} >= {
        "interfere/client/policy_client.py",
        "interfere/policy/decide.py",
        "interfere/matching/search.py",
        "training/pipeline.py",
    }


def test_every_path_and_function_in_the_text_exists() -> None:
    defined = set().union(*(definitions(path) for path in source_files()))
    defined |= {name.rpartition(".")[2] for name in defined}  # a method may stand without its class
    paths = [text for text in quoted() if "/" in text and re.fullmatch(r"[\w./-]+", text)]
    assert len(paths) > 60
    assert [path for path in paths if not (ROOT / path).exists()] == []
    functions = [text for text in quoted() if re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", text) and "_" in text]
    unknown = [name for name in functions if name not in defined and not (ROOT / name).exists()]
    assert unknown == []


def test_the_stages_are_those_that_decide_numbers() -> None:
    source = (ROOT / "interfere" / "policy" / "decide.py").read_text(encoding="utf-8")
    numbered = {int(number) for number in re.findall(r"^    # (\d+)\. ", source, re.MULTILINE)}
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"The stages of `decide`:\n\n(.*?)\n\n", text, re.DOTALL)
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == numbered
