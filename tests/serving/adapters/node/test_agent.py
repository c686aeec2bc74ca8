"""The node's agent with real jobs, real processes and a real server: who leaks is warned and ended, and nobody else."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.errors import ConflictError, InvalidInputError
from interfere.monitoring.job_memory import cgroup_of
from interfere.profiling.programs.process_tree import ProcessTable, start_time
from interfere.profiling.programs.started_jobs import (
    JobRecord,
    Notice,
    NoticeKind,
    StartedJob,
    end_forcibly,
    make_folder,
    send,
    started_jobs,
    write_record,
)
from interfere.records import MemoryUsage, Outcome
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.node.agent import app
from interfere.serving.adapters.node.port import NodeChange, NodeDevice, NodePort, NodeSettings
from interfere.serving.adapters.round import Advisor, Round
from interfere.serving.server import RunningServer
from tests.waiting import wait_until

HOG = Path(__file__).with_name("hog.py")
GIB = 2.0**30
PATIENCE_S, ROUND_S = 1.0, 0.2
MAX_GAP_S = 20.0  # a busy machine delays rounds
GRANT_MIB = 64
AgentRound = Round[StartedJob, NodeChange]
NodeAdvisor = Advisor[StartedJob, Any, NodeChange]


class Node:
    """A node with one device, jobs that `interfere run` starts, and an agent whose rounds the test calls."""

    def __init__(self, folder: Path, client: PolicyClient, server: str) -> None:
        self.folder, self.client = folder, client
        self.settings = NodeSettings(
            server=server,
            node="n",
            jobs=folder / "jobs",
            max_gap_s=MAX_GAP_S,
            grant_patience_s=PATIENCE_S,
            grace_s=0.5,
            devices=(NodeDevice(id="0", type="cpu-core", memory_gib=1.0, granule_gib=GRANT_MIB / 1024),),
        )
        self.running: list[subprocess.Popen[bytes]] = []
        self.others: list[subprocess.Popen[bytes]] = []  # that no agent was given

    def agent(self, *, enforce: bool = True) -> NodeAdvisor:
        port = NodePort(self.settings, enforce=enforce)
        return Advisor(port, self.client, port, self.settings, AdapterMetrics("node", {}))

    def start(self, name: str, *hog: object, options: tuple[str, ...] = ("--memory-gib", "0.0625")) -> Path:
        """Start a job of `hog.py`, and wait until it holds its memory; the file that it writes."""
        file = self.folder / f"{name}.txt"
        line = [sys.executable, "-m", "interfere", "run", "--job", name, "--workload", "w", "--grace-s", "0.5"]
        line += ["--jobs-folder", str(self.settings.jobs), *options, "--", sys.executable, str(HOG)]
        steady, leak, *more = map(str, hog)
        with (self.folder / f"{name}.err").open("wb") as errors:
            self.running.append(subprocess.Popen([*line, steady, leak, str(file), *more], stderr=errors))
        wait_until(file.exists, f"{name} runs")
        return file

    def job(self, name: str) -> StartedJob:
        return next(job for job in started_jobs(self.settings.jobs) if job.id == name)

    def processes(self, name: str) -> tuple[int, ...]:
        return ProcessTable().descendants(self.job(name).record.supervisor_pid)

    def rounds_until(self, agent: NodeAdvisor, done: Callable[[AgentRound], bool]) -> list[AgentRound]:
        """Run rounds of the agent until one fulfils a condition; all of them."""
        rounds: list[AgentRound] = []

        def step() -> bool:
            if rounds:
                time.sleep(ROUND_S)
            rounds.append(agent.round())
            return done(rounds[-1])

        wait_until(step, "a round of the agent")
        return rounds

    def stop(self) -> None:
        for one in self.running:
            one.terminate()
            with suppress(subprocess.TimeoutExpired):
                one.wait(20)
        for one in (*self.running, *self.others):
            one.kill()
            one.wait()


@pytest.fixture
def node(tmp_path: Path, client: PolicyClient, server: RunningServer) -> Iterator[Node]:
    made = Node(tmp_path, client, server.address)
    yield made
    made.stop()


def observed(client: PolicyClient, kind: type, job: str) -> list:  # type: ignore[type-arg]
    entries = client.observation_log(limit=1000).entries
    return [e.observation for e in entries if isinstance(e.observation, kind) and e.observation.job_id == job][::-1]


def notices(done: AgentRound, job: str, kind: NoticeKind) -> list[str]:
    return [each.notice.reason for each in done.changes if each.job.id == job and each.notice.kind is kind]


def samples_until_covered(times_s: list[float], since_s: float) -> int:
    """The index of the first of these samples at which those after `since_s` cover the patience."""
    covered_s = 0.0
    for k, (before_s, at_s) in enumerate(pairwise(times_s), start=1):
        if before_s > since_s and at_s - before_s <= MAX_GAP_S:
            covered_s += at_s - before_s
        if covered_s >= PATIENCE_S:
            return k
    return len(times_s)


@pytest.mark.journey
def test_a_leaking_job_is_warned_and_ended_and_nobody_else(node: Node, tmp_path: Path) -> None:
    # 1. A job within its grant, and processes that the agent was not given: one says that it belongs to a job.
    neighbour = node.start("neighbour", 20, 0)
    token = {"INTERFERE_JOB": node.job("neighbour").record.token[::-1]}
    others = [
        subprocess.Popen([sys.executable, str(HOG), "100", "0", str(tmp_path / f"other{k}")], env=os.environ | env)
        for k, env in enumerate(({}, token))
    ]
    node.others += others
    since = [start_time(each.pid) for each in others]
    # 2. A job that leaks, in a child of its own session that ignores SIGTERM.
    leak = node.start("leak", 20, 80, "ignore")
    pids = node.processes("leak")
    assert len(pids) == 2
    rounds = node.rounds_until(node.agent(), lambda done: bool(notices(done, "leak", NoticeKind.END)))
    (reason,) = notices(rounds[-1], "leak", NoticeKind.END)
    assert " GiB of 0.0625 GiB granted for " in reason
    assert node.running[-1].wait(60) == 128 + signal.SIGTERM
    # 3. It was warned before, and ended at the first sample at which it can have been above its grant for so long.
    warned = [k for k, done in enumerate(rounds) if notices(done, "leak", NoticeKind.WARNING)]
    rows = [line.split() for line in leak.read_text().splitlines()]
    above_s = next(float(at_s) for at_s, mib in rows if float(mib) > 1.05 * GRANT_MIB)
    assert len(rounds) - 1 <= samples_until_covered([done.at_s for done in rounds], above_s)
    assert len(warned) == 1
    assert warned[0] < len(rounds) - 1
    said = (tmp_path / "leak.err").read_text()
    assert said.index("interfere warns this job: it holds ") < said.index(f"interfere ends this job: {reason}")
    # 4. None of its processes is left, and its end was reported.
    assert not any(map(start_time, pids))
    agent = node.agent()
    agent.round()
    (ended,) = observed(node.client, Outcome, "leak")
    assert (ended.kind.value, ended.reason) == ("ended", reason)
    # 5. Nobody else was told or ended: the neighbour goes on stepping.
    assert [start_time(each.pid) for each in others] == since
    steps = len(neighbour.read_text().splitlines())
    wait_until(lambda: len(neighbour.read_text().splitlines()) > steps, "the neighbour goes on")
    assert (tmp_path / "neighbour.err").read_text() == ""
    assert not [c for done in rounds for c in done.changes if c.job.id != "leak"]
    (line,) = [grant for grant in node.client.grants(scope="nodes/n").grants if grant.job_id == "neighbour"]
    assert (line.bytes, line.times_exceeded) == (GRANT_MIB * 2**20, 0)


@pytest.mark.journey
def test_a_dry_run_and_a_job_without_a_grant_end_nobody(node: Node, tmp_path: Path) -> None:
    node.start("unsaid", 100, 0, options=())
    node.start("leak", 100, 0)
    rounds = node.rounds_until(node.agent(enforce=False), lambda done: bool(notices(done, "leak", NoticeKind.END)))
    assert not [change for done in rounds for change in done.changes if change.job.id != "leak"]
    assert all(each.poll() is None for each in node.running)
    assert (tmp_path / "leak.err").read_text() == ""
    windows = observed(node.client, MemoryUsage, "leak")
    assert windows
    assert all(one.min_bytes > 100 * 2**20 and one.end_s == two.start_s for one, two in pairwise(windows))


@pytest.mark.journey
def test_a_job_whose_supervisor_was_killed_is_ended_whole(node: Node) -> None:
    node.start("orphan", 10, 0, "ignore")
    job, pids = node.job("orphan"), node.processes("orphan")
    os.kill(job.record.supervisor_pid, signal.SIGKILL)
    node.running[-1].wait()
    rounds = node.rounds_until(node.agent(), lambda done: done.observations["applied"] > 0)
    assert not any(map(start_time, pids))
    assert notices(rounds[0], "orphan", NoticeKind.END) == ["its supervisor was killed"]
    (ended,) = observed(node.client, Outcome, "orphan")
    assert ended.reason == "its supervisor was killed"


@pytest.mark.journey
def test_a_supervisor_that_was_stopped_does_not_save_its_job(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfere.serving.adapters.node.port.ACT_S", 0.5)
    node.start("stopped", 100, 0, "ignore")
    pids = (node.job("stopped").record.supervisor_pid, *node.processes("stopped"))
    os.kill(pids[0], signal.SIGSTOP)
    node.rounds_until(node.agent(), lambda done: not any(map(start_time, pids)))


@pytest.mark.journey
def test_a_job_with_a_limit_is_measured_in_its_control_group(node: Node) -> None:
    own = cgroup_of(os.getpid())
    if own is None or not os.access(own.folder, os.W_OK):
        pytest.fail("this test needs a memory control group below which it may make others")
    node.start("limited", 30, 0, options=("--memory-gib", "0.0625", "--limit-gib", "0.25"))
    job = node.job("limited")
    group = own.folder / job.record.cgroup
    assert (group / "memory.limit_in_bytes").read_text() == f"{2**28}\n"
    port = NodePort(node.settings, enforce=False)
    (port._read_jobs(ProcessTable()), None)
    watched = port._watched_job(job)
    assert watched.cgroup is not None
    assert watched.cgroup.folder == group
    assert 30 * 2**20 < watched.cgroup.working_set_bytes() < 64 * 2**20
    node.running[-1].terminate()
    assert node.running[-1].wait(60) == 128 + signal.SIGTERM
    assert not group.exists()


def test_a_folder_of_another_user_or_a_wrong_record_is_no_job(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "mine")
    with pytest.raises(ConflictError, match="of this name"):
        make_folder(tmp_path, "mine")
    for name in ("", "..", "a/b", ".hidden", "line\nbreak"):
        with pytest.raises(InvalidInputError):
            make_folder(tmp_path, name)
    assert started_jobs(tmp_path) == []
    for content in ("", "{}", "[1]", '{"job_id": "other"}'):
        (folder / "job.json").write_text(content)
        assert started_jobs(tmp_path) == []


def test_a_record_that_names_a_process_of_another_user_ends_nothing(tmp_path: Path) -> None:
    """A user may write what it likes into its own record: the process must be the user's own."""
    victim = subprocess.Popen(["sleep", "60"])
    try:
        folder = make_folder(tmp_path, "liar")
        record = JobRecord(
            job_id="liar",
            workload="w",
            device_id="0",
            supervisor_pid=victim.pid,
            supervisor_start=start_time(victim.pid),
            since_s=0.0,
            token="t" * 32,
        )
        write_record(folder, record)
        (mine,) = started_jobs(tmp_path)
        of_other = replace(mine, user_id=65534)
        assert mine.supervisor_lives()
        assert not of_other.supervisor_lives()
        assert end_forcibly(of_other, (victim.pid,)) == 0
        assert victim.poll() is None
        assert end_forcibly(mine, ()) == 1
        assert victim.wait(20) == -signal.SIGKILL
    finally:
        victim.kill()


def test_a_notice_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "jobs", "linked")
    target = tmp_path / "target"
    target.write_text("kept")
    (folder / "notices.jsonl").unlink()
    (folder / "notices.jsonl").symlink_to(target)
    record = JobRecord(
        job_id="linked", workload="w", device_id="0", supervisor_pid=1, supervisor_start="1", since_s=0.0, token="t"
    )
    write_record(folder, record)
    (job,) = started_jobs(tmp_path / "jobs")
    with pytest.raises(OSError, match="link"):
        send(job, Notice(kind=NoticeKind.END, reason="r", at_s=1.0))
    assert target.read_text() == "kept"


def test_the_command_prints_a_round(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    device = '[[devices]]\nid = "0"\ntype = "cpu-core"\nmemory_gib = 1\n'
    config.write_text(f'node = "n"\njobs = "{tmp_path / "jobs"}"\nserver = "{node.settings.server}"\n{device}')
    done = CliRunner().invoke(app, ["--config", str(config), "--once", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["notices"] == []
    config.write_text(config.read_text() + device)
    refused = CliRunner().invoke(app, ["--config", str(config), "--once"])
    assert isinstance(refused.exception, InvalidInputError)
    assert "two have one id" in str(refused.exception)
