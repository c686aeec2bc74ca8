"""What a polite client waits while a greedy one keeps 180 calls in flight, beside what it waits alone.

The server is a process of its own with its default settings and known callers; so is the greedy client. The polite one
asks for one pair, again as soon as it is answered. Phases with and without the greedy client take turns, so that what
else the machine does meets both; the ratio is that of their medians.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.credentials import Credentials
from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.serving.commands.callers import app
from tests.bench.history import record
from tests.bench.test_protections import token_of_new_caller
from tests.serving.greedy import IN_FLIGHT, greedy
from tests.soak.processes import serving_with
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.bench
ROUNDS, CALLS = 5, 40


def waits_s(call: Callable[[], object]) -> list[float]:
    """Return how long each of some calls takes, one after another."""
    times_s = []
    for _ in range(CALLS):
        start_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start_s)
    return times_s


@pytest.mark.parametrize("kind", ["pairs", "matrices", "unknown_callers", "health"])
def test_polite_caller_beside_a_greedy_one(tmp_path: Path, kind: str) -> None:
    callers, token = token_of_new_caller(tmp_path)
    greedy_token = tmp_path / "greedy"
    arguments = ["add", "greedy", "--file", str(callers), "--token-file", str(greedy_token), "--role=predict"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    known = "" if kind == "unknown_callers" else greedy_token.read_text().strip()
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
    figures = {
        f"{phase}_{name}_ms": 1e3 * float(np.quantile(times_s, quantile))
        for phase, times_s in (("idle", idle_s), ("busy", busy_s))
        for name, quantile in (("p50", 0.5), ("p95", 0.95))
    }
    figures["ratio_of_p50"] = figures["busy_p50_ms"] / figures["idle_p50_ms"]
    figures["greedy_answers_per_s"] = answered_per_s
    print(f"{kind}: {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    for name, value in figures.items():
        print(f"  {name}: {value:.2f}")
    record(f"polite caller beside {kind}", figures)
