"""Pods whose claims come from templates, as manifests write them, and what becomes of pods while parts are away."""

import itertools
import time
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes import releasing
from interfere.serving.adapters.kubernetes.port import Controller, controller_metrics
from interfere.serving.adapters.kubernetes.webhook import mutation
from interfere.serving.adapters.round import one_round
from tests.serving.adapters.kubernetes.conftest import Start
from tests.serving.adapters.kubernetes.control_plane.admission import patched
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    CLAIM,
    CLASS,
    NODE,
    POD,
    SLICE,
    TEMPLATE,
    ApiServer,
)
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, resource_slice, settings
from tests.serving.adapters.kubernetes.worlds import gated, pods_by_name, two_nodes, wait_seen

Row = dict[str, Any]
AWAY = [frozenset(each) for n in range(4) for each in itertools.combinations(("webhook", "controller", "server"), n)]
WINDOW_S = 60.0


def template(**request: Any) -> Row:
    exactly = {"deviceClassName": DRIVER} | request
    spec = {
        "devices": {
            "requests": [{"name": "mine", "exactly": exactly}],
            "config": [{"requests": ["mine"], "opaque": {"driver": DRIVER, "parameters": {"kind": "Sharing"}}}],
        }
    }
    return {"metadata": {"name": "one-gpu", "namespace": "ml"}, "spec": {"spec": spec}}


def add_template(api: ApiServer, **request: Any) -> None:
    api.add(TEMPLATE, template(**request))


