"""Decisions in worker processes: the same answers as the server's own, and a worker that ends harms nobody."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InvalidInputError, NotFoundError, UnavailableError
from interfere.records import Device, Job, Snapshot
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.converter import to_proto
from tests.models import DEVICE_TYPE, profile
from tests.serving.test_isolation import HARDEST, hard_snapshot
from tests.serving.test_observations import window
from tests.waiting import PATIENCE_S, wait_until


def workers_of(server: RunningServer) -> set[int]:
    """The processes of the workers of a server."""
    assert server.workers is not None
    return set(server.workers.process_ids)


def is_running(process: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_ready(server: RunningServer, count: int = 1) -> None:
    """Until so many workers answer."""
    assert server.workers is not None
    workers = server.workers
    wait_until(lambda: workers.idle >= count, f"{count} workers answer")


def cpu_s(pid: int) -> float:
    """Processor time of all threads of a process so far."""
    runs = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(run.read_text().split()[0]) for run in runs) / 1e9


def all_cpu_s(server: RunningServer) -> dict[int, float]:
    """Processor time of each worker so far."""
    return {worker: cpu_s(worker) for worker in workers_of(server)}


def wait_deciding(before_s: dict[int, float], spent_s: float = 0.1) -> int:
    """The worker that decides, once it has spent so many CPU seconds, however fast the machine is."""

    def deciding() -> list[int]:
        return [worker for worker, cpu in before_s.items() if cpu_s(worker) - cpu >= spent_s]

    wait_until(deciding, f"a worker decides for {spent_s:g} s")
    return deciding()[0]


@pytest.fixture
def working(serve: Callable[..., RunningServer], settings: Settings) -> RunningServer:
    """A server with one worker that decides, and a spare one."""
    server = serve(replace(settings, decision_workers=1, metrics_port=0))
    wait_ready(server, 2)
    return server


def snapshot(now_s: float, *names: str, snapshot_id: str = "") -> Snapshot:
    return Snapshot(
        pending=tuple(Job(id=name, workload=name.rstrip("0123456789")) for name in names),
        devices=(Device(id="d", type=DEVICE_TYPE), Device(id="e", type=DEVICE_TYPE)),
        now_s=now_s,
        snapshot_id=snapshot_id,
    )


def test_a_worker_decides_as_the_server_and_knows_what_the_server_learned(
    working: RunningServer, serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    alone = serve(replace(settings, work=tmp_path / "alone"))
    plans = []
    for server in (working, alone):
        with PolicyClient(server.address) as client:
            # 1. A first decision, observations, a new profile, another decision: stored once, explained, counted.
            first = client.match(snapshot(0.0, "gemm1", "infer1", "train1", snapshot_id="1"))
            client.observe([window(str(k), "infer", "gemm", slowdown=3.0) for k in range(5)])
            client.register_profiles([profile("novel", step_time_s=0.2)])
            second = client.match(snapshot(1.0, "novel1", "gemm1", "infer1", "train1", snapshot_id="2"))
            again = client.match(snapshot(1.0, "novel1", "gemm1", "infer1", "train1", snapshot_id="2"))
            assert again == second
            with pytest.raises(InvalidInputError, match="goes back"):
                client.match(snapshot(0.25, "gemm1"))
            with pytest.raises(NotFoundError):
                client.explain("nothing", "j")
            explained = client.explain(second.decision_id, "gemm1")
            log = client.observation_log(at_sequence=3)
            plans.append(
                [
                    [(a.job_id, a.kind, a.device_id, a.partner_id, a.slowdown) for a in plan.actions]
                    for plan in (first, second)
                ]
                + [[(pair.median, pair.lower, pair.upper) for pair in explained.pairs], log.online]
            )
    assert plans[0] == plans[1]
    from tests.serving.test_server import scrape

    assert "interfere_match_solve_seconds_count 2.0" in scrape(working)


def test_a_killed_worker_costs_one_answer_and_is_replaced(working: RunningServer) -> None:
    outcomes: list[object] = []

    def ask() -> None:
        with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
            try:
                outcomes.append(client.match(hard_snapshot(jobs=HARDEST, budget_s=1_000.0)))
            except UnavailableError as error:
                outcomes.append(error)

    before, before_s = workers_of(working), all_cpu_s(working)
    thread = threading.Thread(target=ask)
    thread.start()
    worker = wait_deciding(before_s)
    os.kill(worker, signal.SIGKILL)
    thread.join(PATIENCE_S)
    assert isinstance(outcomes[0], UnavailableError)
    assert "has ended" in str(outcomes[0])
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        assert client.match(snapshot(0.0, "gemm1")).actions
    wait_ready(working, 2)
    assert len(workers_of(working) - before) == 1


def test_an_abandoned_decision_frees_its_worker(working: RunningServer) -> None:
    before_s = all_cpu_s(working)
    with grpc.insecure_channel(working.address) as channel:
        call = rpc.PolicyServiceStub(channel).Match.future(
            to_proto(hard_snapshot(jobs=HARDEST, budget_s=1_000.0), pb.MatchRequest), timeout=PATIENCE_S
        )
        wait_deciding(before_s)
        call.cancel()
        start_s = time.perf_counter()
        with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
            assert client.match(snapshot(0.0, "gemm1")).actions
        print(f"the next decision took {time.perf_counter() - start_s:.3f} s")


@pytest.mark.measuring
def test_an_abandoned_decision_costs_little_more(working: RunningServer) -> None:
    workers = workers_of(working)
    with grpc.insecure_channel(working.address) as channel:
        stub, wasted_s = rpc.PolicyServiceStub(channel), []
        for k in range(5):
            request = to_proto(hard_snapshot(scope=f"s{k}", jobs=HARDEST, budget_s=1_000.0), pb.MatchRequest)
            before_s = all_cpu_s(working)
            call = stub.Match.future(request, timeout=PATIENCE_S)
            worker = wait_deciding(before_s, 0.1 + 0.1 * k)  # in another part of the search each time
            assert not call.done(), "the whole decision takes more than ten seconds"
            start_s = cpu_s(worker)
            call.cancel()
            wait_ready(working, 2)
            assert workers_of(working) == workers  # it obeyed
            wasted_s.append(cpu_s(worker) - start_s)
    print(f"processor time after the caller gave up: {[f'{1e3 * each:.0f} ms' for each in wasted_s]}")
    # The worker computes on while the server, the caller and this test wait for a processor.
    assert sorted(wasted_s)[2] < 0.5, "of more than ten seconds"
    assert max(wasted_s) < 3.0


def test_a_hangup_of_the_whole_process_group_ends_no_worker(working: RunningServer) -> None:
    workers = workers_of(working)
    for worker in workers:
        os.kill(worker, signal.SIGHUP)
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        assert client.match(snapshot(0.0, "gemm1")).actions
    assert workers_of(working) == workers


def test_workers_end_with_their_server(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, decision_workers=2))
    wait_ready(server, 3)
    assert server.workers is not None
    processes = workers_of(server) | {server.workers.fork_server_id}
    assert len(processes) == 4
    server.stop()
    assert not [process for process in processes if is_running(process)]
