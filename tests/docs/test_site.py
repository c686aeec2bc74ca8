"""The documentation site: built without a warning, complete, and read without a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.links import ROOT, linked_paths, page_of, path_of, plain_fences, repository_pages, with_site_links


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a folder of its own. A warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "docs/site/mkdocs.yml"]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], capture_output=True, text=True, cwd=ROOT, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if "site" not in path.parts]
    assert len(pages) > 12
    assert [str(page) for page in pages if not (site / page.with_suffix(".html")).is_file()] == []


def test_no_page_fetches_anything_from_a_network(site: Path) -> None:
    """Links that a reader may follow are none of that; what a browser loads by itself is."""
    loading = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?https?:|<link\b[^>]*\bhref=[\"']?https?:")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 12
    assert [str(page.relative_to(site)) for page in pages if loading.search(page.read_text(encoding="utf-8"))] == []
    assert (site / "search" / "search_index.js").is_file()  # the index that pages read from a folder use


def test_a_link_out_of_docs_leads_to_a_page_of_the_site() -> None:
    text = "[contract](../serving/proto/interfere/v1/policy.proto), [slurm](../serving/adapters/slurm/README.md#use)\n"
    assert with_site_links(text, "docs/requests.md") == (
        "[contract](repository/serving/proto/interfere/v1/policy.proto.md), "
        "[slurm](repository/serving/adapters/slurm/README.md#use)\n"
    )
    assert with_site_links("[all](docs/commands.md)", "README.md") == "[all](../commands.md)"
    assert with_site_links('<img src="docs/a.svg">', "README.md") == '<img src="docs/a.svg">'  # no such file
    assert with_site_links('<img src="docs/pairing-dark.svg">', "README.md") == '<img src="../pairing-dark.svg">'
    assert with_site_links("[here](results.md#a) <https://a.b> [web](https://a.b/c)", "docs/index.md").startswith(
        "[here](results.md#a)"
    )


@pytest.mark.parametrize("text", ["```\n[a](../README.md)\n```\n", "[a](nowhere.md)", "[a](#anchor)", "[a](../../etc)"])
def test_code_and_what_is_no_file_of_the_repository_stay_as_they_are(text: str) -> None:
    assert with_site_links(text, "docs/index.md") == text
    assert linked_paths(text, "docs/index.md") == []


def test_pages_that_linked_pages_link_to_are_added_too() -> None:
    pages = repository_pages({"docs/a.md": "[slurm](../serving/adapters/slurm/README.md)"})
    assert "repository/serving/adapters/slurm/README.md" in pages
    assert "(files/prolog.sh)" in pages["repository/serving/adapters/slurm/files.md"]  # a folder lists its files
    assert not any(page_of(path_of(page)) != page for page in pages)


def test_names_of_code_blocks_are_for_tests_alone() -> None:
    assert plain_fences("```python report\nx = 1\n```\n") == "```python\nx = 1\n```\n"
    assert plain_fences("```text\n```python x y z\n") == "```text\n```python x y z\n"
