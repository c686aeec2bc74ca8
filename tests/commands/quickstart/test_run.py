"""The parts of a quickstart that need no measurement: folders, draws, the report and what is printed of it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from interfere.commands.quickstart.command import _print_result
from interfere.commands.quickstart.comparison import DifferenceFromRandom, compare_pairings, comparison_row
from interfere.commands.quickstart.run import (
    QuickstartResult,
    choose_held_out,
    choose_random_pairing,
    prepare_run_folder,
)
from tests.commands.quickstart.test_pairings import NAMES, TABLE

CHOSEN = (("a", "b"), ("c", "d"))


def result(*, remeasured: bool) -> QuickstartResult:
    comparison = compare_pairings(NAMES, CHOSEN, TABLE, TABLE)
    if remeasured:
        comparison.append(comparison_row("chosen, run again", CHOSEN, TABLE, TABLE))
    counts = {"observations": 4, "applied": 4, "error_before": 0.25, "error_after": 0.125}
    return QuickstartResult(
        reason_not_measured="" if remeasured else "no core can be pinned",
        workloads=NAMES,
        held_out=(("a", "c"),),
        table=Path("tables/quickstart"),
        training={
            "model": "gbdt",
            "is_champion": True,
            "folder": "models",
            "scores": {"pair": {"gbdt": {"mae": 0.031, "mape": 4.5}}},
        },
        model_version="v1",
        decision={"status": "OPTIMAL"},
        comparison=tuple(comparison),
        difference=DifferenceFromRandom(value=-0.1, lower=-0.2, upper=-0.05),
        remeasured=remeasured,
        learning=counts if remeasured else {},
        seconds=1.0,
    )


@pytest.mark.parametrize("remeasured", [True, False])
def test_the_result_is_printed_whole(remeasured: bool) -> None:
    text = io.StringIO()
    _print_result(result(remeasured=remeasured), Console(file=text, width=100))
    assert "c shares a core with d" in text.getvalue()
    assert "unseen pair 0.031 (4.5 %)" in text.getvalue()
    assert "the chosen pairing beat the random mean" in text.getvalue()
    assert ("chosen (run again) minus random mean: -0.100" in text.getvalue()) is remeasured
    online = "online: 4 of 4 observations applied; error on the chosen pairs 25.0% before, 12.5% after"
    assert (online in text.getvalue()) is remeasured


def test_the_report_says_what_was_measured_here() -> None:
    document = result(remeasured=True).document()
    assert (document["measured_here"], document["difference"]["chosen_run_again"]) == (True, True)
    assert [row["name"] for row in document["pairings"]][-1] == "chosen, run again"
    assert result(remeasured=False).document()["why_not_measured"] == "no core can be pinned"


def test_a_third_of_the_pairs_is_held_out_by_the_seed() -> None:
    assert len(choose_held_out(NAMES, 0)) == 2
    assert choose_held_out(NAMES, 0) == choose_held_out(NAMES, 0)
    assert len({choose_random_pairing(NAMES, seed) for seed in range(20)}) > 1


def test_a_finished_run_starts_anew_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    measured = tmp_path / "tables" / "quickstart"
    measured.mkdir(parents=True)
    runs = prepare_run_folder(tmp_path)
    assert measured.is_dir()  # the first run was killed: what it measured stays
    (runs / "report.json").write_text("{}")
    assert not list(prepare_run_folder(tmp_path).iterdir())
    assert not measured.exists()
