"""Workers are forked from a process that has imported everything; whichever process is killed is replaced."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import grpc
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.server import RunningServer
from interfere.serving.workers.fork_server import ForkServer
from interfere.serving.workers.process import NICENESS, OOM_SCORE
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.converter import to_proto
from tests.serving.test_isolation import HARDEST, hard_snapshot
from tests.serving.workers.test_pool import cpu_s, is_running, snapshot, wait_ready, workers_of
from tests.soak.processes import serve_command
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def working(serve: Callable[..., RunningServer], settings: Settings) -> RunningServer:
    """A server with one worker that decides, and a spare one."""
    server = serve(replace(settings, decision_workers=1))
    wait_ready(server, 2)
    return server


def kill(process: int) -> None:
    """Kill a process, and wait until all its threads have ended."""
    handle = os.pidfd_open(process)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


def test_a_worker_that_is_killed_while_it_waits_costs_no_answer(working: RunningServer) -> None:
    before = workers_of(working)
    for worker in before:
        kill(worker)
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        assert client.match(snapshot(0.0, "gemm1")).actions
    wait_ready(working, 2)
    assert not before & workers_of(working)


def test_a_killed_fork_server_is_replaced_and_its_workers_go_on(working: RunningServer) -> None:
    assert working.workers is not None
    before, fork_server = workers_of(working), working.workers.fork_server_id
    os.kill(fork_server, signal.SIGKILL)
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        assert client.match(snapshot(0.0, "gemm1")).actions
        assert workers_of(working) == before
        for worker in before:
            kill(worker)
        assert client.match(snapshot(1.0, "gemm1")).actions
    assert working.workers.fork_server_id != fork_server


def test_a_new_worker_needs_a_small_part_of_the_processor_time_of_the_imports(working: RunningServer) -> None:
    assert working.workers is not None
    imports_s = cpu_s(working.workers.fork_server_id)
    started_s = [cpu_s(worker) for worker in workers_of(working)]
    print(f"imports {imports_s:.2f} s, then each worker {started_s}")
    assert sum(started_s) < imports_s


def test_workers_have_the_limits_of_memory_and_the_priority_of_workers(working: RunningServer) -> None:
    for worker in workers_of(working):
        assert int(Path(f"/proc/{worker}/oom_score_adj").read_text()) == OOM_SCORE
        assert os.getpriority(os.PRIO_PROCESS, worker) == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS


FREED = """
import ctypes, os, sys, threading
from pathlib import Path
from multiprocessing.connection import Connection
from interfere.serving.workers.fork_server import fork_until_closed
from interfere.serving.workers.fork_server import return_freed_memory
import socket

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def run(descriptors):
    with Connection(descriptors[0]) as pipe:
        before = resident_bytes()
        blocks = [ctypes.create_string_buffer(b"x" * 2**20) for _ in range(64)]
        held = resident_bytes()
        kept = blocks[-1]
        del blocks
        pipe.send((before, held, resident_bytes()))

if sys.argv[1] == "returns":
    return_freed_memory()
with socket.socket(fileno=int(sys.argv[2])) as channel:
    fork_until_closed(channel, run)
"""


def test_the_settings_of_the_allocator_hold_in_forked_processes() -> None:
    """What a forked process frees goes back to the system, although a later block stays."""
    fork_server = ForkServer((sys.executable, "-c", FREED, "returns"))
    try:
        ours, theirs = Pipe()
        with ours, theirs:
            os.close(fork_server.fork((theirs.fileno(),)).descriptor)
            before, held, after = ours.recv()
    finally:
        fork_server.close()
    assert held - before > 60 * 2**20
    assert after - before < 8 * 2**20


@pytest.fixture
def process(model_folder: Path, tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`interfere serve` in a process of its own, and its address."""
    process = subprocess.Popen(
        serve_command("--model", str(model_folder), "--work", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "INTERFERE_GRACE_S": "1", "INTERFERE_DECISION_WORKERS": "2"},
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.communicate()


def descendants(process: int) -> set[int]:
    """The processes below a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {process}} - found:
        found |= more
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_behind(process: tuple["subprocess.Popen[str]", str], number: int) -> None:
    """Workers decide, and one is stopped; the server is asked to end, or is killed."""
    server, address = process
    wait_until(lambda: len(descendants(server.pid)) == 4, "the fork server and three workers")
    left = descendants(server.pid)
    workers = {worker for fork_server in left for worker in descendants(fork_server)}
    before_s = {each: cpu_s(each) for each in workers}

    def spent_s(pid: int) -> float:
        return cpu_s(pid) - before_s[pid]

    with grpc.insecure_channel(address) as channel:
        request = to_proto(hard_snapshot(jobs=HARDEST, budget_s=1_000.0), pb.MatchRequest)
        while max(map(spent_s, workers)) < 1.0:  # the server decides by itself until a worker is ready
            call = rpc.PolicyServiceStub(channel).Match.future(request, timeout=5.0)
            call.exception()
        call = rpc.PolicyServiceStub(channel).Match.future(request, timeout=PATIENCE_S)
        os.kill(min(workers, key=spent_s), signal.SIGSTOP)
        server.send_signal(number)
        server.wait(PATIENCE_S)
        assert call.exception() is not None
    if number == signal.SIGTERM:
        assert server.returncode == 0
    wait_until(lambda: not [each for each in left if is_running(each)], "every process has ended")


def test_what_a_decision_makes_is_not_collected_again_and_again() -> None:
    """Of 90,000 objects that are kept the young ones are looked through nine times, not a hundred and thirty."""
    lines = (
        "import gc",
        "from interfere.serving.workers.fork_server import leave_out_what_stays",
        "leave_out_what_stays()",
        "before = sum(each['collections'] for each in gc.get_stats())",
        "kept = [[] for _ in range(90_000)]",
        "print(sum(each['collections'] for each in gc.get_stats()) - before)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 9
