"""The site in a box: its streams, its clocks, and a quick run on a real Slurm that does not repeat what is done."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from examples.site.__main__ import QUICK
from examples.site.arms import Arm, WorkloadCost
from examples.site.core_clock import HIERARCHIES, CoreClock, CoreGroups
from examples.site.greedy import GreedyClient
from examples.site.replaying import SiteReplay, replayed_means, slowdowns_met
from examples.site.report import paired_interval, site_report
from examples.site.run_times import LAUNCH_S, control_share, median_turnover_s, program_times
from examples.site.stream import SHORTEST_S, stream_of
from interfere.data.loading import load_table
from interfere.data.traces import JobTrace, TraceJob, write_trace
from interfere.errors import UnfitError
from interfere.profiling.affinity import allowed_cores
from interfere.records import Device, Job, Snapshot
from interfere.reports.document import Section, Table
from tests.serving.adapters.slurm.conftest import needs_slurm
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint(time.time(), time.process_time())"


@pytest.mark.parametrize("traced", [False, True])
def test_every_arm_gets_the_same_jobs_at_the_load_asked_for(tmp_path: Path, *, traced: bool) -> None:
    settings = replace(QUICK, jobs=40, load=0.8)
    if traced:
        rng = np.random.default_rng(0)
        times = np.cumsum(rng.exponential(600.0, 100))
        rows = zip(times, rng.lognormal(7.0, 2.0, 100), rng.choice([1, 1, 8, 16], 100), strict=True)
        jobs = (
            TraceJob(job_id=f"j{k}", workload="", arrival_s=float(at), gpus=int(gpus), duration_s=float(seconds))
            for k, (at, seconds, gpus) in enumerate(rows)
        )
        write_trace(tmp_path, JobTrace(name="t", jobs=tuple(jobs)))
        settings = replace(settings, trace=tmp_path)
    stream = stream_of(settings, 3)
    assert stream == stream_of(settings, 3) != stream_of(settings, 4)
    offered = sum(job.alone_s * job.gpus for job in stream) / (stream[-1].arrival_s * settings.devices)
    assert offered == pytest.approx(0.8)
    assert min(job.alone_s for job in stream) == pytest.approx(SHORTEST_S)
    assert max(job.alone_s for job in stream) == pytest.approx(settings.longest_s)
    gangs = [job for job in stream if job.gpus > 1]
    assert gangs
    assert {job.workload for job in gangs} == {settings.gang_workload}


def test_the_interval_is_that_of_paired_differences() -> None:
    found = paired_interval([1.0, 3.0, 8.0], [2.0, 5.0, 11.0])
    half = 4.302653 / math.sqrt(3.0)  # Student's t, two degrees of freedom, of differences -1, -2, -3
    assert found.value == pytest.approx(-2.0 / 6.0)
    assert (found.low, found.high) == (pytest.approx((-2.0 - half) / 6.0), pytest.approx((-2.0 + half) / 6.0))
    assert not paired_interval([1.0], [2.0]).has_interval


def made_run(arm: Arm, repetition: int, *, gap_s: float, factor: float = 1.0) -> dict[str, Any]:
    """The record of a run in which two jobs follow each other on each node."""
    jobs = []
    for node in ("n0", "n1"):
        end_s = 1000.0
        for workload in ("stream", "request-server"):
            begin_s, end_s = end_s + gap_s, end_s + gap_s + 5.0 * factor
            jobs.append(
                {
                    "workload": workload,
                    "nodes": [node],
                    "gpus": 1,
                    "nominal_s": 5.0,
                    "id": f"{node}-{workload}",
                    "index": len(jobs),
                    "restarts": 0,
                    "wait_s": begin_s - 900.0,
                    "completion_s": end_s - 900.0,
                    "wall_completion_s": end_s - 900.0,
                    "end_unix_s": end_s,
                }
            )
    cores = {"cores": 2, "wall_s": 100.0, "control_s": 2.0 if arm is Arm.SLURM else 6.0}
    cores |= dict.fromkeys(("job_s", "others_s", "taken_s"), 1.0)
    found = {"meetings": [], "predictions": {}}
    return {"arm": arm.value, "repetition": repetition, "jobs": jobs, **found, **cores}


def test_what_programs_take_to_end_is_read_from_runs_under_slurm_alone() -> None:
    runs = [
        made_run(Arm.SLURM, 0, gap_s=0.75, factor=1.1),
        made_run(Arm.SLURM, 1, gap_s=1.15, factor=1.3),
        made_run(Arm.OURS, 0, gap_s=9.0, factor=9.0),
    ]
    times = program_times(runs)
    assert times.stretch == {"stream": pytest.approx(1.2), "request-server": pytest.approx(1.2)}
    assert times.shut_down_s == {"stream": pytest.approx(0.95 - LAUNCH_S)}, "nobody followed a request-server"
    assert median_turnover_s(runs[:1], seats=1) == pytest.approx(0.75)
    assert control_share(runs, Arm.OURS) - control_share(runs, Arm.SLURM) == pytest.approx(0.02)
    assert program_times(runs[2:]).stretch == {}


def test_the_report_compares_each_stream_with_its_replay() -> None:
    runs = [made_run(arm, number, gap_s=1.0 + number) for number in (0, 1) for arm in (Arm.SLURM, Arm.OURS)]
    means = {Arm.SLURM: (110.0, 112.0), Arm.OURS: (105.5, 107.0)}
    report = site_report(runs, {"by a table": means}, QUICK, quick=False)
    (section,) = (part for part in report.parts if isinstance(part, Section) and part.title == "Replayed")
    by_arm, by_stream = (part for part in section.parts if isinstance(part, Table))
    happened_s = [float(np.mean([job["completion_s"] for job in run["jobs"]])) for run in runs[::2]]
    assert [row[:4] for row in by_stream.rows[:2]] == [
        ("slurm", float(k), happened_s[k], means[Arm.SLURM][k]) for k in (0, 1)
    ]
    assert by_stream.rows[2][4] == pytest.approx(105.5 / happened_s[0] - 1.0)
    assert by_arm.rows[0][3] == pytest.approx(111.0 / np.mean(happened_s) - 1.0)
    assert math.isnan(median_turnover_s([{"jobs": []}], seats=2)), "no job waited"


def site_replay(runs: Sequence[Mapping[str, Any]] = (), **given: Any) -> SiteReplay:
    costs = {name: WorkloadCost(start_up_s=0.2, step_s=0.01) for name in (*QUICK.workloads, QUICK.gang_workload)}
    return SiteReplay.of(replace(QUICK, jobs=20), costs, load_table("cpu"), runs, **given)


def test_the_replay_knows_every_arm() -> None:
    means = replayed_means(site_replay(), [0, 1], [Arm.SLURM, Arm.SHARING, Arm.GREEDY, Arm.OURS])
    assert all(math.isfinite(value) and value > SHORTEST_S for values in means.values() for value in values)
    assert means[Arm.OURS][1] < means[Arm.SLURM][1], "these workloads pause, and the first stream has taught it that"


def test_a_replay_takes_times_from_other_repetitions_alone() -> None:
    own, other = (site_replay([made_run(Arm.SLURM, number, gap_s=2.0, factor=1.2)]) for number in (0, 1))
    (plain,), (as_plain,), (longer,) = (each.means(Arm.SLURM, [0]) for each in (site_replay(), own, other))
    assert as_plain == plain
    assert longer > plain + 1.0, "a place that stays empty delays all that wait, too"


def test_a_replay_takes_the_slowdowns_that_the_other_streams_met() -> None:
    pair = {"workload": "spectrogram", "neighbour": "request-server"}
    runs = [
        {"repetition": 0, "meetings": [pair | {"slowdown": 9.0, "seconds": 3.0}]},
        {"repetition": 1, "meetings": [pair | {"slowdown": x, "seconds": 3.0} for x in (2.0, 3.0, 4.0)]},
        {"repetition": 1, "meetings": [pair | {"slowdown": 99.0, "seconds": 0.1}]},
    ]
    met = slowdowns_met(runs)
    assert met == {0: {("spectrogram", "request-server"): 3.0}, 1: {("spectrogram", "request-server"): 9.0}}
    as_measured, worse = (site_replay(met=each).means(Arm.SHARING, [0, 1]) for each in (None, met))
    assert sum(worse) > sum(as_measured)


class Predicting(GreedyClient):
    """A greedy client whose server predicts by a table that the test makes up."""

    slowdowns: ClassVar[dict[tuple[str, str], float]]

    def _pair(self, job: Job, host: Job, device: Device, snapshot: Snapshot) -> tuple[float, float]:
        names = job.workload, host.workload
        return self.slowdowns[names], self.slowdowns[names[::-1]]


def test_greedy_takes_idle_devices_first_and_then_the_cheapest_host_that_pays() -> None:
    pending = tuple(Job(id=f"j{k}", workload="new") for k in range(3))
    hosts = tuple(
        Device(id=f"d{k}", type="t", residents=(Job(id=f"r{k}", workload=name),)) for k, name in enumerate("ab")
    )
    snapshot = Snapshot(pending=pending, devices=(*hosts, Device(id="d2", type="t", seats=1)))
    client = Predicting("127.0.0.1:1")
    client.slowdowns = {("new", "a"): 1.5, ("a", "new"): 1.5, ("new", "b"): 1.2, ("b", "new"): 1.2}
    assert [(a.kind.value, a.device_id, a.partner_id) for a in client.match(snapshot).actions] == [
        ("start_alone", "d2", ""),
        ("start_shared", "d1", "r1"),
        ("start_shared", "d0", "r0"),
    ]
    client.slowdowns |= {("new", "a"): 1.9, ("a", "new"): 1.9}  # 2 ÷ 1.9 is below the least joint throughput, 1.15
    assert [a.kind.value for a in client.match(snapshot).actions] == ["start_alone", "start_shared", "wait"]
    client.close()


def needs_control_groups() -> None:
    """Skip without control groups; where REQUIRE_ALL is set (CI) that is a failure."""
    try:
        with CoreGroups(allowed_cores()[:2]):
            return
    except UnfitError as error:
        if os.environ.get("REQUIRE_ALL"):
            pytest.fail(error.one_line)
        pytest.skip(error.one_line)


def test_the_clock_of_a_device_stops_for_other_programs_and_not_for_the_control_plane() -> None:
    needs_control_groups()
    cores = allowed_cores()[:2]
    leave = "; ".join(f"echo $$ >{hierarchy}/cgroup.procs" for hierarchy in HIERARCHIES)
    with CoreGroups(cores) as groups, CoreClock(groups) as clock:
        control = spinning(cores[0], "true")
        others = [spinning(cores[1], leave) for _ in range(2)]
        try:
            waited_s, taken_s, used_s = zip(*(one_job(groups, clock, device) for device in range(2)), strict=True)
        finally:
            for process in (control, *others):
                process.kill()
                process.wait()
    assert taken_s[1] == pytest.approx(waited_s[1], rel=0.2, abs=0.1), "all that the job waited for is others' doing"
    assert taken_s[1] > 0.5 * used_s[1], "two others beside it"
    assert waited_s[0] - taken_s[0] > 0.5 * used_s[0], "the control plane has as much of the core as the job"


def spinning(core: int, before: str) -> "subprocess.Popen[bytes]":
    """A program that keeps a core busy, after a shell command."""
    words = ["sh", "-c", f"{before}; exec taskset -c {core} $0 -c 'while True: pass'", sys.executable]
    return subprocess.Popen(words)


def one_job(groups: CoreGroups, clock: CoreClock, device: int) -> tuple[float, float, float]:
    """Run a job of half a second of processor time. Return for how long it was ready and did not run, what the clock
    says that others took of it, and the processor time that it used."""
    clock.read()
    begin_s = time.time()
    words = ["sh", "-c", f"{groups.join_command}; date +%s.%N; exec $0 -c '{SPIN}'", sys.executable]
    env = os.environ | {"SLURMD_NODENAME": groups.nodes[device]}
    job = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    clock.read()
    started_s, ended_s, used_s = map(float, job.stdout.split())
    return ended_s - started_s - used_s, float(clock.taken_s(begin_s, time.time())[device]), used_s


def processes_of(folder: Path) -> list[str]:
    """The command lines of the processes that belong to a cluster below the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if b"SLURM_CONF=" + os.fsencode(folder) in path.read_bytes():
                found.append((path.parent / "cmdline").read_text())
    return found


