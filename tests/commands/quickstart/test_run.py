"""Runs of quickstart over injected measurements: whatever could not be measured, they end with everything they owe."""

import io
import math
import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from interfere.commands.quickstart.command import RunFolder, RunSettings, run_quickstart
from interfere.commands.quickstart.document import Findings, quickstart_document
from interfere.commands.quickstart.pairings import (
    Direction,
    Verdict,
    all_pairs,
    choose_held_out,
    choose_random_pairing,
    directions,
)
from interfere.reports.html_page import html_page
from interfere.reports.terminal import TerminalDocument
from tests.commands.quickstart.injected import NAMES, PAIRING, InjectedStages, true_slowdowns

EVERY = directions(all_pairs(NAMES))
SETTINGS = RunSettings(workloads=NAMES)
some = st.sets(st.sampled_from(EVERY))
subsets = st.one_of(st.just(frozenset(EVERY)), some, some.map(lambda few: frozenset(EVERY) - few))


def run(stages: InjectedStages, work: Path) -> tuple[Findings, str, str]:
    """Findings, page and printed text of a run."""
    folder = RunFolder(work / "runs", (work / "tables",), SETTINGS)
    pages: list[str] = []
    findings = run_quickstart(
        stages, folder, SETTINGS, lambda found: pages.append(html_page(quickstart_document(found)))
    )
    folder.finish(findings.document())
    text = io.StringIO()
    Console(file=text, width=100).print(TerminalDocument(quickstart_document(findings)))
    assert len(pages) == 2, "one page from shipped data, one of the run"
    return findings, pages[-1], " ".join(text.getvalue().split())


@settings(max_examples=40)
@given(unstable_first=subsets, unstable_again=subsets)
def test_whatever_is_unstable_the_run_ends_with_all_it_owes(
    unstable_first: Collection[Direction], unstable_again: Collection[Direction]
) -> None:
    with tempfile.TemporaryDirectory() as work:
        stages = InjectedStages(unstable_first=unstable_first, unstable_again=unstable_again)
        findings, page, text = run(stages, Path(work))
    # Page, comparison, champion, online line.
    assert "Which jobs should share a core?" in page
    assert "champion: gbdt, version v1" in text
    assert "observations applied" in text
    assert len(findings.comparisons) == 3
    assert all(comparison.text()[:20].lower() in text.lower() for comparison in findings.comparisons)
    # Every figure is a number, and inside its interval.
    for table_row in findings.rows:
        for score in (table_row.predicted, table_row.measured):
            assert score.mean_slowdown.lower <= score.mean_slowdown.value <= score.mean_slowdown.upper
            assert math.isfinite(score.worst_victim + score.past_cap)
    # Nothing that was measured is lost, nothing that was not is claimed.
    random_mean = findings.rows[2]
    assert random_mean.slowdowns == len(EVERY)
    assert set(random_mean.stand_ins) == set(unstable_first)
    if unstable_first:
        assert f"{len(EVERY) - len(unstable_first)} of {len(EVERY)} slowdowns were measured." in text
    applied = [pair for pair in directions(PAIRING) if pair not in unstable_again]
    assert findings.learning["observations"] == len(applied)
    trained = "train without measured" if len(unstable_first) == len(EVERY) else "train with measured"
    assert trained in stages.calls


def test_everything_measured_needs_no_stand_in_and_has_narrow_intervals(tmp_path: Path) -> None:
    findings, page, text = run(InjectedStages(), tmp_path)
    assert not any(table_row.stand_ins for table_row in findings.rows)
    assert "stand in" not in text
    random_mean = findings.rows[2].measured.mean_slowdown
    assert random_mean.value == pytest.approx(sum(true_slowdowns().values()) / len(EVERY))
    assert "online: 8 of 8 observations applied; error on the chosen pairs 0.0% before, 0.0% after" in text
    assert "bert-infer shares a core with bert-serve" in text
    assert "<svg" in page


