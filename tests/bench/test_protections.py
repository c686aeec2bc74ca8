"""What each protection of a call costs the server, in processor time: with all of them, and without each in turn.

The request is that of one pair, the answer is empty. Each server is a process of its own.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from interfere.serving.calls.interceptor import SERVICE
from interfere.serving.commands.callers import app
from interfere.v1 import policy_pb2 as pb
from tests.bench.call_server import METHOD, PROTECTIONS
from tests.bench.history import record
from tests.bench.processor_time import quiet_s, server_cpu_s

pytestmark = pytest.mark.bench
ROUNDS, CALLS = 100, 40


def token_of_new_caller(folder: Path) -> tuple[Path, Path]:
    """Write a file of callers with one caller, who may predict and report, and return the files of callers and of the
    token."""
    callers, token = folder / "callers.toml", folder / "token"
    arguments = ["add", "scheduler", "--file", str(callers), "--token-file", str(token)]
    ran = CliRunner().invoke(app, [*arguments, "--role=predict", "--role=report"])
    assert ran.exit_code == 0, ran.output
    return callers, token


@contextmanager
def call_server(what: str, callers: Path | None = None) -> Iterator[tuple[int, str]]:
    """Run `tests.bench.call_server`. Yields its process and its address."""
    command = [sys.executable, "-m", "tests.bench.call_server", what, *map(str, filter(None, [callers]))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, f"127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def test_price_of_each_protection(tmp_path: Path) -> None:
    callers, token = token_of_new_caller(tmp_path)
    metadata = [("authorization", f"Bearer {token.read_text().strip()}")]
    jobs = [pb.JobRef(workload=name) for name in ("a", "b")]
    request = pb.PredictSlowdownsRequest(jobs=jobs, pairs=[pb.OrderedPair(victim=0, neighbour=1)]).SerializeToString()
    calls: dict[str, tuple[int, Callable[[], object]]] = {}
    with ExitStack() as stack:
        for what in ("plain", "stream", "all", *PROTECTIONS):
            pid, address = stack.enter_context(call_server(what, callers))
            ask = stack.enter_context(grpc.insecure_channel(address)).unary_unary(f"/{SERVICE}/{METHOD}")
            calls[what] = pid, lambda ask=ask: ask(request, metadata=metadata)
        cpu_s, _ = server_cpu_s(calls, rounds=ROUNDS, calls_of_round=CALLS)
    figures = {f"{what}_us": 1e6 * quiet_s(cpu_s[what]) for what in ("plain", "stream", "all")}
    figures["handed_over_before_the_request_us"] = figures["stream_us"] - figures["plain_us"]
    for what in PROTECTIONS:
        figures[f"{what}_us"] = figures["all_us"] - 1e6 * quiet_s(cpu_s[what])
    for name, value in figures.items():
        print(f"  {name}: {value:.0f}")
    record("price of protections", figures)
    assert figures["plain_us"] < figures["all_us"]
