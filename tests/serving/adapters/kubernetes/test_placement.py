"""Twelve pods of four workloads on two nodes of two GPUs: eight start where the plan said, four wait."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.port import Controller
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    CLAIM,
    EVENT,
    NODE,
    POD,
    VOLUME,
    VOLUME_CLAIM,
    ApiServer,
)
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import node, pod, settings
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen
from tests.waiting import PATIENCE_S

Start = Callable[[KubernetesSettings], Controller]


def place_of(api: ApiServer, row: dict[str, Any]) -> str:
    """The GPU that the scheduler gave a pod; empty while it waits."""
    if not row["spec"].get("nodeName"):
        return ""
    if "resourceClaims" not in row["spec"]:
        uuid = row["metadata"]["annotations"][names.HAMI_ALLOCATED].partition(",")[0]
        return f"{row['spec']['nodeName']}/{uuid}"
    wanted = row["spec"]["resourceClaims"][0]["resourceClaimName"]
    (claim,) = [each for each in api.rows(CLAIM) if each["metadata"]["name"] == wanted]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return f"{result['pool']}/GPU-{result['pool']}-{result['device'].removeprefix('gpu-')}"


@pytest.mark.parametrize("source", ["dra", "hami"])
def test_eight_of_twelve_pods_start_where_the_plan_said(api_server: ApiServer, controller: Start, source: str) -> None:
    two_nodes(api_server, source)
    for k in range(12):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4], source=source))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    scheduler.once()
    assert all(row["spec"].get("nodeName") is None for row in api_server.rows(POD)), "gated pods are not bound"
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert done.rejected == ()
    planned = {each.job.name: each.action.device_id for each in done.decisions}
    scheduler.once()
    rows = pods_by_name(api_server)
    places = {name: place_of(api_server, row) for name, row in rows.items()}
    assert places == planned
    assert sum(bool(place) for place in places.values()) == 8
    # The pods on each GPU are the pairs of the matching.
    partners = {
        each.job.name: each.action.partner_id.split("/")[1] for each in done.decisions if each.action.partner_id
    }
    assert len(partners) == 8
    assert all(places[name] == places[partner] and partners[partner] == name for name, partner in partners.items())
    # Those that wait are gated still, and say why.
    waiting = [row for name, row in rows.items() if not places[name]]
    assert all(row["spec"]["schedulingGates"] == [{"name": names.GATE}] for row in waiting)
    assert all(row["metadata"]["annotations"][names.REASON] for row in waiting)
    assert {each.action.reason for each in done.decisions if not each.action.device_id} != {""}
    events = {row["involvedObject"]["name"]: row["reason"] for row in api_server.rows(EVENT)}
    assert events == {name: "InterferePlaced" if places[name] else "InterfereWaiting" for name in rows}


def test_a_node_of_one_gpu_is_chosen_by_its_name(api_server: ApiServer, controller: Start) -> None:
    for name in ("n0", "n1"):
        api_server.add(NODE, node(name, gpus=1))
    for k in range(4):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k], source="node"))
    done = controller(settings()).advisor.round()
    StandInScheduler(api_server).once()
    rows = pods_by_name(api_server)
    assert {each.job.name: each.action.device_id.partition("/")[0] for each in done.decisions} == {
        name: row["spec"].get("nodeName", "") for name, row in rows.items()
    }
    assert any(row["spec"].get("nodeName") for row in rows.values())


def test_a_pod_that_no_gpu_could_take_is_released_at_once(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("large", notes={names.MEMORY_GIB: "81"}))
    done = controller(settings()).advisor.round()
    assert done.decisions == ()
    row = pods_by_name(api_server)["large"]
    assert "schedulingGates" not in row["spec"]
    assert "no GPU of the cluster" in row["metadata"]["annotations"][names.REASON]


def test_only_changed_pods_are_patched(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    for k in range(12):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    replica = controller(settings())
    advisor = replica.advisor
    advisor.round()
    wait_seen(replica, api_server)
    before = len(api_server.writes)
    assert advisor.round().rejected == ()
    assert len(api_server.writes) == before, "nothing is new: nothing is written"


def test_a_waiting_pod_takes_a_seat_that_becomes_free(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    for k in range(12):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    replica.advisor.round()
    scheduler.once()
    for row in [row for row in api_server.rows(POD) if row["spec"].get("nodeName")][:2]:
        api_server.patch(POD, "ml", row["metadata"]["name"], {"status": {"phase": "Succeeded"}})
    deadline_s = time.monotonic() + PATIENCE_S
    while len(scheduler.bound) < 10 and time.monotonic() < deadline_s:
        replica.advisor.round()
        scheduler.once()
        time.sleep(0.1)
    assert len(scheduler.bound) == len(set(scheduler.bound)) == 10


def test_a_released_pods_claim_is_replaced_when_a_decision_comes(api_server: ApiServer, controller: Start) -> None:
    """The gate is gone, the claim is unreserved: the decision may still change."""
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p0", notes={}))
    chosen = settings(window_s=1.0, interval_s=0.2)
    replica = controller(chosen)
    time.sleep(1.2)
    replica._release()
    (claim,) = api_server.rows(CLAIM)
    assert claim["metadata"]["annotations"][names.CLAIM_FOR] == names.ANY_DEVICE
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"] == {"requests": {"memory": "80Gi"}}
    wait_seen(replica, api_server)
    (decision,) = replica.advisor.round().decisions
    (claim,) = api_server.rows(CLAIM)
    assert claim["metadata"]["annotations"][names.CLAIM_FOR] == decision.action.device_id
    assert decision.action.device_id


@pytest.mark.parametrize("source", ["dra", "hami"])
def test_a_pod_goes_where_its_volume_is(api_server: ApiServer, controller: Start, source: str) -> None:
    """A nodeSelector cannot be taken back: a pod that was sent away from its disk would wait for ever."""
    two_nodes(api_server, source)
    terms = [{"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": ["n1"]}]}]
    local = {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    for row in (local, {"metadata": {"name": "anywhere"}, "spec": {}}):
        api_server.add(VOLUME, row)
    for name, spec in {"data": {"volumeName": "disk"}, "shared": {"volumeName": "anywhere"}, "unbound": {}}.items():
        api_server.add(VOLUME_CLAIM, {"metadata": {"name": name, "namespace": "ml"}, "spec": spec})
    for k, name in enumerate(["data", "data", "data", "data", "shared", "unbound"]):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        api_server.add(POD, pod(f"p{k}", "request-server", source=source, volumes=volumes))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    planned = {each.job.name: each.action.device_id.partition("/")[0] for each in replica.advisor.round().decisions}
    assert {planned[f"p{k}"] for k in range(4)} == {"n1"}
    scheduler.once()
    assert {name: row["spec"].get("nodeName", "") for name, row in pods_by_name(api_server).items()} == planned


@pytest.mark.parametrize("source", ["dra", "hami"])
def test_pods_of_one_round_share_the_cores_of_their_node(api_server: ApiServer, controller: Start, source: str) -> None:
    """20 of 32 cores each: the GPUs have eight seats, the nodes room for two pods. The scheduler is slow."""
    two_nodes(api_server, source)
    for k in range(6):
        row = pod(f"p{k}", "request-server", source=source)
        row["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "20"
        api_server.add(POD, row)
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    for _ in range(2):
        wait_seen(replica, api_server)
        done = replica.advisor.round()
        assert done.rejected == ()
    ungated = [name for name, row in pods_by_name(api_server).items() if "schedulingGates" not in row["spec"]]
    scheduler.once()
    bound = {
        name: row["spec"]["nodeName"] for name, row in pods_by_name(api_server).items() if "nodeName" in row["spec"]
    }
    assert set(bound) == set(ungated)
    assert sorted(bound.values()) == ["n0", "n1"]
    reasons = {
        row["metadata"]["annotations"][names.REASON] for row in api_server.rows(POD) if "nodeName" not in row["spec"]
    }
    assert all(reasons)