def test_a_comparison_is_over_the_same_pairs_for_both_sides(tmp_path: Path) -> None:
    """The cheap pairs of the chosen side were lost, and once those left told the opposite of the truth."""
    truth = dict.fromkeys(EVERY, 1.6) | dict.fromkeys(directions(PAIRING), 1.2)
    truth |= {PAIRING[0]: 2.0, PAIRING[0][::-1]: 2.0}
    lost = set(directions(PAIRING[1:]))
    findings, _, _ = run(
        InjectedStages(truth=truth, predicted=truth, unstable_first=lost, unstable_again=lost), tmp_path
    )
    assert findings.comparisons[0].difference.value == pytest.approx(1.4 - (48 * 1.6 + 6 * 1.2 + 2 * 2.0) / 56)
    assert findings.comparisons[0].verdict is not Verdict.WORSE


@pytest.mark.parametrize(
    "ends_in", ["measure_all", "train with measured", "serve models/champion", "measure_pairs", "observe"]
)
def test_a_killed_run_goes_on_and_a_finished_one_starts_anew(tmp_path: Path, ends_in: str) -> None:
    killed = InjectedStages(ends_in=ends_in)
    with pytest.raises(KeyboardInterrupt):
        run(killed, tmp_path)
    (tmp_path / "tables").mkdir()  # what had been measured
    second = InjectedStages()
    run(second, tmp_path)
    assert (tmp_path / "tables").is_dir()
    once = [name for name in killed.calls[:-1] if name.startswith(("train", "serve"))]
    assert not set(once) & {name for name in second.calls if name.startswith(("train", "serve cpu"))}
    third = InjectedStages()
    run(third, tmp_path)
    assert not (tmp_path / "tables").exists()
    assert "train with measured" in third.calls


def test_measurements_too_noisy_to_learn_from_are_compared_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = InjectedStages(too_noisy=True)
    findings, _, text = run(stages, tmp_path)
    assert stages.calls.count("train without measured") == 1
    assert not findings.rows[0].stand_ins
    assert "its passes disagree" in capsys.readouterr().err
    assert "Predictions rest on the table that ships with interfere." in text


def test_other_settings_start_anew(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    RunFolder(tmp_path / "runs", (tmp_path / "tables",), SETTINGS).once("train", lambda: {"model": "gbdt"})
    other = RunSettings(workloads=NAMES, seed=1)
    assert not RunFolder(tmp_path / "runs", (tmp_path / "tables",), other).folder.joinpath("train.json").exists()
    assert not (tmp_path / "tables").exists()


def test_without_a_core_to_pin_every_figure_is_of_the_shipped_table(tmp_path: Path) -> None:
    stages = InjectedStages(reason="no core can be pinned")
    findings, page, _ = run(stages, tmp_path)
    assert not any(name.startswith("measure") for name in stages.calls)
    assert "no core can be pinned" in page
    assert findings.document()["why_not_measured"] == "no core can be pinned"
    assert not findings.learning
    assert not findings.comparisons[0].chosen_run_again


def test_no_line_speaks_of_what_only_its_authors_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, page, text = run(InjectedStages(unstable_first=EVERY[:5]), tmp_path)
    body = page.partition("</style>")[2]
    for line in (capsys.readouterr().err, text, body):
        for word in ("campaign", "stack", "trusted"):
            assert word not in line
    assert " rows" not in text


def test_each_stage_prints_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(InjectedStages(), tmp_path)
    headings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert [line[:5] for line in headings] == [f"[{k}/6]" for k in range(1, 7)]
    assert all(" left" in line for line in headings)


def test_the_report_says_what_was_measured_and_what_disturbed_it(tmp_path: Path) -> None:
    findings, page, text = run(InjectedStages(), tmp_path)
    assert page.count('<td class="number">10</td>') == 28, "the page lists every disturbed pair"
    document = findings.document()
    assert document["measured_here"] is True
    assert len(document["disturbed"]) == 28
    assert document["disturbed"][0]["share_of_core"] == pytest.approx(0.1)
    assert "Other programs took more than 3 % of the core beside 28 of 28 pairs" in text


def test_a_third_of_the_pairs_is_held_out_by_the_seed() -> None:
    assert len(choose_held_out(NAMES, 0)) == 9
    assert choose_held_out(NAMES, 0) == choose_held_out(NAMES, 0)
    assert len({choose_random_pairing(NAMES, seed) for seed in range(20)}) > 1
