"""Laws of sampled memory: windows say what was sampled, short spikes end nobody, and both versions of control groups
mean the same."""

import math
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.monitoring.job_memory import (
    MemoryCgroup,
    MemoryWindows,
    WatchedJob,
    cgroup_of,
    held_bytes,
    memory_usages,
)
from interfere.policy.ledger.overuse import find_overuse
from interfere.profiling.programs.process_tree import ProcessTable
from interfere.records import Device, Grant, Job, Limits, MemoryUsage
from tests.waiting import wait_until

GIB = 2.0**30
SAMPLE_S, MAX_GAP_S, PATIENCE_S = 1.0, 2.5, 20.0
JOB = Job(id="j", workload="w")
DEVICE = Device(id="d", type="t", memory_bytes=80 * GIB, granule_bytes=GIB, residents=(JOB,))
GRANT = Grant(job_id="j", workload="w", device_ids=("d",), bytes=8 * GIB, since_s=0.0)
LIMITS = Limits.of(grant_patience_s=PATIENCE_S)
WATCHED = WatchedJob(id="j", run_id="j", workload="w", device_id="d", device_type="t", limit_bytes=8 * GIB * 1.05)
laws = settings(max_examples=100, deadline=None)


def usages(samples: list[tuple[float, float]], report_every_s: float = 30.0) -> list[MemoryUsage]:
    """The windows of samples (time, GiB), as the agent reports them."""
    windows = MemoryWindows(report_every_s, MAX_GAP_S)
    return [
        MemoryUsage(
            observation_id=f"{start_s}",
            job_id="j",
            workload="w",
            device_type="t",
            device_id="d",
            start_s=start_s,
            end_s=end_s,
            bytes=most,
            min_bytes=least,
        )
        for at_s, gib in samples
        for start_s, end_s, least, most in windows.add(WATCHED, at_s, gib * GIB)
    ]


def ended_at(samples: list[tuple[float, float]]) -> list[float]:
    """The times at which the job of these samples is ended, of those at which it has just been above its grant."""
    made = usages(samples)[::-1]
    ends_s = [one[0] for one, two in pairwise(samples) if one[1] > 8.4 >= two[1]] + [samples[-1][0]]
    return [
        now_s
        for now_s in ends_s
        if (found := find_overuse(JOB, DEVICE, GRANT, [w for w in made if w.end_s <= now_s], LIMITS, now_s))
        and found.is_certain
    ]


def trace(rng: random.Random, *spikes_s: float) -> list[tuple[float, float]]:
    """Samples at irregular times of a job that holds too much for these times, and less between them for longer than
    the largest gap between samples."""
    changes, at_s = [], 1.0
    for spike_s in spikes_s:
        start_s = at_s + rng.uniform(MAX_GAP_S, 4 * MAX_GAP_S)
        at_s = start_s + spike_s
        changes.append((start_s, at_s))
    times_s, samples = 1.0, []
    while times_s < at_s + 5:
        is_above = any(start_s <= times_s < end_s for start_s, end_s in changes)
        samples.append((times_s, rng.uniform(8.5, 12) if is_above else rng.uniform(1, 8.4)))
        times_s += rng.uniform(0.4, MAX_GAP_S) if rng.random() < 0.3 else rng.uniform(0.9, 1.1) * SAMPLE_S
    return samples


def test_a_thousand_traces_of_spikes_shorter_than_the_patience_end_nobody() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        spikes_s = [rng.uniform(0.2, 0.999) * PATIENCE_S for _ in range(rng.randint(1, 5))]
        assert ended_at(trace(rng, *spikes_s)) == []


def test_a_stay_above_the_grant_for_the_patience_and_two_samples_is_ended() -> None:
    rng = random.Random(0)
    for _ in range(100):
        assert len(ended_at(trace(rng, rng.uniform(0.2, 0.9) * PATIENCE_S, PATIENCE_S + 2 * MAX_GAP_S))) == 1


samples_of_a_job = st.lists(st.tuples(st.floats(0.1, 4.0), st.floats(0.0, 12.0)), min_size=1, max_size=40).map(
    lambda steps: [(10.0 + sum(step for step, _ in steps[:k]), steps[k][1]) for k in range(len(steps))]
)


@laws
@given(samples_of_a_job)
def test_windows_say_what_was_sampled(samples: list[tuple[float, float]]) -> None:
    made = usages(samples, report_every_s=5.0)
    times_s = [at_s for at_s, _ in samples]
    for one, two in pairwise(made):
        assert one.end_s <= two.start_s
        if one.end_s < two.start_s:  # only where samples are too far apart
            gaps = [b - a for a, b in pairwise(times_s) if one.end_s <= a and b <= two.start_s]
            assert max(gaps) > MAX_GAP_S
    for each in made:
        inside = [gib * GIB for at_s, gib in samples if each.start_s <= at_s <= each.end_s]
        assert (each.min_bytes, each.bytes) == (min(inside), max(inside))
        assert all(b - a <= MAX_GAP_S for a, b in pairwise(t for t in times_s if each.start_s <= t <= each.end_s))
    # Whatever was above the limit at the last sample is reported by then.
    if len(samples) > 1 and samples[-1][1] > 8.4 and times_s[-1] - times_s[-2] <= MAX_GAP_S:
        assert made[-1].end_s == times_s[-1]


