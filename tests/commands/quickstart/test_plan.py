"""The time left of a run, and what its folder keeps."""

import json
from pathlib import Path

import pytest

from interfere.commands.quickstart.command import RunFolder, RunPlan, RunSettings

SETTINGS = RunSettings(workloads=("a", "b"))


def test_the_time_left_follows_the_pace_of_the_stages_before(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    plan = RunPlan({"one": 10.0, "kept": 100.0, "three": 20.0, "four": 40.0}, now_s=lambda: now[0])
    assert plan.text == "About 3 minutes in 4 stages"
    with plan.stage("first"):
        now[0] += 30.0  # three times as long as expected
    with plan.stage("second"):
        now[0] += 0.1  # kept from a run before: says nothing of the pace
    with plan.stage("third") as progress:
        progress(5.0, "too early for a line")
        now[0] += 30.0
        progress(15.0, "training")
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if line]
    assert lines == [
        "[1/4] first · about 0:10 of 2:50 left",
        "[2/4] second · about 5:00 of 8:00 left",
        "[3/4] third · about 1:00 of 3:00 left",
        "[3/4] 0:15 left of this stage, 2:15 in all · training",
    ]
    assert plan.usual_s("four", "no such stage") == pytest.approx(40.0 * 2)  # 60 s for 30


def test_a_stage_is_computed_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> dict[str, object]:
        calls.append(1)
        return {"pair": ("a", "b"), "gap": float("nan")}

    folder = RunFolder(tmp_path / "run", (), SETTINGS)
    assert not (folder.folder / "train.json").exists()
    assert folder.once("train", compute) == folder.once("train", compute) == {"pair": ["a", "b"], "gap": None}
    assert RunFolder(tmp_path / "run", (), SETTINGS).once("train", compute) == {"pair": ["a", "b"], "gap": None}
    assert len(calls) == 1
    report = folder.finish({"done": True})
    assert json.loads(report.read_text()) == {"done": True}
    assert not RunFolder(tmp_path / "run", (), SETTINGS).folder.joinpath("train.json").exists()
