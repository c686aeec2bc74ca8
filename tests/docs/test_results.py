"""Figures of the documents: each names the run that printed it, and each run is a command that can be typed today."""

import datetime
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.docs.architecture_page import ROOT
from tests.docs.test_commands import find_command

MOST_WORDS = {"README.md": 900, "docs/results.md": 2500, "docs/results-more.md": 2500, "CHANGELOG.md": 400}
PAGES = ("docs/results.md", "docs/results-more.md", "docs/real-jobs.md")
RUNS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "docs" / "results.toml").read_text(encoding="utf-8"))
FIGURE = re.compile(r"\d*\.\d+|\d[\d,]* ?(?:%|×|ms|µs|s\b|h\b)")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    """Paragraphs, list items and tables of a page, in order; headings and code left out."""
    without_code = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    found = []
    for block in re.split(r"\n\s*\n", without_code):
        items = re.split(r"^(?=- )", block, flags=re.MULTILINE) if block.startswith("- ") else [block]
        found += [item.strip() for item in items if item.strip() and not item.startswith("#")]
    return found


def runs_of(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text)) & RUNS.keys()


def commands() -> Iterator[tuple[str, str]]:
    yield from ((name, command) for name, run in RUNS.items() for command in run["commands"])


@pytest.mark.parametrize("page", MOST_WORDS)
def test_a_page_is_short(page: str) -> None:
    assert len(text_of(page).split()) <= MOST_WORDS[page]


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_each_link_leads_to_a_file_and_a_heading_of_it(page: str) -> None:
    for target in re.findall(r"""(?:\]\(|src(?:set)?=")([^)"]+)""", text_of(page)):
        if not target.startswith("https://"):
            name, _, anchor = target.partition("#")
            path = (ROOT / page).parent / name
            assert path.exists(), target
            headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, target


@pytest.mark.parametrize("page", PAGES)
def test_each_table_names_its_run_in_itself_or_in_the_paragraph_beside_it(page: str) -> None:
    parts = blocks(page)
    for before, table, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        if table.startswith("|"):
            beside = [part for part in (before, after) if not part.startswith(("|", "- "))]
            assert runs_of(table) or any(map(runs_of, beside)), table


@pytest.mark.parametrize("page", PAGES)
def test_each_figure_in_the_text_names_its_run_in_the_same_paragraph_or_beside_the_table(page: str) -> None:
    parts = blocks(page)
    for before, paragraph in zip(["", *parts], parts, strict=False):
        words = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", paragraph)
        if not paragraph.startswith("|") and FIGURE.search(words) and "are in [" not in paragraph:
            assert runs_of(paragraph) or before.startswith("|"), paragraph


def test_each_run_is_named_by_a_page_and_says_what_it_needs_to_be_made_again() -> None:
    named = set().union(*(runs_of(text_of(page)) for page in (*PAGES, "README.md")))
    assert named == RUNS.keys()
    for name, run in RUNS.items():
        assert run.keys() - {"needs"} == {"commands", "date", "commit", "machine", "prints"}, name
        assert isinstance(run["date"], datetime.date), name
        assert re.fullmatch("[0-9a-f]{8}", run["commit"]), name


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_the_command_of_a_run_can_be_typed(name: str, command: str) -> None:
    words = [word for word in shlex.split(command) if not re.match("[A-Z_]+=", word)]
    match words:
        case ["interfere", *rest]:
            parsed, arguments = find_command(rest)
            _, unread, _ = parsed.make_parser(click.Context(parsed)).parse_args(arguments)
            assert unread == []
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case ["pytest", *options]:
            paths = [ROOT / word for word in options if word.startswith("tests/")]
            assert paths
            assert all(map(Path.exists, paths))
            selected = options[options.index("-k") + 1] if "-k" in options else ""
            code = "".join(path.read_text(encoding="utf-8") for path in paths)
            assert all(word in code for word in re.findall(r"\w+", selected) if word not in {"and", "or", "not"})
        case ["make", target]:
            assert re.search(rf"^{target}:", text_of("Makefile"), re.MULTILINE)
        case _:
            pytest.fail(f"{name}: neither interfere, python -m, pytest nor make: {command}")


def test_the_law_finds_what_it_is_for() -> None:
    """A table without a run, and a figure without one, are found in a page that has both."""
    assert all(map(FIGURE.search, ("covers 91 %", "errs by .040", "takes 0.30 s", "1.41 × here")))
    assert not FIGURE.search("two of the traces")
    assert runs_of("errs by .040 (`public-tables`)") == {"public-tables"}
    assert runs_of("errs by .040 (`no-such-run`)") == set()
