"""What a node's agent says of its devices, and which jobs may start on them: real folders, real processes."""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError, LimitError, NotFoundError, UnfitError
from interfere.profiling.programs.device_admission import (
    DEVICES,
    Admission,
    PublishedDevice,
    PublishedDevices,
    admit,
    publish,
    read_devices,
)
from interfere.profiling.programs.process_tree import start_time
from interfere.profiling.programs.started_jobs import Ending, JobRecord, started_jobs, write_ending
from interfere.records import NAN

GIB = 2.0**30
UUIDS = ("GPU-5ad6e4f2-0c1d", "GPU-77b0a9c3-9e8f")
# Two GPUs of 4 GiB with a ratio of 1.5 in granules of half a GiB: twelve granules each, four of them on the host.
GPUS = tuple(
    PublishedDevice(id=name, gpu_uuid=uuid, granules=12, granule_bytes=GIB / 2, host_reserve_bytes=2 * GIB)
    for name, uuid in zip(("0", "1"), UUIDS, strict=True)
)
CORE = PublishedDevice(id="core")  # grants no memory


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of started jobs, with the devices of a node."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    publish(tmp_path / "jobs", PublishedDevices(enforced=True, devices=(*GPUS, CORE)))
    return tmp_path / "jobs"


def record(job_id: str, memory_gib: float, device: str = "0", pid: int = os.getpid()) -> JobRecord:
    """The record of a job whose supervisor is a process, by default this one."""
    return JobRecord(
        job_id=job_id,
        workload="w",
        device_id=device,
        memory_bytes=memory_gib * GIB,
        supervisor_pid=pid,
        supervisor_start=start_time(pid),
        since_s=0.0,
        token=f"token-of-{job_id}",
    )


def ask(root: Path, job_id: str, memory_gib: float, device: str = "0") -> Admission:
    return admit(root, record(job_id, memory_gib, device))


def end(admission: Admission) -> None:
    write_ending(admission.folder, Ending(at_s=1.0, reason="finished", exit_code=0))


def test_a_start_that_device_and_host_cannot_back_is_refused_and_leaves_nothing(root: Path) -> None:
    first = ask(root, "a", 3.8)  # eight granules
    with pytest.raises(LimitError) as refused:
        ask(root, "b", 2.1)
    text = str(refused.value)
    assert "device 0 cannot back the memory of this job: 2.5 GiB asked, 2 GiB of 6 GiB free" in text
    assert "of which the host backs 2 GiB; a holds 4 GiB" in text
    assert "--device 1 (6 GiB free), or --memory-gib 2 or less, or start it when one of them has ended" in text
    assert [job.id for job in started_jobs(root)] == ["a"]
    ask(root, "c", 2.0)
    ask(root, "elsewhere", 6.0, device="1")
    ask(root, "without-grant", NAN)
    ask(root, "core", 100.0, device="core")
    end(first)
    ask(root, "b", 2.1)
    with pytest.raises(LimitError, match=r"6\.5 GiB asked, 0 GiB of 6 GiB free") as too_large:
        ask(root, "d", 6.1, device="1")
    assert "has ended" not in str(too_large.value), "that would not help"


