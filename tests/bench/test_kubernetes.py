"""A round of 1,000 gated pods on 500 nodes."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller
from interfere.serving.server import start_server
from tests.bench.history import record
from tests.serving.adapters.kubernetes.conftest import SHIPPED, WORKLOADS, api_server
from tests.serving.adapters.kubernetes.control_plane.api_server import NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.facts import node, pod, resource_slice, settings

__all__ = ["api_server"]
pytestmark = pytest.mark.bench


def test_one_round_of_a_thousand_pods(api_server: ApiServer, tmp_path: Path, monkeypatch: Any) -> None:
    """CPU of the controller's own thread: the stand-in's server runs in another thread of this process."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    for k in range(500):
        api_server.add(NODE, node(f"n{k}"))
        api_server.add(SLICE, resource_slice(f"n{k}"))
    for k in range(1000):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    running = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=0, grace_s=1.0))
    chosen = settings(writes_per_s=1e6, burst=10**6, timeout_s=60.0)
    with PolicyClient(running.address, timeout_s=60.0) as client:
        replica = Controller(chosen, ClusterApi(60.0, 1e6, 10**6), client)
        replica.cluster.start()
        replica._lease.try_hold()
        replica.advisor._may_write = lambda: True
        replica.cluster.check_current(60.0)
        figures: dict[str, float] = {}
        for name in ("first_round", "next_round"):
            begin_cpu_s, begin_s, before = time.thread_time(), time.monotonic(), len(api_server.writes)
            done = replica.advisor.round()
            figures[f"{name}_cpu_s"] = time.thread_time() - begin_cpu_s
            figures[f"{name}_wall_s"] = time.monotonic() - begin_s
            figures[f"{name}_writes"] = len(api_server.writes) - before
            assert done.rejected == ()
        replica.stop.set()
    running.stop()
    print(record("kubernetes_round", figures))
    assert figures["first_round_cpu_s"] <= 5.0
    assert figures["next_round_writes"] == 0, "only changed pods are patched"
