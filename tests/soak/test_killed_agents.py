"""kill -9 of a node's agent at random moments: nobody is ended wrongly, nobody is blocked, the next agent goes on."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.profiling.programs.process_tree import start_time
from interfere.serving.server import start_server
from tests.serving.adapters.node.test_agent import GRANT_MIB, PATIENCE_S, Node
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "1"))  # make soak: 50
SEED = int(os.environ.get("SOAK_SEED", "0"))


@pytest.fixture
def node(model_folder: Path, tmp_path: Path) -> Iterator[Node]:
    """A node with one device, and a server of its own."""
    server = start_server(Settings(model=model_folder, work=tmp_path / "work", port=0, grace_s=1.0, decision_workers=0))
    with PolicyClient(server.address, timeout_s=60.0) as client:
        made = Node(tmp_path, client, server.address)
        yield made
        made.stop()
    server.stop()


def start_agent(node: Node, log: Path) -> "subprocess.Popen[bytes]":
    """A real agent that enforces grants, once it has begun to watch."""
    config = node.folder / "agent.toml"
    device = f'[[devices]]\nid = "0"\ntype = "cpu-core"\nmemory_gib = 1\ngranule_gib = {GRANT_MIB / 1024}\n'
    times = f"interval_s = 0.2\nmax_gap_s = 20\ngrant_patience_s = {PATIENCE_S}\ngrace_s = 0.5\n"
    head = f'node = "n"\njobs = "{node.settings.jobs}"\nserver = "{node.settings.server}"\n'
    config.write_text(head + times + device)
    with log.open("wb") as out:
        command = [sys.executable, "-m", "interfere", "agent", "--config", str(config), "--enforce"]
        agent = subprocess.Popen(command, stdout=out, stderr=out)
    node.others.append(agent)
    wait_until(lambda: b"watching jobs" in log.read_bytes(), "the agent watches")
    return agent


def test_a_killed_agent_ends_nobody_wrongly_and_blocks_nobody(node: Node, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    neighbour = node.start("neighbour", 20, 0)
    supervisor = node.job("neighbour").record
    for number in range(ROUNDS):
        agent = start_agent(node, tmp_path / f"agent{number}.out")
        time.sleep(draw.uniform(0.0, 1.0))
        agent.kill()
        agent.wait()
        # Nobody waits for an agent: the neighbour goes on, and another job starts and ends.
        steps = len(neighbour.read_text().splitlines())
        wait_until(lambda steps=steps: len(neighbour.read_text().splitlines()) > steps, "the neighbour goes on")
        line = [
            sys.executable,
            "-m",
            "interfere",
            "run",
            "--jobs-folder",
            str(node.settings.jobs),
            "--job",
            f"j{number}",
        ]
        done = subprocess.run([*line, "--", "true"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert start_time(supervisor.supervisor_pid) == supervisor.supervisor_start
    assert (tmp_path / "neighbour.err").read_text() == "", "it was told nothing"
    # The last agent does what the killed ones would have done: who leaks is ended, the neighbour is not.
    start_agent(node, tmp_path / "last.out")
    node.start("leak", 100, 0)
    assert node.running[-1].wait(120) == 143
    assert "interfere ends this job: held " in (tmp_path / "leak.err").read_text()
    assert node.job("neighbour").supervisor_lives()
