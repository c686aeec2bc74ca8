"""The append-only log: kept whole, locked, bound to one campaign."""

import json
import multiprocessing
from pathlib import Path

import pytest

from interfere.errors import ConflictError, TableError, UnfitError
from interfere.profiling.measurement_log import MeasurementLog, lock_log
from interfere.records import JobProfile, KernelStat
from tests.profiling.sample_blocks import block

BLOCKS = (block("a", "b", (1.5, 1.2)), block("a", "a", (2.0, 2.1), pass_index=1, attempt=2, reason="clock"))
PROFILE = JobProfile(
    workload="a", device_type="cpu-core", step_time_s=0.01, kernels=(KernelStat(name="mm", mean_s=1e-4, grid=(1, 2)),)
)


def test_what_is_kept_comes_back_equal(tmp_path: Path) -> None:
    with lock_log(tmp_path / "raw") as log:
        for sample in BLOCKS:
            log.append_block(sample)
        log.append_profile(PROFILE)
        assert tuple(log.blocks()) == BLOCKS
        assert log.profiles()["a"].profile_id == PROFILE.profile_id
    assert BLOCKS[1].key == ("a", "a")


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_last_line_is_dropped_and_the_log_goes_on(tmp_path: Path, cut: int) -> None:
    log = MeasurementLog(tmp_path)
    for sample in BLOCKS:
        log.append_block(sample)
    log.blocks_path.write_bytes(log.blocks_path.read_bytes()[:-cut])
    assert log.blocks() == [BLOCKS[0]]
    log.append_block(BLOCKS[1])
    assert tuple(log.blocks()) == BLOCKS


@pytest.mark.parametrize("line", ["garbage", "[1]", '{"sides": []}', '{"pass_index": 1, "sides": [], "mode": "mps"}'])
def test_a_line_that_is_not_ours_is_named_and_nothing_is_lost(tmp_path: Path, line: str) -> None:
    log = MeasurementLog(tmp_path)
    log.append_block(BLOCKS[0])
    content = log.blocks_path.read_text() + line + "\n"
    log.blocks_path.write_text(content)
    with pytest.raises(TableError, match="no profiler wrote"):
        log.blocks()
    assert log.blocks_path.read_text() == content


def test_a_folder_belongs_to_one_campaign(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path)
    log.bind_campaign({"seed": 1}, resume=True)
    log.bind_campaign({"seed": 1}, resume=True)
    with pytest.raises(ConflictError, match="its seed is 1, not 2"):
        log.bind_campaign({"seed": 2}, resume=True)
    log.bind_campaign({"seed": 1}, resume=False)
    log.append_block(BLOCKS[0])
    with pytest.raises(ConflictError, match="already holds"):
        log.bind_campaign({"seed": 1}, resume=False)
    assert json.loads(log.identity_path.read_text()) == {"seed": 1}


def _hold(folder: Path, held: object, done: object) -> None:
    with lock_log(folder):
        held.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_a_second_profiler_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    held, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_hold, args=(tmp_path / "raw", held, done))
    other.start()
    try:
        assert held.wait(30)
        with pytest.raises(UnfitError, match=f"process {other.pid}"), lock_log(tmp_path / "raw"):
            pass
    finally:
        done.set()
        other.join()
    with lock_log(tmp_path / "raw"):
        pass


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitError, match="cannot write here"), lock_log(tmp_path / "file" / "raw"):
        pass