def interrupt(command: list[str], number: int, folder: Path) -> None:
    """Start a site, and send it a signal once its own controller is there."""
    file = folder / "now" / "slurm" / "slurmctld.pid"
    earlier = file.read_text() if file.exists() else ""

    def has_started() -> bool:
        with suppress(FileNotFoundError):  # the site removes what an earlier one has left
            return file.read_text() not in ("", earlier)
        return False

    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as site:
        wait_until(has_started, "a controller")
        site.send_signal(number)


@pytest.mark.slurm
@pytest.mark.timeout(900)
def test_a_quick_site_runs_to_its_end_and_is_not_run_again(tmp_path: Path) -> None:
    needs_slurm()
    needs_control_groups()
    command = [sys.executable, "-m", "examples.site", "--quick", "--folder", str(tmp_path), "--arms", "slurm,ours"]
    interrupt(command, signal.SIGKILL, tmp_path)
    interrupt(command, signal.SIGTERM, tmp_path)
    assert not processes_of(tmp_path), "neither of the run that was killed nor of the one that was ended"
    assert list(tmp_path.glob("*-0.json")) == []
    first = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr[-3000:]
    runs = {arm: json.loads((tmp_path / f"{arm}-0.json").read_text()) for arm in ("slurm", "ours")}
    streams = [[(job["workload"], job["arrival_s"], job["gpus"]) for job in run["jobs"]] for run in runs.values()]
    assert streams[0] == streams[1] == [(j.workload, j.arrival_s, j.gpus) for j in stream_of(QUICK, 0)]
    for run in runs.values():
        assert all(job["completion_s"] > job["wait_s"] > 0.0 for job in run["jobs"])
        assert {tuple(job["nodes"]) for job in run["jobs"] if job["gpus"] > 1} == {("n0", "n1")}
    assert runs["slurm"]["meetings"] == [], "nobody shares a whole GPU"
    assert runs["ours"]["rounds"] > 0
    assert (tmp_path / "learned" / "ours-0").is_dir(), "what the next stream begins with"
    sections = {part["title"]: part for part in json.loads(first.stdout)["parts"] if part["kind"] == "section"}
    (table,) = (part for part in sections["What happened"]["parts"] if part["kind"] == "table")
    assert [row[0] for row in table["rows"]] == ["slurm", "ours"]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    again = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == written
    other = subprocess.run([*command[:3], *command[4:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "the folder has runs of other settings" in other.stderr
