"""What an API server and kube-scheduler refuse, and what the adapter does then."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import PODS, ClusterApi
from interfere.serving.adapters.kubernetes.claims import device_selector
from interfere.serving.adapters.kubernetes.objects.gpus import consumed, gpus_of_slices, share
from interfere.serving.adapters.kubernetes.objects.selectors import DEVICE, compile_error, device_variable, evaluate
from interfere.serving.adapters.kubernetes.objects.values import quantity
from tests.serving.adapters.kubernetes.conftest import Start
from tests.serving.adapters.kubernetes.control_plane.api_rules import refusals
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, GIB, node, pod, resource_slice, settings
from tests.serving.adapters.kubernetes.worlds import gated, pods_by_name, release_overdue, two_nodes, wait_seen


@pytest.fixture
def api(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    return ClusterApi(10.0, 1000.0, 1000)


def test_an_expired_page_of_a_list_is_no_empty_cluster(api_server: ApiServer, api: ClusterApi) -> None:
    for k in range(5):
        api_server.add(POD, pod(f"p{k}"))
    api_server.kmock.page = 2
    assert len(api.list(PODS)[0]) == 5
    api_server.kmock.expired_tokens = True  # etcd was compacted between two pages
    rows, version = api.list(PODS)
    assert len(rows) == 5
    assert version


@pytest.mark.parametrize("status", [403, 404, 409, 422, 500])
def test_a_claim_that_cannot_be_made_keeps_no_gate(api_server: ApiServer, api: ClusterApi, status: int) -> None:
    """A quota of claims, a class that is not valid, a cluster without DRA, a webhook of somebody else."""
    api_server.add(POD, pod("p"))
    api_server.kmock.fault = lambda request: (
        status if request.url.path.endswith("/resourceclaims") and (request.method.value == "POST") else None
    )
    assert release_overdue(api).released == 1
    assert gated(api_server) == []
    api_server.kmock.fault = lambda request: None
    assert release_overdue(api).released == 1, "its claim follows as soon as it can be made"
    assert len(api_server.rows(CLAIM)) == 1


def test_a_pod_that_nobody_can_change_keeps_no_other_gated(api_server: ApiServer, api: ClusterApi) -> None:
    """As where an admission webhook for some pods is away, and its policy is to fail."""
    for k in range(8):
        api_server.add(POD, pod(f"p{k}", source="hami"))
    failing = [f"p{k}" for k in range(5)]
    api_server.kmock.fault = lambda request: 500 if request.url.path.rpartition("/")[2] in failing else None
    assert release_overdue(api).rejected == 5
    assert gated(api_server) == failing
    api_server.kmock.fault = lambda request: 503 if request.url.path.endswith("/p0") else None  # a proxy before it
    assert release_overdue(api).rejected == 1
    assert gated(api_server) == ["p0"]


def mixed_slice(uuid: str = "GPU-n0-0") -> dict[str, Any]:
    """A device without a uuid stands before the GPUs, as a network card of the same driver may."""
    row = resource_slice("n0")
    row["spec"]["devices"].insert(0, {"name": "nic", "attributes": {"speed": {"int": 100}}, "capacity": {}})
    row["spec"]["devices"][1]["attributes"]["uuid"]["string"] = uuid
    return row


@pytest.mark.parametrize("uuid", ["GPU-1", 'a"b\\c', "ü/'x"])
def test_the_selector_holds_on_one_device_and_is_an_error_on_none(uuid: str) -> None:
    row = mixed_slice(uuid)
    gpu = gpus_of_slices([row], settings())[0]
    expression = device_selector(gpu)
    assert compile_error(expression, DEVICE) == ""
    devices = [device_variable(DRIVER, each, ["other.dev"]) for each in row["spec"]["devices"]]
    other = device_variable("other.dev", {"attributes": {"uuid": {"string": uuid}}}, [DRIVER])
    assert [evaluate(expression, DEVICE, each) for each in (*devices, other)] == [False, True, False, False]
    with pytest.raises(ValueError, match="uuid"):
        evaluate(f'device.attributes["{DRIVER}"].uuid == "x"', DEVICE, devices[0])


def test_pods_are_placed_among_devices_of_other_kinds(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "hami")
    api_server.add(SLICE, mixed_slice())
    api_server.add(POD, pod("p"))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    (decision,) = replica.advisor.round().decisions
    scheduler.once()
    (claim,) = api_server.rows(CLAIM)
    device = claim["status"]["allocation"]["devices"]["results"][0]["device"]
    assert f"n0/GPU-n0-{device[-1]}" == decision.action.device_id


POLICIES = st.one_of(
    st.just({}),
    st.builds(lambda low: {"default": str(low), "validRange": {"min": str(low)}}, st.integers(1, 50)),
    st.builds(
        lambda low, step: {"default": str(low), "validRange": {"min": str(low), "step": str(step)}},
        st.integers(1, 30),
        st.integers(1, 30),
    ),
    st.builds(
        lambda low, more: {"default": str(low), "validRange": {"min": str(low), "max": str(low + more)}},
        st.integers(1, 30),
        st.integers(0, 30),
    ),
    st.builds(
        lambda values: {"default": str(min(values)), "validValues": [str(each) for each in values]},
        st.lists(st.integers(1, 90), min_size=1, max_size=4),
    ),
)


@hypothesis_settings(max_examples=300)
@given(policy=POLICIES, seats=st.integers(1, 6))
def test_all_seats_fit_wherever_a_request_lets_them(policy: dict[str, Any], seats: int) -> None:
    capacity: dict[str, Any] = {"value": "100"} | ({"requestPolicy": policy} if policy else {})
    amount = share(capacity, seats)
    used = consumed(capacity, amount)
    assert used == amount, "a valid request is not rounded"
    valid = [each for k in range(1, 101) if not math.isnan(each := consumed(capacity, float(k)))]
    if seats * min(valid) <= 100:
        assert seats * used <= 100
        # No whole number above it would do as well.
        assert all(seats * each > 100 or each <= used for each in valid)


def test_capacities_without_a_default_are_shared_too(api_server: ApiServer, controller: Start) -> None:
    """A claim that does not name them would take them as a whole, and no second pod would fit."""
    two_nodes(api_server, "dra")
    for row in api_server.rows(SLICE):
        for device in row["spec"]["devices"]:
            device["capacity"]["cores"] = {"value": "100"}
        changes = {"spec": {"devices": row["spec"]["devices"]}}
        api_server.patch(SLICE, None, row["metadata"]["name"], changes)
    for k in range(8):
        api_server.add(POD, pod(f"p{k}", "request-server"))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    placed = sum(bool(each.action.device_id) for each in replica.advisor.round().decisions)
    scheduler.once()
    assert placed == len(scheduler.bound) == 8


def test_a_pool_that_is_not_published_as_a_whole_gives_no_gpu() -> None:
    row = resource_slice("n0")
    row["spec"]["pool"]["resourceSliceCount"] = 2
    assert gpus_of_slices([row], settings()) == ()
    other = json.loads(json.dumps(row))
    other["metadata"]["name"], other["spec"]["devices"] = "second", []
    assert len(gpus_of_slices([row, other], settings())) == 2


def test_a_node_that_no_selector_can_name_is_left_out(api_server: ApiServer, controller: Start) -> None:
    for name in ("n0", "n1"):
        row = node(name, gpus=1)
        if name == "n0":
            del row["metadata"]["labels"][names.HOSTNAME]
        api_server.add(NODE, row)
    for k in range(3):
        api_server.add(POD, pod(f"p{k}", source="node"))
    replica = controller(settings())
    wait_seen(replica, api_server)
    assert {each.action.device_id for each in replica.advisor.round().decisions} <= {"n1/gpu-0", ""}


def test_a_gpu_of_three_time_slices_offers_three_seats(api_server: ApiServer, controller: Start) -> None:
    api_server.add(NODE, node("n0", gpus=1, replicas=3))
    for k in range(5):
        api_server.add(POD, pod(f"p{k}", "request-server", source="node", notes={names.MEMORY_GIB: "1"}))
    replica, scheduler = controller(settings(seats=4)), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    decisions = replica.advisor.round().decisions
    scheduler.once()
    assert sum(bool(each.action.device_id) for each in decisions) == len(scheduler.bound) == 3


def test_a_claim_of_a_class_that_is_not_there_waits(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p", notes={names.DEVICE_CLASS: "no.such.class"}))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    replica.advisor.round()
    scheduler.once()
    (condition,) = pods_by_name(api_server)["p"]["status"]["conditions"]
    assert condition["message"] == "device class no.such.class does not exist"


EVENT = {
    "metadata": {"name": "p.1", "namespace": "ml"},
    "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "p"},
    "reason": "R",
    "message": "m" * 2000,
    "firstTimestamp": "2026-11-22T00:00:00Z",
}
EXACTLY = {"deviceClassName": "c.d", "capacity": {"requests": {"memory": "1Gi"}}}


def claim_of(**exactly: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "g", "exactly": EXACTLY | exactly}]}}}


@pytest.mark.parametrize(
    ("resource", "group", "row", "word"),
    [
        ("events", "v1", EVENT, ""),
        ("events", "v1", EVENT | {"eventTime": "2026-11-22T00:00:00.000000Z"}, "action"),
        ("events", "v1", EVENT | {"firstTimestamp": "yesterday"}, "firstTimestamp"),
        ("events", "v1", EVENT | {"involvedObject": {"kind": "Pod", "namespace": "other"}}, "namespace"),
        ("resourceclaims", "resource.k8s.io/v1", claim_of(), ""),
        ("resourceclaims", "resource.k8s.io/v1", claim_of(deviceClassName="A B"), "deviceClassName"),
        ("resourceclaims", "resource.k8s.io/v1", claim_of(count=0), "count"),
        ("resourceclaims", "resource.k8s.io/v1", claim_of(capacity={"requests": {"memory": "1 Gi"}}), "memory"),
        ("resourceclaims", "resource.k8s.io/v1", claim_of(selectors=[{"cel": {"expression": "a =="}}]), "Syntax"),
        ("resourceclaims", "resource.k8s.io/v1", claim_of() | {"apiVersion": "resource.k8s.io/v1beta1"}, "is not"),
        ("leases", "coordination.k8s.io/v1", {"spec": {"renewTime": "2026-11-22T00:00:00Z"}}, "MicroTime"),
        ("secrets", "v1", {"metadata": {"labels": {"a": "x" * 64}}}, "labels"),
        ("secrets", "v1", {"metadata": {"annotations": {"a b": "x"}}}, "annotations"),
    ],
)
def test_what_the_stand_in_refuses(resource: str, group: str, row: dict[str, Any], word: str) -> None:
    found = " ".join(refusals(resource, group, row, "ml"))
    assert word in found
    assert bool(found) == bool(word)


def test_a_half_of_the_memory_is_what_two_pods_ask_for() -> None:
    row = resource_slice("n0", memory="79Gi")
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}
    row["spec"]["devices"][0]["capacity"]["memory"]["requestPolicy"] = policy
    gpu = gpus_of_slices([row], settings())[0]
    assert gpu.share_bytes == 39 * GIB == quantity("39Gi")
