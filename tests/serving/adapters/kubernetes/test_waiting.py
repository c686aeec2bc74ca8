"""Who waits, why, how long: a decided wait lasts, an undecided pod is released, and caps and seats hold after it."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller, KubernetesPort, controller_metrics
from interfere.serving.adapters.kubernetes.releasing import Released, release_pods
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.round import Advisor
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, EVENT, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, resource_slice, settings
from tests.serving.adapters.kubernetes.worlds import gated, pods_by_name, two_nodes, wait_seen

Start = Callable[[KubernetesSettings], Controller]
WINDOW_S = 60.0


def one_gpu(api: ApiServer, source: str = "dra") -> None:
    api.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    api.add(NODE, node("n0", gpus=int(source == "hami"), hami=source == "hami"))
    if source == "dra":
        api.add(SLICE, resource_slice("n0", gpus=1))


def release_after(replica: Controller, seconds: float) -> Released:
    """A pass of the release by somebody whose clock is so far ahead."""
    return release_pods(replica._api, settings(window_s=WINDOW_S), controller_metrics(), time.time() + seconds)


def round_of(replica: Controller, api_server: ApiServer) -> None:
    wait_seen(replica, api_server)
    assert replica.advisor.round().rejected == ()
    assert replica._lease.try_hold()  # which also says when it decided


def reason(api_server: ApiServer, name: str) -> str:
    return str(pods_by_name(api_server)[name]["metadata"]["annotations"].get(names.REASON, ""))


@pytest.mark.parametrize("source", ["dra", "hami"])
def test_a_decided_wait_outlasts_the_window_while_somebody_decides(
    api_server: ApiServer, controller: Start, source: str
) -> None:
    one_gpu(api_server, source)
    for k in range(5):
        api_server.add(POD, pod(f"p{k}", "request-server", source=source))
    replica = controller(settings(window_s=WINDOW_S))
    round_of(replica, api_server)
    StandInScheduler(api_server).once()
    assert len(gated(api_server)) == 3
    later_s = time.time() + 10 * WINDOW_S  # rounds have gone on until a moment ago
    replica.advisor.port.decided_s = later_s - 1.0
    assert replica._lease.try_hold()
    assert release_after(replica, 10 * WINDOW_S).released == 0
    assert release_after(replica, 11 * WINDOW_S + 1.0).released == 3, "nobody has decided for a window"


def test_a_wait_ends_where_the_pod_says_so(api_server: ApiServer, controller: Start) -> None:
    one_gpu(api_server)
    for k in range(3):
        api_server.add(POD, pod(f"p{k}", "request-server"))
    api_server.add(POD, pod("p3-impatient", "request-server", notes={names.MAX_WAIT_S: "30"}))
    replica = controller(settings(window_s=WINDOW_S))
    round_of(replica, api_server)
    StandInScheduler(api_server).once()
    assert "p3-impatient" in gated(api_server)
    assert release_after(replica, 15.0).released == 0, "whole seconds, and a slow machine"
    assert release_after(replica, 31.0).released == 1
    assert names.MAX_WAIT_S in reason(api_server, "p3-impatient")


@pytest.mark.parametrize("capped", [False, True])
def test_released_pods_keep_caps_and_seats(api_server: ApiServer, controller: Start, capped: bool) -> None:
    """On the GPU runs a pod that admits no neighbour, or two pods: who is released beside them waits."""
    one_gpu(api_server)
    notes = {names.MAX_SLOWDOWN: "1.0001"} if capped else {}
    for k in range(1 if capped else 2):
        api_server.add(POD, pod(f"first{k}", "request-server", notes=notes | {names.MEMORY_GIB: "1"}))
    replica, scheduler = controller(settings(window_s=WINDOW_S)), StandInScheduler(api_server)
    round_of(replica, api_server)
    scheduler.once()
    assert len(scheduler.bound) == (1 if capped else 2)
    api_server.add(POD, pod("refused", "request-server", notes={names.MEMORY_GIB: "1"}))
    api_server.add(POD, pod("undecided", "request-server"))
    round_of(replica, api_server)
    scheduler.once()
    assert gated(api_server) == ["refused", "undecided"]
    assert release_after(replica, 2 * WINDOW_S).released == 2
    scheduler.once()
    assert len(scheduler.bound) == (1 if capped else 2), "kube-scheduler holds what was promised"
    api_server.add(NODE, node("n1"))
    api_server.add(SLICE, resource_slice("n1", gpus=2, memory="141Gi"))
    scheduler.once()
    assert len(scheduler.bound) == (1 if capped else 2), "of another kind: their claims do not know it"
    api_server.add(NODE, node("n2"))
    api_server.add(SLICE, resource_slice("n2", gpus=1))
    scheduler.once()
    assert len(scheduler.bound) == (2 if capped else 3)


def test_a_claim_for_any_gpu_takes_the_smallest_kind_that_is_idle(api_server: ApiServer, controller: Start) -> None:
    one_gpu(api_server)
    api_server.add(NODE, node("n1"))
    api_server.add(SLICE, resource_slice("n1", gpus=1, memory="40Gi"))
    for name, gib in (("small", "10"), ("large", "50"), ("third", "1")):
        api_server.add(POD, pod(name, notes={names.MEMORY_GIB: gib}))
    replica, scheduler = controller(settings(window_s=WINDOW_S)), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    assert release_after(replica, 2 * WINDOW_S).released == 3
    scheduler.once()
    held = {
        row["metadata"]["name"]: row["status"]["allocation"]["devices"]["results"][0]["pool"]
        for row in api_server.rows(CLAIM)
        if (row.get("status") or {}).get("allocation")
    }
    assert held == {"small-gpu": "n1", "large-gpu": "n0"}


def test_every_waiting_pod_of_a_full_cluster_has_a_reason(api_server: ApiServer, controller: Start) -> None:
    one_gpu(api_server)
    for k in range(42):
        api_server.add(POD, pod(f"p{k:02d}", "request-server"))
    api_server.add(POD, pod("elsewhere", nodeSelector={names.HOSTNAME: "n7"}))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    round_of(replica, api_server)
    scheduler.once()
    round_of(replica, api_server)
    waiting = gated(api_server)
    assert len(waiting) == 40
    assert all(reason(api_server, name) for name in waiting)
    (last,) = [name for name in waiting if "39 before it" in reason(api_server, name)]
    assert reason(api_server, last) == "2 seats on 1 GPU, all taken; 39 before it"
    assert last == waiting[-1]
    assert "no GPU of the cluster" in reason(api_server, "elsewhere")
    events = [row for row in api_server.rows(EVENT) if row["reason"] == "InterfereWaiting"]
    assert len(events) == 40, "one for each change of state"
    written = len(api_server.writes)
    round_of(replica, api_server)
    assert len(api_server.writes) == written + 1, "the lease alone: a place in the line is not written each round"


def test_a_pod_of_wrong_annotations_is_released_and_told(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p", notes={names.MEMORY_GIB: "lots"}))
    api_server.add(POD, pod("q", notes={names.MAX_WAIT_S: "soon"}))
    replica = controller(settings())
    wait_seen(replica, api_server)
    assert release_after(replica, 0.0).released == 2
    assert "annotations" in reason(api_server, "p")


def test_without_its_lease_waiting_pods_are_released_after_their_window(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    one_gpu(api_server)
    api_server.add(POD, pod("p", notes={names.STATE: "waiting"}))
    api = ClusterApi(10.0, 1000.0, 1000)
    assert release_pods(api, settings(), controller_metrics(), time.time() + 61.0).released == 1


def test_a_pod_whose_device_is_not_given_is_planned_anew_at_once(policy_server: RunningServer) -> None:
    """Ten seconds after its first placement, not at the end of the minute in which it may be bound."""
    memory, chosen = Memory(), settings(start_s=60.0)
    memory.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    memory.add(NODE, node("n0"))
    memory.add(SLICE, resource_slice("n0", gpus=2))
    memory.add(POD, pod("p"))
    api: Any = memory
    with PolicyClient(policy_server.address) as client:
        port = KubernetesPort(chosen, api, api, controller_metrics(), lambda: True)
        advisor = Advisor(port, client, CombinedMarks(), chosen, controller_metrics())
        (first,) = advisor.round().decisions
        message = "0/1 nodes are available: 1 cannot allocate all claims."
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        memory.merge(POD, "ml", "p", {"status": {"conditions": [told]}})
        memory.now_s += 9.0
        assert advisor.round().decisions == ()
        memory.now_s += 2.0
        (second,) = advisor.round().decisions
    assert {first.action.device_id, second.action.device_id} == {"n0/GPU-n0-0", "n0/GPU-n0-1"}