def test_a_job_within_its_grant_is_reported_seldom() -> None:
    assert len(usages([(float(k), 4.0) for k in range(1, 122)])) == 4


def recorded_group(folder: Path, version: int, usage: int, inactive: int) -> MemoryCgroup:
    """A control group as the kernel shows it: version 1 of this machine, version 2 by the kernel's documentation."""
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("11\n12\n")
    if version == 1:
        (folder / "memory.usage_in_bytes").write_text(f"{usage}\n")
        (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
        (folder / "memory.stat").write_text(f"cache 1\ninactive_file 7\ntotal_inactive_file {inactive}\n")
    else:
        (folder / "memory.current").write_text(f"{usage}\n")
        (folder / "memory.max").write_text("max\n")
        (folder / "memory.stat").write_text(f"anon 1\nfile 9\ninactive_file {inactive}\n")
    return MemoryCgroup(folder)


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_of_control_groups_give_the_working_set(tmp_path: Path, version: int) -> None:
    group = recorded_group(tmp_path / "job", version, 1000, 300)
    recorded_group(tmp_path / "job" / "step_0", version, 1, 0)
    assert group.working_set_bytes() == 700.0
    assert sorted(group.process_ids()) == [11, 11, 12, 12]
    assert math.isnan(MemoryCgroup(tmp_path / "gone").working_set_bytes())
    assert MemoryCgroup(tmp_path / "gone").process_ids() == ()


@pytest.mark.parametrize(
    ("version", "lines", "folder"),
    [
        (1, "9:name=systemd:/\n4:memory:/slurm/job_7\n0::/\n", "memory/slurm/job_7"),
        (2, "0::/system.slice/slurmstepd.scope/job_7\n", "system.slice/slurmstepd.scope/job_7"),
    ],
)
def test_the_group_of_a_process_is_found(tmp_path: Path, version: int, lines: str, folder: str) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(lines)
    group = recorded_group(tmp_path / "cgroups" / folder, version, 5, 0)
    assert cgroup_of(7, proc=tmp_path / "proc", root=tmp_path / "cgroups") == group
    assert cgroup_of(8, proc=tmp_path / "proc", root=tmp_path / "cgroups") is None


def test_a_tree_of_processes_is_measured_whole() -> None:
    """20 MiB in a process and 30 MiB in its child."""
    holding = "import os,sys,time; held = bytearray(os.urandom(1 << 20)) * {0}; {1}; print('held', flush=True); "
    holding += "time.sleep(60)"
    inner = holding.format(30, "pass")
    outer = holding.format(20, f"import subprocess; p = subprocess.Popen([sys.executable, '-c', {inner!r}])")
    process = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["held\n"] * 2
        table = ProcessTable()
        below = table.descendants(process.pid)
        assert len(below) == 1
        assert process.pid in table.descendants(os.getpid())
        child_bytes, both_bytes = table.private_bytes(below), table.private_bytes((process.pid, *below))
        assert 30 * 2**20 < child_bytes < 60 * 2**20
        assert both_bytes > child_bytes + 20 * 2**20
    finally:
        for pid in (*ProcessTable().descendants(process.pid), process.pid):
            os.kill(pid, 9)
        process.wait()
    wait_until(lambda: ProcessTable().private_bytes(below) == 0, "nothing is held by who is gone")


def test_memory_on_a_gpu_is_that_of_the_jobs_own_processes() -> None:
    table = {"GPU-aa": {11: 3 * GIB, 99: 50 * GIB}, "GPU-bb": {11: 7 * GIB}}
    on_gpu = WatchedJob(
        id="j", run_id="j", workload="w", device_id="n/0", device_type="a100", gpu_uuid="GPU-aa", pids=(11, 12)
    )
    processes = ProcessTable()
    assert held_bytes(on_gpu, processes, table) == 3 * GIB
    assert math.isnan(held_bytes(on_gpu, processes, {}))  # a driver that does not answer says nothing
    windows = MemoryWindows(60.0, MAX_GAP_S)
    for at_s, answer in ((1.0, table), (2.0, {}), (3.0, table)):
        assert memory_usages([on_gpu], windows, answer, at_s, "node/c", processes) == ()
    unanswered = memory_usages([on_gpu], MemoryWindows(60.0, MAX_GAP_S), {}, 1.0, "node/c", processes)
    assert unanswered == ()