def test_a_job_whose_supervisor_was_killed_counts_no_more(root: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        admit(root, record("killed", 6.0, pid=process.pid))
        with pytest.raises(LimitError):
            ask(root, "next", 1.0)
    finally:
        process.kill()
        process.wait()
    ask(root, "next", 1.0)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from(["0", "1"]), st.floats(0.01, 7.0)), min_size=1, max_size=12)
)
def test_grants_never_come_to_more_than_a_device_may_grant(
    steps: list[tuple[bool, str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever starts and ends; and a job is refused only where it does not fit."""
    root = tmp_path_factory.mktemp("jobs")
    publish(root, PublishedDevices(enforced=True, devices=GPUS))
    running = list[tuple[str, int, Admission]]()
    for number, (starts, device, memory_gib) in enumerate(steps):
        if not starts and running:
            end(running.pop(0)[2])
            continue
        needed = max(1, math.ceil(memory_gib * 2 - 1e-6))
        held = sum(granules for on, granules, _ in running if on == device)
        try:
            running.append((device, needed, ask(root, f"j{number}", memory_gib, device)))
            assert held + needed <= 12
        except LimitError:
            assert held + needed > 12


def test_jobs_that_start_at_once_never_get_the_same_memory(root: Path) -> None:
    barrier, admitted = threading.Barrier(8), list[str]()

    def start(name: str) -> None:
        barrier.wait()
        try:
            ask(root, name, 2.0)
        except LimitError:
            return
        admitted.append(name)

    threads = [threading.Thread(target=start, args=(f"j{k}",)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) <= 3
    assert [job.id for job in started_jobs(root)] == sorted(admitted), "nothing is left of the others"


def test_a_device_is_named_by_its_id_or_by_the_uuid_of_its_gpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_uuid = ask(root, "a", 1.0, device=UUIDS[1])
    assert (by_uuid.record.device_id, dict(by_uuid.environment)) == ("1", {"CUDA_VISIBLE_DEVICES": UUIDS[1]})
    assert started_jobs(root)[0].record.device_id == "1"
    assert dict(ask(root, "core", NAN, device="core").environment) == {}
    with pytest.raises(NotFoundError, match=f"did you mean {UUIDS[1]}"):
        ask(root, "b", 1.0, device="GPU-77b0a9c3-9e8e")
    with pytest.raises(NotFoundError, match="one of 0, GPU-5ad6e4f2-0c1d, 1, GPU-77b0a9c3-9e8f, core"):
        ask(root, "b", 1.0, device="9")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[0])
    assert dict(ask(root, "c", 1.0, device="0").environment) == {"CUDA_VISIBLE_DEVICES": UUIDS[0]}
    with pytest.raises(InvalidInputError, match="unset CUDA_VISIBLE_DEVICES"):
        ask(root, "b", 1.0, device="1")
    assert "b" not in [job.id for job in started_jobs(root)]


def test_an_agent_that_only_measures_refuses_nobody(root: Path) -> None:
    publish(root, PublishedDevices(enforced=False, devices=GPUS))
    assert ask(root, "a", 6.0).objection == ""
    assert "device 0 cannot back" in ask(root, "b", 1.0).objection
    assert "no such device" in ask(root, "c", 1.0, device="2").objection
    assert [job.id for job in started_jobs(root)] == ["a", "b", "c"]


def test_without_an_agent_or_devices_every_job_starts(root: Path, tmp_path: Path) -> None:
    publish(root, PublishedDevices(enforced=True, devices=()))
    publish(tmp_path / "none", PublishedDevices(enforced=True, devices=()))
    assert read_devices(root) is None
    assert not (tmp_path / "none").exists()
    assert ask(tmp_path / "jobs", "a", 1e6, device="any").record.device_id == "any"


@pytest.mark.parametrize("content", ["", "[1]", '{"enforced": true}', '{"enforced": true, "devices": [{"id": 1}]}'])
def test_a_broken_file_of_devices_is_refused(root: Path, content: str) -> None:
    (root / DEVICES).write_text(content)
    with pytest.raises(UnfitError, match="start the agent of this node again"):
        ask(root, "a", 1.0)


def test_a_file_of_devices_of_another_user_or_behind_a_link_is_refused(root: Path) -> None:
    target = root.parent / "target.json"
    (root / DEVICES).rename(target)
    (root / DEVICES).symlink_to(target)
    with pytest.raises(UnfitError, match="links are not followed"):
        ask(root, "a", 1.0)
    (root / DEVICES).unlink()
    target.rename(root / DEVICES)
    if os.getuid() == 0:
        os.chown(root / DEVICES, 65534, 65534)
        with pytest.raises(UnfitError, match="belongs to user 65534"):
            ask(root, "a", 1.0)


@pytest.fixture
def sleeper(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real `interfere run` of a job of 4 GiB on the first GPU."""
    process = subprocess.Popen([*RUN, "--jobs-folder", root, "--job", "first", "--memory-gib", "4", *SLEEP])
    yield process
    process.terminate()
    process.wait()


RUN = (sys.executable, "-m", "interfere", "run", "--device", UUIDS[0])
SLEEP = ("--", sys.executable, "-c", "import time; time.sleep(600)")


def test_the_command_refuses_and_starts_again_once_memory_is_free(root: Path, sleeper: subprocess.Popen[bytes]) -> None:
    from tests.waiting import wait_until

    wait_until(lambda: [job.id for job in started_jobs(root)] == ["first"], "the first job is announced")
    shows = ("--", sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    second = [*RUN, "--jobs-folder", str(root), "--job", "second", "--memory-gib", "2.5", *shows]
    refused = subprocess.run(second, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "2.5 GiB asked, 2 GiB of 6 GiB free" in refused.stderr
    sleeper.terminate()
    sleeper.wait()
    admitted = subprocess.run(second, capture_output=True, text=True, check=False)
    assert (admitted.returncode, admitted.stdout) == (0, f"{UUIDS[0]}\n"), admitted.stderr
