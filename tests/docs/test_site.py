"""The documentation site: built without a warning, complete, read without a network; its reference pages leave nothing
out, and its figures show what the code says.
"""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import interfere
from docs.site import figures
from docs.site.docstrings import comment_of, fenced
from docs.site.links import ROOT, linked_paths, page_of, path_of, plain_fences, repository_pages, with_site_links
from docs.site.reference import REFERENCE_PAGES
from docs.site.reference.markdown import plain, table
from interfere.cli import PURPOSES, load_command, registered_commands
from interfere.config import Settings
from interfere.reports import document as doc
from interfere.serving.metrics import Metrics
from interfere.v1 import policy_pb2
from tests.reports.html_tree import Tree

pytestmark = pytest.mark.timeout(1800)  # a build takes 12 s of one core, and longer on a busy machine


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


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The reference pages as Markdown."""
    return {name: write() for name, write in REFERENCE_PAGES.items()}


def test_every_command_and_every_option_is_on_the_page_of_the_command_line(reference: dict[str, str]) -> None:
    page = reference["reference/commands.md"]
    for name, entry in registered_commands().items():
        command = load_command(entry)
        unread = [(f"interfere {name}", command)]
        while unread:
            full_name, command = unread.pop()
            assert re.search(rf"^#+ {re.escape(full_name)}$", page, re.MULTILINE), full_name
            unread += [(f"{full_name} {sub}", each) for sub, each in (getattr(command, "commands", None) or {}).items()]
    for option in (option for each in load_command(registered_commands()["serve"]).params for option in each.opts):
        assert option.startswith("--help") or f"`{option}" in page
    assert all(f"## {purpose}\n" in page for purpose in PURPOSES)


def test_every_rpc_message_field_and_enum_value_is_on_the_page_of_the_contract(reference: dict[str, str]) -> None:
    page, file = reference["reference/contract.md"], policy_pb2.DESCRIPTOR
    (service,) = file.services_by_name.values()
    assert len(service.methods) > 20
    for rpc in service.methods:
        assert re.search(rf"\| `{rpc.name}` \| \S.* \| \[{rpc.input_type.name}\]\(#", page), rpc.name
    for message in file.message_types_by_name.values():
        section = page.partition(f"\n### {message.name}\n")[2].partition("\n### ")[0]
        assert [f.name for f in message.fields if f"| `{f.name}` | {f.number} |" not in section] == [], message.name
    for enum in file.enum_types_by_name.values():
        section = page.partition(f"\n### {enum.name}\n")[2].partition("\n### ")[0]
        assert [v.name for v in enum.values if f"| `{v.name}` | {v.number} |" not in section] == [], enum.name
    anchors = {name.lower().replace(".", "") for name in re.findall(r"^### (\S+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= anchors  # every type that a field names has its section


def test_every_metric_and_alert_is_on_the_page_of_metrics(reference: dict[str, str]) -> None:
    page = reference["reference/metrics.md"]
    for family in Metrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert re.search(rf"\| `{name}` \| {family.type} \|", page), name
    assert "| `interfere_actions_total` | counter | `action`, `rule` |" in page
    rules = (ROOT / "deploy" / "prometheus" / "interfere-rules.yaml").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) > 5
    assert [alert for alert in alerts if f"| `{alert}` |" not in page] == []
    assert "`interfere_slurm_edits_total`" in page
    assert "`interfere_kubernetes_gated_pods`" in page


def test_every_setting_and_every_public_name_has_its_place(reference: dict[str, str]) -> None:
    settings = reference["reference/settings.md"]
    assert [name for name in Settings.__dataclass_fields__ if f"| `{name}` |" not in settings] == []
    python = reference["reference/python.md"]
    names = [name for name in interfere.__all__ if name != "__version__"]
    assert [name for name in names if f".{name}\n" not in python] == []
    assert "::: interfere.records.predictions.PairAnswer" in reference["reference/records.md"]
    assert "::: interfere.testing.stores" in reference["reference/testing.md"]


def test_a_record_shows_its_fields_with_the_comments_of_the_source(site: Path) -> None:
    page = unescape((site / "reference" / "python.html").read_text(encoding="utf-8"))
    assert "the job's own slowdown cap, on the quantile 1 - risk of the limits" in page
    source = ["# Above it,", "# in two lines.", "x: int = 1  # and behind", "y = 2"]
    assert comment_of(source, 2) == "Above it, in two lines. and behind"
    assert comment_of(source, 3) == ""
    assert fenced("Text.\n\n>>> 1 + 1\n2\n\nMore.") == "Text.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


def test_texts_in_tables_stay_texts() -> None:
    assert plain("a * b <c> [d]\n  `e * f`") == r"a \* b &lt;c> \[d] `e * f`"
    assert table(("x",), [("a | b",)]) == "| x |\n| --- |\n| a \\| b |\n"


def test_every_page_that_names_a_figure_shows_it(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    asked = [(path, name) for path, text in pages.items() for name in re.findall(r"^```figure (\S+)$", text, re.M)]
    assert {name for _, name in asked} == set(figures.FIGURES)
    for path, _ in asked:
        page = (site / path.relative_to(ROOT / "docs").with_suffix(".html")).read_text(encoding="utf-8")
        assert '<div class="report"' in page
        assert "```figure" not in page


def test_the_belief_narrows_and_ends_at_what_was_measured() -> None:
    windows, predicted = figures.belief_of_new_job()
    widths = [high / low for _, low, high in predicted]
    of_pair = [neighbour for neighbour, _ in windows].index(figures.ASKED)
    assert widths[of_pair] < widths[0]  # windows of other pairs of the job teach something
    assert widths[-1] < widths[of_pair]  # its own windows teach more
    measured = windows[-1][1]
    assert predicted[-1][1] < measured < predicted[-1][2]
    assert abs(predicted[-1][0] - measured) < abs(predicted[0][0] - measured)


def test_no_pairing_costs_less_than_the_bound_and_the_matching_meets_it() -> None:
    (plot,) = figures.matching_with_bound()
    assert isinstance(plot, doc.RowPlot)
    every, greedy, matching = plot.rows
    ((bound, _),) = plot.axis.lines
    costs = [estimate.value for estimate in every.values[0]]
    assert len(costs) == 105  # 8! / (4! · 2⁴)
    assert min(costs) == pytest.approx(bound) == pytest.approx(matching.values[1][0].value)
    assert min(costs) <= greedy.values[1][0].value <= max(costs)


def test_the_plan_starts_every_job_once_and_no_device_has_more_than_two() -> None:
    (lanes,) = figures.plan_over_time()
    assert isinstance(lanes, doc.Lanes)
    boxes = [box for lane in lanes.lanes for box in lane.boxes]
    assert sorted(box.text for box in boxes) == sorted(figures.RUN_TIMES_S)
    assert {box.series for box in boxes} == {0, 1}  # some start now, some later
    for lane in lanes.lanes:
        for moment in (box.start for box in lane.boxes):
            assert sum(box.start <= moment < box.end for box in lane.boxes) <= 2


def test_layers_are_drawn_as_boxes_with_their_remarks() -> None:
    root = Tree(figures.with_figures("```layers x\na | b  what `they` are\nc\n```\n")).root
    assert [box.text for box in root.all("span", "package")] == ["a", "b", "c"]
    assert [piece.text for piece in root.all("code")] == ["they"]
    assert "inside x" in root.words
    with pytest.raises(KeyError):
        figures.with_figures("```figure no-such-figure\nA caption.\n```")


def test_the_styles_of_figures_touch_nothing_else() -> None:
    styles = figures.figure_styles()
    outside = re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}", "", styles)
    assert set(outside.split()) == {".report", "[data-md-color-scheme=slate]"}
    assert "--u8:" in styles
    assert ".heat" in styles
