"""Workloads are measured on a real core: the table, resuming after a kill, one profiler a folder, no orphans."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from interfere.data.tables import read_table
from interfere.errors import ConflictError, InvalidInputError, NotFoundError, UnfitError
from interfere.profiling.measurement_log import MeasurementLog, lock_log
from interfere.profiling.measurer import MeasuringProgress, measure
from interfere.profiling.workload_profiler import WorkloadConfig
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, PairStatus
from tests.profiling.processes import all_gone, descendants
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY, WAITING = "tests.profiling.sample_workloads:BUSY", "tests.profiling.sample_workloads:waiting"


def config(out: Path, **changes: object) -> WorkloadConfig:
    base = WorkloadConfig(out=out, workloads=(BUSY, WAITING), passes=2, max_blocks=2, block_s=0.6, solo_s=0.5)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_campaign_from_nothing_to_a_table(tmp_path: Path) -> None:
    seen: list[MeasuringProgress] = []
    table = measure(config(tmp_path / "t"), seen.append).table
    assert [job.workload for job in table.jobs] == [BUSY, WAITING]
    assert {(p.victim, p.neighbour) for p in table.pairs} == {
        (BUSY, BUSY),
        (BUSY, WAITING),
        (WAITING, BUSY),
        (WAITING, WAITING),
    }
    for pair in table.pairs:
        assert pair.status is PairStatus.OK, "whatever else runs"
        assert MIN_SLOWDOWN <= pair.lower < pair.slowdown < pair.upper
        assert pair.source == "cpu"
        assert pair.device_name
        assert pair.campaign == "campaign"
    assert [p.passes for p in read_table(tmp_path / "t").pairs] == [p.passes for p in table.pairs]
    assert {p.name for p in (tmp_path / "t").iterdir()} == {
        "jobs.parquet",
        "pairs.parquet",
        "raw.parquet",
        "card.md",
        "raw",
    }
    blocks = MeasurementLog(tmp_path / "t" / "raw").blocks()
    card = (tmp_path / "t" / "card.md").read_text()
    assert f"--jobs {BUSY},{WAITING}" in card
    assert f"{len(blocks)} blocks measured, 0 of them refused" in card
    assert len(blocks) == 6
    assert all(side.slices for block in blocks for side in block.sides)
    raw = pq.read_table(tmp_path / "t" / "raw.parquet").to_pylist()
    assert len(raw) == 2 * len(blocks)
    for pair in table.pairs:  # every slowdown can be computed again from the raw rows
        rows = [r for r in raw if (r["victim"], r["neighbour"]) == (pair.victim, pair.neighbour) and not r["reason"]]
        alone = [r["wall_alone_s"] / r["steps_alone"] for r in rows]
        shared = [r["wall_shared_s"] / r["steps_shared"] for r in rows]
        assert [s / a for s, a in zip(shared, alone, strict=True)] == pytest.approx(pair.passes)
    assert seen[0].done == 0
    assert seen[-1].done == seen[-1].total
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[0].seconds_left > seen[-1].seconds_left == 0
    assert not descendants(os.getpid())


def test_a_finished_campaign_measures_nothing_again(tmp_path: Path) -> None:
    done = config(tmp_path / "t", workloads=(WAITING,), passes=1, max_blocks=1)
    first = measure(done, lambda now: None).table
    raw = tmp_path / "t" / "raw"
    written = {path.name: (path.stat().st_ino, path.read_bytes()) for path in raw.iterdir()}
    again = measure(done, lambda now: pytest.fail(f"measured {now.text}")).table
    assert {path.name: (path.stat().st_ino, path.read_bytes()) for path in raw.iterdir()} == written
    assert [p.passes for p in again.pairs] == [p.passes for p in first.pairs]
    more = measure(replace(done, passes=2, max_blocks=2), lambda now: None).table
    assert len(more.pairs[0].passes) >= len(first.pairs[0].passes)
    assert len(MeasurementLog(tmp_path / "t" / "raw").blocks()) > 1


def test_chosen_pairs_with_known_profiles_are_measured_alone(tmp_path: Path) -> None:
    profiles = measure(config(tmp_path / "solo", pairs=()), lambda now: None).table
    assert profiles.pairs == ()
    texts: list[str] = []
    chosen = config(tmp_path / "t", pairs=((WAITING, BUSY),), passes=1, max_blocks=1, profiles=profiles.jobs)
    table = measure(chosen, lambda now: texts.append(now.text)).table
    assert {(p.victim, p.neighbour) for p in table.pairs} == {(WAITING, BUSY), (BUSY, WAITING)}
    assert [job.profile_id for job in table.jobs] == [job.profile_id for job in profiles.jobs]
    assert not [text for text in texts if text.startswith("alone")]
    more = measure(replace(chosen, pairs=((BUSY, BUSY),)), lambda now: None).table
    assert len(more.pairs) == 3, "pairs of an earlier call in the folder stay"


def test_groups_join_a_table_of_pairs_and_a_finished_one_is_not_measured_again(tmp_path: Path) -> None:
    pairs = config(tmp_path / "t", pairs=((BUSY, WAITING),), passes=1, max_blocks=1)
    measure(pairs, lambda now: None)
    chosen = replace(pairs, pairs=(), groups=((BUSY, WAITING, WAITING),))
    table = measure(chosen, lambda now: None).table
    assert {(pair.victim, pair.neighbour) for pair in table.pairs} == {(BUSY, WAITING), (WAITING, BUSY)}
    assert [(row.victim, row.company) for row in table.groups] == [
        (BUSY, (WAITING, WAITING)),
        (WAITING, tuple(sorted((BUSY, WAITING)))),
    ]
    for row in table.groups:
        assert row.status is PairStatus.OK, "whatever else runs"
        assert MIN_SLOWDOWN <= row.slowdown <= MAX_SLOWDOWN
        assert len(row.passes) % row.copies == 0
    raw = pq.read_table(tmp_path / "t" / "raw_groups.parquet").to_pylist()
    assert len(raw) == 3 * sum(len(block.sides) == 3 for block in MeasurementLog(tmp_path / "t" / "raw").blocks())
    card = (tmp_path / "t" / "card.md").read_text()
    assert "--group-size 3 --group-count 1" in card
    line = next(line for line in card.splitlines() if "wider than ±3 %" in line)
    assert re.search(r"is left to \d of 1 pairs, \d of 1 groups of 3", line), line
    again = measure(chosen, lambda now: pytest.fail(f"measured {now.text}")).table
    assert [row.passes for row in again.groups] == [row.passes for row in table.groups]


def test_in_mode_priority_the_important_job_is_slowed_less(tmp_path: Path) -> None:
    chosen = config(tmp_path / "t", pairs=((BUSY, BUSY), (WAITING, BUSY)), passes=1, max_blocks=1, mode="priority")
    table = measure(chosen, lambda now: None).table
    rows = {(row.victim, row.neighbour, row.important): row for row in table.pairs}
    assert len(rows) == len(table.pairs) == 4
    starved = rows[BUSY, BUSY, "neighbour"]
    assert starved.status is PairStatus.UNSTABLE, "it runs only while the important one waits, which never does"
    assert starved.reason
    important, other = rows[WAITING, BUSY, "victim"], rows[BUSY, WAITING, "neighbour"]
    for row in (important, rows[BUSY, BUSY, "victim"]):  # another program may have had the core: a wide interval
        assert row.status is PairStatus.UNSTABLE or row.lower < 1.5
    assert other.status is PairStatus.UNSTABLE or other.lower < 3
    with pytest.raises(ConflictError, match="its mode is 'priority', not 'timeslice'"):
        measure(replace(chosen, mode="timeslice"), lambda now: None)


def test_killed_it_leaves_no_orphans_and_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "t"
    log = MeasurementLog(out / "raw")
    command = [
        sys.executable,
        "-m",
        "interfere",
        "profile",
        "campaign",
        "--jobs",
        f"{BUSY},{WAITING}",
        "--quick",
        "--block-s",
        "0.6",
        "--solo-s",
        "0.5",
        "--out",
        str(out),
        "--json",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as process:
        try:
            wait_until(lambda: len(log.blocks()) >= 2 or process.poll() is not None, "two blocks")
            assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
            workers = descendants(process.pid)
            assert len(workers) == 5, "one parent, two workloads, their two twins"
        finally:
            process.send_signal(signal.SIGKILL)
    assert all_gone(workers), "workers end when their controller is gone"
    kept = log.blocks()
    assert len(kept) >= 2
    with log.blocks_path.open("a") as file:
        file.write('{"pass_index": 1, "torn')
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert log.blocks()[: len(kept)] == kept, "nothing that was measured is lost or measured again"
    document = json.loads(done.stdout)
    assert {(p["victim"], p["neighbour"]) for p in document["pairs"]} >= {(BUSY, WAITING), (WAITING, BUSY)}
    assert document["table"] == str(out)
    assert [p for p in read_table(out).pairs if p.campaign == "cpu-all"]


def test_interrupted_it_ends_its_workers_and_can_be_resumed(tmp_path: Path) -> None:
    started: list[psutil.Process] = []

    def interrupt(now: MeasuringProgress) -> None:
        if now.text.startswith("pass 1") and now.done >= 3:
            started.extend(descendants(os.getpid()))
            raise KeyboardInterrupt

    before = os.sched_getaffinity(0)
    with pytest.raises(KeyboardInterrupt):
        measure(config(tmp_path / "t", passes=1, max_blocks=1), interrupt)
    assert started
    assert all_gone(started)
    assert os.sched_getaffinity(0) == before
    kept = MeasurementLog(tmp_path / "t" / "raw").blocks()
    measure(config(tmp_path / "t", passes=1, max_blocks=1), lambda now: None)
    assert MeasurementLog(tmp_path / "t" / "raw").blocks()[: len(kept)] == kept


def test_a_stolen_core_is_warned_about_once_and_widens_the_interval(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    (tmp_path / "thief.py").write_text(f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass")
    # Started by a shell that ends: what descends from the measuring process itself is none of the other programs.
    shell = ["sh", "-c", f"'{sys.executable}' '{tmp_path / 'thief.py'}' >/dev/null 2>&1 & echo $!"]
    thief = int(subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout)
    warnings: list[str] = []
    try:
        stolen = config(tmp_path / "t", pairs=((BUSY, BUSY),), core=core)
        measured = measure(stolen, lambda now: warnings.append(now.warning))
    finally:
        os.kill(thief, signal.SIGKILL)
    (warning,) = [warning for warning in warnings if warning]
    assert "other programs took" in warning
    assert f"process {thief}" in warning
    (row,) = measured.table.pairs
    assert row.status is PairStatus.OK
    assert row.lower < 2.0 < row.upper, "two that are always busy share what the thief leaves in halves"
    assert row.upper / row.lower > 1.1
    assert row.steal_frac > 0.1
    assert "of the core in 2 blocks" in (tmp_path / "t" / "card.md").read_text()


def test_interrupted_on_the_command_line_it_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "interfere", "profile", "solo", "--jobs", "gemm,stream", "--out", "t"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: (tmp_path / "t" / "raw" / "workers.log").exists() or process.poll() is not None)
            workers = descendants(process.pid)
            process.send_signal(signal.SIGINT)
            message = process.stderr.read() if process.stderr else ""
        finally:
            process.kill()
    assert process.returncode != 0
    assert "the same command goes on" in message
    assert "Traceback" not in message
    assert all_gone(workers)


def test_a_second_profiler_in_one_folder_is_refused(tmp_path: Path) -> None:
    with lock_log(tmp_path / "t" / "raw"), pytest.raises(UnfitError, match="another profiler"):
        measure(config(tmp_path / "t"), lambda now: None)


def test_a_folder_of_another_campaign_is_refused_before_anything_runs(tmp_path: Path) -> None:
    measure(config(tmp_path / "t", pairs=(), workloads=(WAITING,)), lambda now: None)
    with pytest.raises(ConflictError, match="seed"):
        measure(config(tmp_path / "t", workloads=(WAITING,), seed=5), lambda now: None)
    with pytest.raises(ConflictError, match="workloads"):
        measure(config(tmp_path / "t"), lambda now: None)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"workloads": ("gemn",)}, NotFoundError, "gemn"),
        ({"workloads": ()}, InvalidInputError, "no job is named"),
        ({"workloads": ("gemm", "gemm")}, InvalidInputError, "twice"),
        ({"pairs": (("gemm", BUSY),)}, NotFoundError, "not listed: gemm"),
        ({"pairs": ((WAITING, BUSY), (BUSY, WAITING))}, InvalidInputError, "listed twice"),
        ({"passes": 0}, InvalidInputError, "passes is too small"),
        ({"passes": 3}, InvalidInputError, "max_blocks is too small"),
        ({"block_s": float("nan")}, InvalidInputError, "block_s is too small"),
        ({"seed": -1}, InvalidInputError, "seed is too small"),
        ({"mode": "mps"}, InvalidInputError, "not measured on CPU cores"),
        ({"mode": "priority", "groups": ((BUSY, BUSY, BUSY),)}, InvalidInputError, "in mode timeslice alone"),
        ({"groups": (("gemm", BUSY, BUSY),)}, NotFoundError, "not listed: gemm"),
    ],
)
def test_a_bad_configuration_is_refused_at_once(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        config(tmp_path / "t", **changes)
    assert not (tmp_path / "t").exists()
