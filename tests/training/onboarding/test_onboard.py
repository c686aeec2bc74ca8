"""Real programs brought in from nothing, killed on the way, and what the command says and leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from interfere.cli import main
from interfere.data.tables import read_table
from interfere.errors import TableError
from interfere.training.onboarding import Batches, published_answers, read_batches
from tests.profiling.programs.sample_programs import BUSY, PRINTING, WAITING, leftovers

needs_cores = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
SLOW_WAITING = WAITING.replace("0.004", "0.010")


def site(folder: Path, programs: dict[str, str], step_regex: dict[str, str] | None = None) -> Path:
    """A folder of programs with their jobs.toml."""
    lines = []
    for name, code in programs.items():
        (folder / f"{name}.py").write_text(code)
        lines += [f"[{name}]", f'command = "{sys.executable} {name}.py"', 'cwd = "."', "warm_steps = 2", "warm_s = 0.1"]
        if regex := (step_regex or {}).get(name):
            lines.append(f"step_regex = '{regex}'")
    (folder / "jobs.toml").write_text("\n".join(lines) + "\n")
    return folder / "jobs.toml"


def command(spec: Path, work: Path, *options: str) -> list[str]:
    quick = ("--window-s", "0.5", "--passes", "1", "--target-error", "0", "--json")
    return [sys.executable, "-m", "interfere", "onboard", "--spec", str(spec), "--work", str(work), *quick, *options]


def blocks_by_pair(table: Path) -> dict[frozenset[str], int]:
    """Accepted blocks of every pair in the measurement log."""
    counts: dict[frozenset[str], int] = {}
    for line in (table / "raw" / "blocks.jsonl").read_text().splitlines():
        block = json.loads(line)
        if not block["reason"]:
            key = frozenset(side["workload"] for side in block["sides"])
            counts[key] = counts.get(key, 0) + 1
    return counts


@needs_cores
@pytest.mark.journey
@pytest.mark.measuring
@pytest.mark.timeout(1200)
def test_killed_three_times_it_measures_the_same_pairs_and_none_twice(small_folder: Path, tmp_path: Path) -> None:
    programs = {"busy": BUSY, "waiting": WAITING, "slow": SLOW_WAITING, "printing": PRINTING}
    spec, work = site(tmp_path, programs, {"printing": r"step (\d+)"}), tmp_path / "work"
    table = work / "tables" / "site"
    options = ("--max-pairs", "6", "--beside", str(small_folder))
    chosen: list[list[list[str]]] = []
    for blocks in (0, 1, 4):  # killed while jobs run alone, in the first batch, and in the second
        process = subprocess.Popen(command(spec, work, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        log = table / "raw" / ("solo.jsonl" if not blocks else "blocks.jsonl")
        deadline_s = time.monotonic() + 120
        while not log.is_file() or len(log.read_text().splitlines()) < max(1, blocks):
            assert time.monotonic() < deadline_s
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert leftovers(table) == []
        if (table / "onboarding.json").is_file():
            chosen.append(json.loads((table / "onboarding.json").read_text())["batches"])
    finished = subprocess.run(command(spec, work, *options), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    answer = json.loads(finished.stdout)
    batches = read_batches(table).batches
    for earlier in chosen:
        assert [[list(pair) for pair in batch] for batch in batches[: len(earlier)]] == earlier
    assert sum(map(len, batches)) == 6
    counts = blocks_by_pair(table)
    assert set(counts) <= {frozenset(pair) for batch in batches for pair in batch}
    assert max(counts.values(), default=0) <= 4  # blocks while the interval is wide, never a pair measured anew
    measured = {frozenset((row.victim, row.neighbour)) for row in read_table(table).ok_pairs}
    assert answer["assessments"][-1]["pairs"] == len(measured)
    assert answer["stopped"] == "the 6 pairs asked for were measured"
    assert {job["name"] for job in answer["jobs"]} == set(programs)
    assert len(answer["next_pairs"]) == 3
    if measured:  # on a busy machine every block may have been disturbed
        model = Path(answer["model"]["folder"])
        assert (model / "manifest.json").is_file()  # trained on a part of the shipped table and this one
        served = published_answers(model, sorted(programs), "cpu-core", "timeslice")
        assert answer["pairs"] == [asdict(each) for each in served]
    alone = ("--max-pairs", "6", "--beside", str(table))  # its own pairs alone are too few to train on
    again = subprocess.run(command(spec, work, *alone), capture_output=True, text=True, check=True)
    assert blocks_by_pair(table) == counts, again.stderr


@needs_cores
@pytest.mark.journey
@pytest.mark.measuring
def test_a_spent_budget_stops_before_the_next_batch_and_a_broken_command_is_told(tmp_path: Path) -> None:
    spec, work = site(tmp_path, {"busy": BUSY, "waiting": WAITING, "broken": "raise SystemExit(3)"}), tmp_path / "work"
    finished = subprocess.run(
        command(spec, work, "--budget", "1s", "--beside", str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    answer = json.loads(finished.stdout)
    assert answer["stopped"].startswith("the budget is spent: ")
    assert "may end before the first pair; --budget 1m" in finished.stderr
    assert answer["assessments"] == [
        {"pairs": 0, "expected_error": answer["assessments"][0]["expected_error"], "left_out_error": None}
    ]
    assert [failure["name"] for failure in answer["failures"]] == ["broken"]
    assert "exit code 3" in answer["failures"][0]["reason"]
    assert answer["model"] is None
    assert answer["next_pairs"]
    assert [each["source"] for each in answer["pairs"]] == ["belief"] * 4


@needs_cores
@pytest.mark.journey
@pytest.mark.measuring
def test_a_short_budget_is_not_eaten_by_the_commands_alone(tmp_path: Path) -> None:
    """Three commands alone twice would take 15 s of 20 s: they run once, and the rest is for pairs."""
    spec, work = site(tmp_path, {"busy": BUSY, "waiting": WAITING, "slow": SLOW_WAITING}), tmp_path / "work"
    table = work / "tables" / "site"
    words = command(spec, work, "--budget", "20s", "--beside", str(table))  # too few pairs to train on
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "about 8 s for 3 commands alone, 6 s for a pair; the budget: 20 s" in finished.stderr
    answer = json.loads(finished.stdout)
    batches = read_batches(table)
    slow_machine = batches.spent_s > 20.0 - 5.5  # the expected seconds of a pair
    assert batches.pairs or slow_machine
    assert answer["stopped"].startswith("the budget is spent: ") or len(batches.pairs) == 6
    assert {frozenset(pair) for pair in batches.pairs} >= set(blocks_by_pair(table))


def test_a_gpu_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    spec, work = site(tmp_path, {"busy": BUSY}), tmp_path / "work"
    finished = subprocess.run(command(spec, work, "--device-type", "a100"), capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "nvidia-smi" in finished.stderr or "a100" in finished.stderr
    assert not (work / "tables").exists()


def test_chosen_pairs_are_on_disk_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    batches = read_batches(tmp_path)
    assert batches == Batches(path=tmp_path / "onboarding.json")
    batches.add((("a", "b"), ("a", "a")))
    batches.spent_s = 12.5
    batches.save()
    again = read_batches(tmp_path)
    assert (again.pairs, again.spent_s) == ((("a", "b"), ("a", "a")), 12.5)
    again.path.write_text("{")
    with pytest.raises(TableError, match="not a file that onboarding wrote"):
        read_batches(tmp_path)


def test_suggestions_for_a_shipped_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["data", "suggest", "cpu", "--job", "gemm", "--job", "stream", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == [], "all pairs of the shipped table are measured"
