"""A round of 1,000 gated pods on 500 nodes, and the extender's answers at 1,000 nodes of four GPUs."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.controller import Controller
from interfere.serving.adapters.kubernetes.https.extender import Extender
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.http_server import Request
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


def test_the_extender_at_a_thousand_nodes(tmp_path: Path) -> None:
    chosen = settings()
    nodes, pods, slices = [], [], []
    for k in range(1000):
        nodes.append(node(f"n{k}", gpus=4, hami=True))
        for j in range(k % 5):
            row = pod(f"r{k}-{j}", WORKLOADS[(k + j) % 4], source="hami", gated=False, nodeName=f"n{k}")
            row["metadata"] |= {"uid": f"r{k}-{j}"}
            row["metadata"]["annotations"][names.HAMI_ALLOCATED] = f"GPU-n{k}-{j},NVIDIA,8192,0:;"
            pods.append(row)
    state = cluster_state(chosen, pods, nodes, slices, [])
    assert len(state.gpus) == 4000
    running = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=0, grace_s=1.0))
    with PolicyClient(running.address) as client:
        extender = Extender(chosen, client, lambda: state)
        extender.refresh()
        arguments = {
            "Pod": pod("p", source="hami", gated=False),
            "Nodes": None,
            "NodeNames": [f"n{k}" for k in range(1000)],
        }
        request = Request(body=json.dumps(arguments).encode(), address="127.0.0.1")
        times: dict[str, list[float]] = {"filter": [], "prioritize": []}
        cpu_s: list[float] = []  # of this process: extender, client and server
        for k in range(220):
            for name, spent in times.items():
                begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
                answer = getattr(extender, name)(request)
                if k >= 20:
                    spent.append(time.perf_counter() - begin_s)
                    cpu_s.append(time.process_time() - begin_cpu_s)
        assert len(answer.document) == 1000
        situations = len(extender._known[0].devices) if extender._known else 0
    running.stop()
    figures = {f"{name}_p{q}_ms": 1e3 * float(np.percentile(each, q)) for name, each in times.items() for q in (50, 99)}
    figures["cpu_p99_ms"] = 1e3 * float(np.percentile(cpu_s, 99))
    print(record("kubernetes_extender", figures | {"situations": situations}))
