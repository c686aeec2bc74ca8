"""A stand-in for a control plane, and a real policy server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Progress
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.server import RunningServer, start_server
from tests.serving.adapters.kubernetes.facts import DEVICE_TYPE

if TYPE_CHECKING:
    from tests.serving.adapters.kubernetes.control_plane.api_server import ApiServer

SHIPPED = Path(__file__).parents[4] / "interfere" / "predict" / "default"
Start = Callable[[KubernetesSettings], Controller]
WORKLOADS = ("gemm", "resnet-train", "request-server", "rl-rollout")  # the shipped model knows the four


@pytest.fixture
def api_server(tmp_path: Path) -> "Iterator[ApiServer]":
    from tests.serving.adapters.kubernetes.control_plane.api_server import ApiServer

    server = ApiServer(tmp_path)
    yield server
    server.close()


@pytest.fixture(scope="module")
def policy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The shipped model, and how fast each workload ran alone here."""
    folder = tmp_path_factory.mktemp("policy")
    running = start_server(Settings(model=SHIPPED, work=folder / "work", port=0, grace_s=1.0))
    with PolicyClient(running.address) as client:
        client.observe([solo(name) for name in WORKLOADS])
    yield running
    running.stop()


def solo(workload: str) -> Progress:
    return Progress(
        observation_id=f"earlier/{workload}",
        job_id="earlier",
        workload=workload,
        device_type=DEVICE_TYPE,
        start_s=0.0,
        end_s=60.0,
        steps=600.0,
    )


@pytest.fixture
def controller(
    api_server: "ApiServer", policy_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[KubernetesSettings], Controller]]:
    """Controllers whose collections are listed and watched; rounds are begun by the test."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    started: list[tuple[Controller, Any]] = []

    def start(chosen: KubernetesSettings) -> Controller:
        client = PolicyClient(policy_server.address)
        api = ClusterApi(chosen.timeout_s, chosen.writes_per_s, chosen.burst)
        one = Controller(chosen, api, client)
        one.cluster.start()
        assert one._lease.try_hold()
        started.append((one, client))
        return one

    yield start
    for one, client in started:
        one.stop.set()
        client.close()
