"""Pods that say what a stop costs them are evicted for others of higher priority; others, and without leave, never."""

import itertools
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.errors import UnfitError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.objects.values import timestamp
from interfere.serving.adapters.kubernetes.port import KubernetesPort, controller_metrics
from interfere.serving.adapters.kubernetes.settings import Mode
from interfere.serving.adapters.kubernetes.writes import Write, WriteKind
from interfere.serving.adapters.round import Advisor, Round
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, resource_slice, settings

SCOPES = itertools.count()
LARGE = {names.MEMORY_GIB: "60"}  # two of them do not fit
STOPPABLE = {names.REMAINING_S: "36000", names.CHECKPOINT_S: "30"}


class FullCluster:
    """One GPU with a pod of low priority that has run for an hour, and one of high priority that waits."""

    def __init__(self, client: PolicyClient, **given: Any) -> None:
        scope = f"evictions-{next(SCOPES)}"  # the server keeps the clock of each
        self.memory, chosen = Memory(), settings(priority_unit=100.0, cluster=scope, **given)
        self.memory.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
        self.memory.add(NODE, node("n0"))
        self.memory.add(SLICE, resource_slice("n0", gpus=1))
        api: Any = self.memory
        port = KubernetesPort(chosen, api, api, controller_metrics(), lambda: True)
        self.advisor = Advisor(port, client, CombinedMarks(), chosen, controller_metrics())
        self.scheduler = StandInScheduler(api)

    def fill(self, notes: dict[str, str], *, observes: bool = False) -> None:
        self.memory.add(POD, pod("low", "request-server", gated=not observes, notes=notes | LARGE))
        if observes:  # Kubernetes places it by itself
            exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "60Gi"}}}
            spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
            self.memory.add(CLAIM, {"metadata": {"name": "low-gpu", "namespace": "ml"}, "spec": spec})
        else:
            self.advisor.round()
        self.scheduler.once()
        began = timestamp(self.memory.now_s)[:19] + "Z"
        running = {"containerStatuses": [{"state": {"running": {"startedAt": began}}}]}
        self.memory.merge(POD, "ml", "low", {"status": running})
        self.memory.now_s += 3600.0
        self.memory.add(POD, pod("high", "request-server", notes=STOPPABLE | LARGE, priority=900))

    def names(self) -> set[str]:
        return {row["metadata"]["name"] for row in self.memory.now(POD)}


def test_a_pod_is_evicted_for_one_of_higher_priority_which_then_starts(policy_server: RunningServer) -> None:
    with PolicyClient(policy_server.address) as client:
        cluster = FullCluster(client, evicts=True)
        cluster.fill(STOPPABLE)
        done: Round[Any, Any] = cluster.advisor.round()
        stops = [each for each in done.decisions if each.action.kind.value == "preempt"]
        assert [each.job.name for each in stops] == ["low"]
        kinds = [[write.kind.value for write in change.writes] for change in done.changes]
        assert ["evict", "event"] in kinds
        assert cluster.names() == {"high"}
        for _ in range(3):
            cluster.memory.now_s += 2.0
            cluster.advisor.round()
            cluster.scheduler.once()
        (high,) = [row for row in cluster.memory.now(POD) if row["metadata"]["name"] == "high"]
        assert high["spec"].get("nodeName") == "n0"


@pytest.mark.parametrize(("evicts", "notes"), [(False, STOPPABLE), (True, {}), (True, {names.REMAINING_S: "36000"})])
def test_nobody_is_evicted_without_leave(policy_server: RunningServer, evicts: bool, notes: dict[str, str]) -> None:
    with PolicyClient(policy_server.address) as client:
        cluster = FullCluster(client, evicts=evicts)
        cluster.fill(notes)
        for _ in range(3):
            cluster.advisor.round()
        assert cluster.names() == {"low", "high"}


def test_observing_only_says_who_would_be_evicted(policy_server: RunningServer) -> None:
    with PolicyClient(policy_server.address) as client:
        cluster = FullCluster(client, evicts=True, mode=Mode.OBSERVE)
        cluster.fill(STOPPABLE, observes=True)
        done = cluster.advisor.round()
        assert cluster.names() == {"low", "high"}
        messages = [
            write.body["message"] for change in done.changes for write in change.writes if write.kind is WriteKind.EVENT
        ]
        assert any(message.startswith("would be evicted (preempt)") for message in messages)
        assert WriteKind.EVICT not in {write.kind for change in done.changes for write in change.writes}


def test_a_disruption_budget_holds(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server answers 429 at the path of an eviction; it is told, and not taken for an overload."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    asked = list[tuple[str, Any]]()

    def refuse(request: Any) -> int | None:
        asked.append((request.url.path, request.data))
        return 429

    api_server.kmock.fault = refuse
    write = Write(kind=WriteKind.EVICT, namespace="ml", name="p", body={"kind": "Eviction"})
    with pytest.raises(UnfitError, match="disruption budget"):
        ClusterApi(10.0, 100.0, 100).write(write)
    assert asked == [("/api/v1/namespaces/ml/pods/p/eviction", {"kind": "Eviction"})]
