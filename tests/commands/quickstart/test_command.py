"""`interfere quickstart` end to end, with real processes, where no core can be pinned: it uses the shipped table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.commands.quickstart import stages
from interfere.errors import UnfitError

# A program that runs the command line in a world whose kernel refuses to pin: the refusal itself is the only fake.
REFUSING = """
import os
def refuse(*_):
    raise PermissionError(1, "Operation not permitted")
os.sched_setaffinity = refuse
from interfere.cli import main
main()
"""


def test_without_a_core_to_pin_it_uses_the_shipped_table_and_says_so_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", REFUSING, "quickstart", "--work", str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot measure" in done.stderr.splitlines()[0]
    assert "shipped table" in done.stderr.splitlines()[0]
    assert f"interfere serve --work {tmp_path / 'work'}\n" in done.stdout, "the first model is served by default"
    assert "interfere match --example" in done.stdout
    assert "interfere ui" in done.stdout
    report = json.loads((tmp_path / "work" / "runs" / "quickstart" / "report.json").read_text())
    assert report["measured_here"] is False
    by_name = {line["name"].split(" (")[0]: line["measured"]["mean_slowdown"] for line in report["pairings"]}
    assert by_name["best possible"] <= by_name["chosen by matching"] <= by_name["worst possible"]
    assert by_name["best possible"] < by_name["random"] < by_name["worst possible"]
    assert by_name["chosen by matching"] < by_name["random"]
    assert report["difference"]["verdict"] in done.stdout.replace("\n", " ")
    held_out = {frozenset(pair) for pair in report["held_out_pairs"]}
    assert len(held_out) == 9
    assert report["training"]["scores"]["held_out"]["mean"]["rows"] == 18
    assert report["decision"]["status"] == "OPTIMAL"


def test_too_little_disk_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MIN_DISK_BYTES", 2**70)
    with pytest.raises(UnfitError, match="too little disk"):
        stages.check_ready(tmp_path / "work")


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    with pytest.raises(UnfitError, match="cannot be written"):
        stages.check_ready(tmp_path / "work")


def test_a_failing_stage_stops_with_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnfitError, match="interfere data"):
        stages.run_command("data", "check", "/nowhere")
    assert "/nowhere" in capfd.readouterr().err
