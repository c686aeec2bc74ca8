"""Whole campaigns of real programs on one core, and `interfere profile command` as a user types it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interfere.data.tables import read_table
from interfere.errors import ConflictError, InvalidInputError, NotFoundError, TableError, UnfitError
from interfere.profiling.measurement_log import MeasurementLog, lock_log
from interfere.profiling.measurer import MeasuringProgress, measure
from interfere.profiling.programs.profiler import CommandConfig
from interfere.profiling.programs.spec import Command
from interfere.profiling.workload_profiler import WorkloadConfig
from interfere.records import PairStatus
from tests.profiling.programs.sample_programs import BUSY, PRINTING, WAITING, leftovers, program

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY_ONE, WAITING_ONE = program(BUSY, "busy"), program(WAITING, "waiting")


def config(out: Path, *commands: Command, **changes: object) -> CommandConfig:
    values: dict[str, object] = {
        "out": out,
        "commands": commands,
        "window_s": 0.5,
        "repeats": 1,
        "passes": 1,
        "max_blocks": 1,
        "grace_s": 1.0,
    }
    return CommandConfig(**{**values, **changes})  # type: ignore[arg-type]  # fields by name


def test_two_programs_alone_and_together(tmp_path: Path) -> None:
    seen: list[MeasuringProgress] = []
    pairs = (("busy", "busy"), ("busy", "waiting"))
    outcome = measure(config(tmp_path / "t", BUSY_ONE, WAITING_ONE, pairs=pairs, passes=2, max_blocks=2), seen.append)
    table = outcome.table
    assert not outcome.failures
    busy, waiting = table.jobs
    assert (busy.workload, waiting.workload, busy.source) == ("busy", "waiting", "command")
    assert 0.0025 < busy.step_time_s < 0.1
    assert 0.0045 < waiting.step_time_s < 0.1
    assert waiting.busy_frac < 0.5
    if not any("other programs took" in now.warning for now in seen):
        assert busy.busy_frac > 0.8
    assert 1e6 < busy.memory_peak_bytes < 1e8
    rows = {(p.victim, p.neighbour): p for p in table.pairs}
    assert set(rows) == {("busy", "busy"), ("busy", "waiting"), ("waiting", "busy")}
    for row in rows.values():
        assert (row.source, row.mode, row.device_type) == ("command", "timeslice", "cpu-core")
        assert row.device_name
        assert row.status is PairStatus.OK, "whatever else runs"
        assert row.lower < row.slowdown < row.upper
    both, beside = rows["busy", "busy"], rows["busy", "waiting"]
    assert both.lower < 2.2, "two that are always busy share the core in halves"
    assert both.upper > 1.8
    assert len(both.passes) == 4, "two blocks, both sides"
    assert beside.lower < 1.6, "a neighbour that waits takes less than half"
    assert beside.overlap_frac > 0.95
    assert {p.name for p in (tmp_path / "t").iterdir()} == {
        "jobs.parquet",
        "pairs.parquet",
        "raw.parquet",
        "card.md",
        "raw",
    }
    assert "Programs that are not ours, restarted for every block" in (tmp_path / "t" / "card.md").read_text()
    for pair in (p for p in table.pairs if p.victim != p.neighbour and p.status is PairStatus.OK):
        kept = [
            r
            for r in pq.read_table(tmp_path / "t" / "raw.parquet").to_pylist()
            if (r["victim"], r["neighbour"]) == (pair.victim, pair.neighbour) and not r["reason"]
        ]
        again = [r["wall_shared_s"] / r["steps_shared"] / (r["wall_alone_s"] / r["steps_alone"]) for r in kept]
        assert again == pytest.approx(pair.passes)
    assert seen[-1].done == seen[-1].total
    assert seen[0].seconds_left > seen[-1].seconds_left == 0
    assert not leftovers(tmp_path)


def test_it_goes_on_and_others_may_join(tmp_path: Path) -> None:
    first = measure(config(tmp_path / "t", WAITING_ONE), lambda now: None)
    assert [(p.victim, p.neighbour) for p in first.table.pairs] == [("waiting", "waiting")], "all pairs by default"
    again = measure(config(tmp_path / "t", WAITING_ONE), lambda now: None)
    assert again.table == first.table
    joined = measure(config(tmp_path / "t", BUSY_ONE, pairs=()), lambda now: None)
    assert [job.workload for job in joined.table.jobs] == ["waiting", "busy"]
    assert len(joined.table.pairs) == 1
    assert {
        name: kept["argv"] for name, kept in json.loads((tmp_path / "t/raw/commands.json").read_text()).items()
    } == {command.name: list(command.argv) for command in (WAITING_ONE, BUSY_ONE)}
    with pytest.raises(ConflictError, match="waiting stands for another command in this folder: its argv"):
        measure(config(tmp_path / "t", replace(WAITING_ONE, argv=("true",))), lambda now: None)
    with pytest.raises(ConflictError, match="its device_type is"):
        measure(config(tmp_path / "t", BUSY_ONE, device_type="h100", mode="mps"), lambda now: None)
    with pytest.raises(ConflictError, match="already holds"):
        measure(config(tmp_path / "t", BUSY_ONE, resume=False), lambda now: None)


def test_a_command_that_failed_may_be_corrected(tmp_path: Path) -> None:
    typo = replace(WAITING_ONE, argv=("/no/such/program",))
    with pytest.raises(UnfitError, match="cannot be started"):
        measure(config(tmp_path / "t", typo, pairs=()), lambda now: None)
    outcome = measure(config(tmp_path / "t", WAITING_ONE, pairs=()), lambda now: None)
    assert not outcome.failures
    (tmp_path / "t" / "raw" / "commands.json").write_text("{torn")
    with pytest.raises(TableError, match=r"commands.json is not a file that the profiler wrote"):
        measure(config(tmp_path / "t", WAITING_ONE, pairs=()), lambda now: None)


def test_on_another_device_nothing_is_pinned_and_the_host_says_nothing(tmp_path: Path) -> None:
    wanders = f"import os\nassert os.sched_getaffinity(0) == {os.sched_getaffinity(0)}\n" + WAITING
    elsewhere = config(tmp_path / "t", program(wanders, "w"), device_type="h100", mode="mps", device_name="card 0")
    outcome = measure(elsewhere, lambda now: None)
    (job,), (pair,) = outcome.table.jobs, outcome.table.pairs
    assert job.device_type == "h100"
    assert job.busy_frac != job.busy_frac
    assert job.memory_peak_bytes != job.memory_peak_bytes
    assert (pair.status, pair.mode, pair.device_name) == (PairStatus.OK, "mps", "card 0")
    assert 0.05 < pair.slowdown < 20, "nobody sees a stall on another device"
    assert pair.steal_frac != pair.steal_frac
    assert pq.read_table(tmp_path / "t" / "raw.parquet").column("drift_frac").null_count == 2


def test_a_short_program_counts_when_it_held_steps_enough(tmp_path: Path) -> None:
    for steps, enough in ((200, True), (12, False)):
        short = WAITING.replace("while True", f"for _ in range({steps})")
        alone = config(tmp_path / str(steps), program(short, "short"), window_s=30.0, repeats=2, pairs=())
        if enough:
            assert 0.004 < measure(alone, lambda now: None).table.jobs[0].step_time_s < 0.1
        else:
            with pytest.raises(UnfitError, match=r"ended by itself after .* 12 steps, exit code 0"):
                measure(alone, lambda now: None)


def test_two_profilers_on_one_folder_the_second_refuses_whatever_they_are(tmp_path: Path) -> None:
    with lock_log(tmp_path / "t" / "raw"):
        with pytest.raises(UnfitError, match="another profiler works in this folder"):
            measure(config(tmp_path / "t", BUSY_ONE), lambda now: None)
        with pytest.raises(UnfitError, match="another profiler works in this folder"):
            measure(WorkloadConfig(out=tmp_path / "t", workloads=("gemm",), pairs=()), lambda now: None)
    refused: list[UnfitError] = []

    def second(now: MeasuringProgress) -> None:
        if not refused:
            with pytest.raises(UnfitError, match=f"process {os.getpid()}") as caught:
                measure(config(tmp_path / "t", BUSY_ONE), lambda now: None)
            refused.append(caught.value)

    measure(config(tmp_path / "t", WAITING_ONE, pairs=()), second)
    assert refused, "while the first one measures"
    with pytest.raises(ConflictError, match="other measurements"):
        measure(WorkloadConfig(out=tmp_path / "t", workloads=("gemm",), pairs=()), lambda now: None)
    assert set(MeasurementLog(tmp_path / "t" / "raw").profiles()) == {"waiting"}


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"commands": ()}, InvalidInputError, "no job is named"),
        ({"commands": (BUSY_ONE, BUSY_ONE)}, InvalidInputError, "named twice"),
        ({"pairs": (("busy", "other"),)}, NotFoundError, "not listed: other"),
        ({"pairs": (("busy", "busy"), ("busy", "busy"))}, InvalidInputError, "listed twice"),
        ({"window_s": 0.1}, InvalidInputError, "window_s is too small"),
        ({"repeats": 0}, InvalidInputError, "repeats is too small"),
        ({"passes": 2}, InvalidInputError, "max_blocks is too small"),
        ({"limit_s": 0.0}, InvalidInputError, "limit_s is too small"),
        ({"grace_s": float("nan")}, InvalidInputError, "grace_s is too small"),
        ({"mode": "turns"}, InvalidInputError, "unknown sharing mode"),
        ({"mode": "mps"}, InvalidInputError, "time slices only"),
        ({"device_type": "h100", "core": 0}, InvalidInputError, "not pinned"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        config(tmp_path / "t", **{"commands": (BUSY_ONE,), **changes})
    assert not (tmp_path / "t").exists()


def interfere(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "interfere", "profile", "command", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=240)


def test_one_program_from_the_shell(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTING)
    done = interfere(
        "--workload",
        "train",
        "--step-regex",
        r"step (\d+)",
        "--warm-steps",
        "10",
        "--warm-s",
        "0.2",
        "--window-s",
        "0.6",
        "--repeats",
        "1",
        "--core",
        max(os.sched_getaffinity(0)),
        "--work",
        "w",
        "--name",
        "mine",
        "--device-type",
        "cpu",
        "--json",
        "--",
        sys.executable,
        "train.py",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [job["workload"] for job in document["jobs"]] == ["train"]
    assert 0.0005 < document["jobs"][0]["step_time_s"] < 0.1
    assert (document["pairs"], document["failures"]) == ([], [])
    folder = tmp_path / "w" / "tables" / "mine"
    assert read_table(folder).jobs[0].workload == "train"
    shown = interfere(
        "--workload",
        "train",
        "--step-regex",
        r"step (\d+)",
        "--warm-steps",
        "10",
        "--warm-s",
        "0.2",
        "--out",
        folder,
        "--",
        sys.executable,
        "train.py",
        cwd=tmp_path,
    )
    assert "one CPU core, time-sliced" in shown.stdout, shown.stderr
    assert "train" in shown.stdout
    fresh = interfere("--workload", "b", "--fresh", "--out", folder, "--", sys.executable, "train.py", cwd=tmp_path)
    assert fresh.returncode == 1
    assert "already holds measurements" in fresh.stderr


def test_several_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAITING)
    (tmp_path / "jobs.toml").write_text(
        f"""
