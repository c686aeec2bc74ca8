"""`interfere quickstart` end to end, with real processes, where no core can be pinned: it uses the shipped table."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from interfere.commands.quickstart import stages
from interfere.commands.quickstart.command import RunFolder, RunSettings, run_quickstart
from interfere.commands.quickstart.document import quickstart_document
from interfere.commands.quickstart.pairings import all_pairs, directions
from interfere.errors import UnfitError
from interfere.records import PairMeasurement
from interfere.reports.html_page import html_page
from tests.commands.quickstart.injected import NAMES, row

# A program that runs the command line in a world whose kernel refuses to pin: the refusal itself is the only fake.
REFUSING = """
import os
def refuse(*_):
    raise PermissionError(1, "Operation not permitted")
os.sched_setaffinity = refuse
from interfere.cli import main
main()
"""


@pytest.mark.timeout(1800)
def test_without_a_core_to_pin_it_uses_the_shipped_table_and_says_so_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", REFUSING, "quickstart", "--work", str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot measure" in done.stderr.splitlines()[0]
    assert "shipped table" in done.stderr.splitlines()[0]
    assert f"interfere serve --work {tmp_path / 'work'}\n" in done.stdout, "the first model is served by default"
    assert "interfere match --example" in done.stdout
    assert "interfere ui" in done.stdout
    report = json.loads((tmp_path / "work" / "runs" / "quickstart" / "report.json").read_text())
    assert report["measured_here"] is False
    by_name = {line["name"].split(" (")[0]: line["measured"]["mean_slowdown"]["value"] for line in report["pairings"]}
    assert by_name["best possible"] <= by_name["chosen by matching"] <= by_name["worst possible"]
    assert by_name["best possible"] < by_name["random"] < by_name["worst possible"]
    assert by_name["chosen by matching"] < by_name["random"]
    assert len(report["comparisons"]) == 3
    assert all(each["text"][1:] in " ".join(done.stdout.split()) for each in report["comparisons"])
    page = (tmp_path / "work" / "runs" / "quickstart" / "page.html").read_text()
    assert "<svg" in page
    assert "Not measured here (" in page
    held_out = {frozenset(pair) for pair in report["held_out_pairs"]}
    assert len(held_out) == 9
    assert report["training"]["scores"]["held_out"]["mean"]["rows"] == 18
    assert report["decision"]["status"] == "OPTIMAL"


class AllUnstable(stages.Stages):
    """Real training and serving; every measurement is unstable."""

    def reason_not_to_measure(self) -> str:
        return ""

    def measure_all(self, progress: stages.Progress) -> Sequence[PairMeasurement]:
        return [row(*pair, 1.0, ok=False, steal=0.4) for pair in directions(all_pairs(NAMES))]

    def measure_pairs(self, pairs: Sequence[tuple[str, str]], progress: stages.Progress) -> Sequence[PairMeasurement]:
        return [row(*pair, 1.0, ok=False, steal=0.4) for pair in directions(pairs)]

    def train(
        self, held_out: Sequence[tuple[str, str]], progress: stages.Progress, *, with_measured: bool
    ) -> Mapping[str, Any]:
        assert not with_measured
        return self._run("train", "--data", "cpu", "--models", "mean,additive,gbdt", progress=progress)


@pytest.mark.timeout(1800)
def test_where_everything_is_unstable_it_trains_serves_and_compares_by_predictions(tmp_path: Path) -> None:
    settings = RunSettings(workloads=NAMES)
    world = AllUnstable(work=tmp_path)
    folder = RunFolder(world.folder, world.tables, settings)
    pages: list[str] = []
    found = run_quickstart(world, folder, settings, lambda each: pages.append(html_page(quickstart_document(each))))
    assert "champion: " in pages[-1]
    assert "online: 0 of 0 observations applied" in pages[-1]
    assert "0 of 56 slowdowns were measured." in pages[-1]
    assert "28 of 28 pairs" in pages[-1]
    assert len(found.comparisons) == 3
    assert found.training["with_measured"] is False


def test_too_little_disk_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MIN_DISK_BYTES", 2**70)
    with pytest.raises(UnfitError, match="too little disk"):
        stages.check_ready(tmp_path / "work")


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    with pytest.raises(UnfitError, match="cannot be written"):
        stages.check_ready(tmp_path / "work")


def test_a_failing_stage_stops_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    with pytest.raises(UnfitError, match="interfere train") as raised:
        stages.Stages(work=tmp_path)._run("train", "--data", "/nowhere", progress=lambda *_: None)
    assert "/nowhere" in str(raised.value.value)
