"""What a polite client waits beside one that takes all it can, beside what it waits alone.

The other keeps 180 calls in flight, or 3,000 streams open whose requests never come, or 3,000 silent connections, or
60 answers unread. The server is a process of its own with its default settings and known callers; so is the client
with calls in flight. The polite one asks for one pair, again as soon as it is answered. Phases with and without the
other take turns, so that what else the machine does meets both; the ratio is that of their medians.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.serving.commands.callers import app
from tests.bench.history import record
from tests.bench.test_protections import token_of_new_caller
from tests.serving.greedy import IN_FLIGHT, METHODS, greedy, request
from tests.serving.http2 import END_HEADERS, HEADERS, connect, frame, request_headers, send_call
from tests.soak.processes import serving_with
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.bench
ROUNDS, CALLS = 5, 40
ADDRESSES, STREAMS, SILENT, UNREAD = 30, 100, 3_000, 60  # 100 streams on a connection from each address


def waits_s(call: Callable[[], object]) -> list[float]:
    """Return how long each of some calls takes, one after another."""
    times_s = []
    for _ in range(CALLS):
        start_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start_s)
    return times_s


def two_callers(folder: Path) -> tuple[Path, Path, str]:
    """The file of two callers, the file with the token of the polite one, and the token of the other."""
    callers, token = token_of_new_caller(folder)
    arguments = ["add", "greedy", "--file", str(callers), "--token-file", str(folder / "greedy"), "--role=predict"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    return callers, token, (folder / "greedy").read_text().strip()


@contextmanager
def holding(kind: str, port: int, token: str, content: bytes) -> Iterator[None]:
    """Hold streams, connections or answers open until the end of the block."""
    with ExitStack() as held:
        if kind == "streams":
            for k in range(ADDRESSES):
                connection = held.enter_context(connect(port, source=f"127.0.1.{1 + k}"))
                for stream in range(STREAMS):
                    headers = request_headers(METHODS["pairs"], token)
                    connection.sendall(frame(HEADERS, END_HEADERS, 1 + 2 * stream, headers))
        elif kind == "connections":
            for k in range(SILENT):
                source = f"127.0.2.{1 + k % 200}"
                held.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(source, 0)))
        else:
            connection = held.enter_context(connect(port, source="127.0.1.1", window=0))
            for k in range(UNREAD):
                send_call(connection, 1 + 2 * k, METHODS["matrices"], content, token)
        yield


@pytest.mark.parametrize("kind", ["streams", "connections", "unread"])
def test_polite_caller_beside_one_that_holds_all_it_can(tmp_path: Path, kind: str) -> None:
    callers, token, greedy_token = two_callers(tmp_path)
    names = load_model(SHIPPED_MODEL, FeatureEncoder()).manifest.workloads
    content = request("matrices", names)
    idle_s, busy_s, grown = [], [], []
    with (
        serving_with(tmp_path, model=SHIPPED_MODEL, callers=callers) as served,
        PolicyClient(served.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=token)) as client,
    ):
        port, server = int(served.address.rpartition(":")[2]), psutil.Process(served.process.pid)
        for _ in range(ROUNDS):
            idle_s += waits_s(lambda: client.predict(names[:2], pairs=[(0, 1)]))
            before = server.memory_info().rss
            with holding(kind, port, greedy_token, content):
                busy_s += waits_s(lambda: client.predict(names[:2], pairs=[(0, 1)]))
                grown.append(server.memory_info().rss - before)
    figures = figures_of(idle_s, busy_s) | {"memory_grown_mb": max(grown) / 1e6}
    tell(f"polite caller beside {kind} that are held", figures)


def figures_of(idle_s: list[float], busy_s: list[float]) -> dict[str, float]:
    """Median and 95 % quantile of both, in ms, and the ratio of the medians."""
    figures = {
        f"{phase}_{name}_ms": 1e3 * float(np.quantile(times_s, quantile))
        for phase, times_s in (("idle", idle_s), ("busy", busy_s))
        for name, quantile in (("p50", 0.5), ("p95", 0.95))
    }
    return figures | {"ratio_of_p50": figures["busy_p50_ms"] / figures["idle_p50_ms"]}


def tell(title: str, figures: dict[str, float]) -> None:
    """Print figures, and append them to the history."""
    print(f"{title}: {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    for name, value in figures.items():
        print(f"  {name}: {value:.2f}")
    record(title, figures)


@pytest.mark.parametrize("kind", ["pairs", "matrices", "unknown_callers", "health"])
def test_polite_caller_beside_a_greedy_one(tmp_path: Path, kind: str) -> None:
    callers, token, greedy_token = two_callers(tmp_path)
    known = "" if kind == "unknown_callers" else greedy_token
    names = load_model(SHIPPED_MODEL, FeatureEncoder()).manifest.workloads
    idle_s, busy_s = [], []
    with (
        serving_with(tmp_path, model=SHIPPED_MODEL, callers=callers) as served,
        PolicyClient(served.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=token)) as client,
    ):

        def ask() -> object:
            return client.predict(names[:2], pairs=[(0, 1)])

        ask()
        for _ in range(ROUNDS):
            idle_s += waits_s(ask)
            with greedy(served.address, kind, names, known) as answered:
                wait_until(lambda answered=answered: answered() > IN_FLIGHT, "the greedy client is answered")
                before, start_s = answered(), time.perf_counter()
                busy_s += waits_s(ask)
                answered_per_s = (answered() - before) / (time.perf_counter() - start_s)
            ask()  # after the calls that were under way have ended
    tell(f"polite caller beside {kind}", figures_of(idle_s, busy_s) | {"greedy_answers_per_s": answered_per_s})