[a]
command = ["{sys.executable}", "wait.py"]
warm_s = 0.1
[b]
command = "{sys.executable} wait.py"
warm_s = 0.1
[bad]
command = "/no/such/program"
"""
    )
    brief = ("--window-s", "0.5", "--repeats", "1", "--passes", "1", "--max-blocks", "1", "--seed", "3")
    brief = (
        *brief,
        "--limit-s",
        "20",
        "--grace-s",
        "1",
        "--device-type",
        "abacus",
        "--device-name",
        "one",
        "--mode",
        "mig",
    )
    alone = interfere("--spec", "jobs.toml", "--alone", *brief, "--out", "t", cwd=tmp_path)
    assert alone.returncode == 1, "one of them could not be measured"
    assert read_table(tmp_path / "t").pairs == ()
    assert [job.workload for job in read_table(tmp_path / "t").jobs] == ["a", "b"]
    done = interfere("--spec", "jobs.toml", "--pair", "a+b", *brief, "--out", "t", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be started" in " ".join(done.stdout.split())
    assert "abacus, mig" in done.stdout
    rows = {(p.victim, p.neighbour): p for p in read_table(tmp_path / "t").pairs}
    assert set(rows) == {("a", "b"), ("b", "a")}
    assert rows["a", "b"].device_name == "one"


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        ((), "give one program or a file", 1),
        (("--spec", "x.toml", "--", "true"), "give one program or a file", 1),
        (("--spec", "x.toml"), "cannot be read", 1),
        (("--spec", "x.toml", "--step-regex", "x"), "these stand in the file", 1),
        (("--step-regex", "(", "--", "true"), "no regular expression", 1),
        (("--workload", "a+b", "--", "true"), "holds a +", 1),
        (("--pair", "true+false", "--", "true"), "a job that is not listed: false", 1),
        (("--pair", "true+true", "--alone", "--", "true"), "--alone measures no pairs", 1),
        (("--pair", "true", "--", "true"), "not a pair", 1),
        (("--core", "4096", "--", "true"), "core 4096", 1),
        (("--out", "/proc/nowhere", "--", "true"), "cannot write here", 1),
        (("--window-s", "0", "--", "true"), "--window-s", 2),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], said: str, status: int
) -> None:
    done = interfere(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))