def templated(name: str, workload: str = "request-server", **notes: str) -> Row:
    row = pod(name, workload, gated=False, notes=notes)
    row["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return row


def create(api: ApiServer, row: Row, *, webhook: bool = True) -> None:
    """Create a pod as its user does; the webhook is asked where it is there."""
    api.add(POD, patched(row, mutation(row, f"uid-{row['metadata']['name']}", settings())) if webhook else row)


def claim_of(api: ApiServer, name: str) -> Row:
    (row,) = [each for each in api.rows(CLAIM) if each["metadata"]["name"] == f"interfere-uid{name}"]
    return row


def test_pods_of_templates_are_matched_and_their_claims_are_the_templates(
    api_server: ApiServer, controller: Start
) -> None:
    two_nodes(api_server, "dra")
    add_template(api_server, capacity={"requests": {"memory": "10Gi"}})
    for k in range(8):
        create(api_server, templated(f"p{k}"))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert done.rejected == ()
    scheduler.once()
    planned = {each.job.name: each.action.device_id.replace("/GPU-n0-", "/gpu-") for each in done.decisions}
    assert len(scheduler.bound) == 8
    for name, device in planned.items():
        claim = claim_of(api_server, name)
        (request,) = claim["spec"]["devices"]["requests"]
        assert request["name"] == "mine"
        assert request["exactly"]["capacity"]["requests"] == {"memory": "40960Mi"}, "a seat: more than it asks for"
        assert claim["spec"]["devices"]["config"][0]["requests"] == ["mine"]
        (held,) = claim["status"]["allocation"]["devices"]["results"]
        assert device.replace("/GPU-n1-", "/gpu-") == f"{held['pool']}/{held['device']}"


def test_a_template_selects_among_the_gpus(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    own = f'device.attributes["{DRIVER}"].uuid.startsWith("GPU-n1")'
    add_template(api_server, selectors=[{"cel": {"expression": own}}])
    for k in range(4):
        create(api_server, templated(f"p{k}"))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    assert {each.action.device_id[:2] for each in replica.advisor.round().decisions} == {"n1"}
    scheduler.once()
    assert len(scheduler.bound) == 4


@pytest.mark.parametrize("request_of_two", [{"count": 2}, {"allocationMode": "All"}, {"adminAccess": True}])
def test_a_template_of_several_devices_is_made_as_it_is(
    api_server: ApiServer, controller: Start, request_of_two: Row
) -> None:
    two_nodes(api_server, "dra")
    add_template(api_server, **request_of_two)
    create(api_server, templated("p"))
    replica = controller(settings())
    wait_seen(replica, api_server)
    assert replica.advisor.round().decisions == ()
    assert release(replica, 0.0).released == 1
    (request,) = claim_of(api_server, "p")["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": DRIVER} | request_of_two


def test_a_pod_waits_for_its_template_as_it_would_without_us(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    create(api_server, templated("p"))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    assert replica.advisor.round().decisions == ()
    assert release(replica, WINDOW_S + 1.0).released == 1
    add_template(api_server)
    assert release(replica, WINDOW_S + 4.0).released == 1
    scheduler.once()
    assert len(scheduler.bound) == 1


def release(replica: Controller, later_s: float, *, every: bool = False) -> releasing.Released:
    now_s, metrics = time.time() + later_s, controller_metrics()
    return releasing.release_pods(replica._api, settings(window_s=WINDOW_S), metrics, now_s, every=every)


@pytest.mark.parametrize("end", ["window", "back", "rollback"])
@pytest.mark.parametrize("away", AWAY, ids=lambda away: "+".join(sorted(away)) or "nobody")
@pytest.mark.parametrize("kind", ["template", "late claim", "nodeSelector", "HAMi"])
def test_whoever_is_away_every_pod_starts_with_its_gpu(
    api_server: ApiServer, controller: Start, kind: str, away: frozenset[str], end: str
) -> None:
    """Two pods, and an idle GPU for each. Afterwards whoever was away is back, or all is rolled back, or neither."""
    if kind == "nodeSelector":
        for k in range(2):
            api_server.add(NODE, node(f"n{k}", gpus=1))
    else:
        two_nodes(api_server, "hami" if kind == "HAMi" else "dra")
    add_template(api_server)
    for k in range(2):
        source = {"nodeSelector": "node", "HAMi": "hami"}.get(kind, "dra")
        row = templated(f"p{k}") if kind == "template" else pod(f"p{k}", "request-server", source=source, gated=False)
        create(api_server, row, webhook="webhook" not in away)
    replica, scheduler = controller(settings(window_s=WINDOW_S)), StandInScheduler(api_server)
    server = replica.advisor.client

    def look(parts: frozenset[str]) -> None:
        wait_seen(replica, api_server)
        replica.advisor.client = PolicyClient("127.0.0.1:1", timeout_s=0.2) if "server" in parts else server
        if "controller" not in parts:
            one_round(replica.advisor)
            replica._lease.try_hold()
        scheduler.once()

    look(away)
    if end == "rollback":
        release(replica, 1.0, every=True)
    else:
        if end == "back":
            look(frozenset())
        release(replica, WINDOW_S)
    scheduler.once()
    rows = pods_by_name(api_server)
    assert gated(api_server) == []
    assert all(row["spec"].get("nodeName") for row in rows.values()), "none is Pending for our sake"
    held = [
        row["status"]["allocation"] for row in api_server.rows(CLAIM) if (row.get("status") or {}).get("allocation")
    ]
    assert len(held) == (0 if kind in ("nodeSelector", "HAMi") else 2), "each has the GPU that it asked for"


def test_a_device_that_was_not_given_is_not_asked_for_again(api_server: ApiServer, controller: Start) -> None:
    """A rule that only kube-scheduler knows, as a DeviceTaintRule, keeps pods off a GPU."""
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p"))
    replica = controller(settings(start_s=0.5))
    sent = list[str]()
    for _ in range(3):
        wait_seen(replica, api_server)
        (decision,) = replica.advisor.round().decisions
        sent.append(decision.action.device_id)
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        conditions = [told | {"message": "0/2 nodes are available: 2 cannot allocate all claims."}]
        api_server.patch(POD, "ml", "p", {"status": {"conditions": conditions}})
        time.sleep(0.6)
    assert len(set(sent)) == 3, sent
    wait_seen(replica, api_server)
    api_server.add(POD, pod("q"))
    wait_seen(replica, api_server)
    (decision,) = replica.advisor.round().decisions
    assert decision.action.device_id not in sent, "nor is any other pod of the same request"


def test_a_scheduler_that_is_away_refuses_nothing(api_server: ApiServer, controller: Start) -> None:
    api_server.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    api_server.add(NODE, node("n0"))
    api_server.add(SLICE, resource_slice("n0", gpus=1))
    api_server.add(POD, pod("p"))
    replica = controller(settings(start_s=0.5))
    for _ in range(2):
        wait_seen(replica, api_server)
        (decision,) = replica.advisor.round().decisions
        assert decision.action.device_id == "n0/GPU-n0-0"
        time.sleep(0.6)
