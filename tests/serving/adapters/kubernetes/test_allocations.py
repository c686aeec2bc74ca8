"""What others hold of devices, and which devices there are, as kube-scheduler counts."""

import copy
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.objects.gpus import gpus_of_slices
from interfere.serving.adapters.kubernetes.objects.reading import read_claim
from interfere.serving.adapters.kubernetes.port import controller_metrics
from interfere.serving.adapters.kubernetes.releasing import release_pods
from tests.serving.adapters.kubernetes.conftest import Start
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, resource_slice, settings
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen

Row = dict[str, Any]


def one_node(api: ApiServer, *slices: Row) -> None:
    """A node whose GPUs the slices publish."""
    api.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    api.add(NODE, node("n0"))
    for each in slices:
        api.add(SLICE, each)


def allocated(name: str, *results: Row, uid: str = "somebody") -> Row:
    """A claim that is allocated and reserved."""
    own = [{"request": "gpu", "driver": DRIVER, "pool": "n0"} | each for each in results]
    reserved = [{"resource": "pods", "name": name, "uid": uid}]
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
        "status": {"allocation": {"devices": {"results": own}}, "reservedFor": reserved},
    }


def decide(api: ApiServer, controller: Start, *pods: Row, **chosen: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Where a round places pods, and the nodes that the scheduler then binds them to."""
    for each in pods:
        api.add(POD, each)
    replica, scheduler = controller(settings(**chosen)), StandInScheduler(api)
    scheduler.deallocates = False
    wait_seen(replica, api)
    done = replica.advisor.round()
    assert done.rejected == ()
    scheduler.once()
    bound = {name: row["spec"].get("nodeName", "") for name, row in pods_by_name(api).items()}
    return {each.job.name: each.action.device_id for each in done.decisions}, bound


def test_monitoring_with_admin_access_takes_no_seat(api_server: ApiServer, controller: Start) -> None:
    """A DaemonSet that watches every GPU is given all of them with admin access: it consumes nothing."""
    one_node(api_server, resource_slice("n0"))
    watching = [{"device": f"gpu-{k}", "adminAccess": True} for k in range(2)]
    api_server.add(CLAIM, allocated("exporter-gpus", *watching))
    pods = [pod(f"p{k}", "request-server") for k in range(4)]
    planned, bound = decide(api_server, controller, *pods)
    assert all(planned.values())
    assert set(bound.values()) == {"n0"}


def test_a_claim_holds_its_device_until_it_is_deallocated(api_server: ApiServer, controller: Start) -> None:
    """The pod has ended; the controller of claims has not freed its claim yet: kube-scheduler counts it still."""
    one_node(api_server, resource_slice("n0", gpus=1))
    ended = api_server.add(POD, pod("ended", gated=False, nodeName="n0"))
    api_server.patch(POD, "ml", "ended", {"status": {"phase": "Succeeded"}})
    held = {"device": "gpu-0", "shareID": "s", "consumedCapacity": {"memory": "40Gi"}}
    api_server.add(CLAIM, allocated("ended-gpu", held, uid=ended["metadata"]["uid"]))
    planned, bound = decide(api_server, controller, *(pod(f"p{k}", "request-server") for k in range(2)))
    assert sorted(planned.values()) == ["", "n0/GPU-n0-0"], "half of it is free"
    assert {name: bool(bound[name]) for name in planned} == {name: bool(device) for name, device in planned.items()}


def test_a_resident_counts_with_what_its_claim_holds(api_server: ApiServer, controller: Start) -> None:
    """Its user asked for 70 of 80 GiB in a claim of its own: a second pod of 40 GiB is never sent there."""
    one_node(api_server, resource_slice("n0", gpus=1))
    resident = api_server.add(POD, pod("resident", gated=False, nodeName="n0"))
    held = {"device": "gpu-0", "shareID": "s", "consumedCapacity": {"memory": "70Gi"}}
    api_server.add(CLAIM, allocated("resident-gpu", held, uid=resident["metadata"]["uid"]))
    small = pod("small", "request-server", notes={names.MEMORY_GIB: "9"})
    planned, bound = decide(api_server, controller, pod("half", "request-server"), small)
    assert planned == {"half": "", "small": "n0/GPU-n0-0"}
    assert bound["small"] == "n0"


def test_a_capacity_of_which_no_valid_amount_fits_twice_is_one_seat(api_server: ApiServer, controller: Start) -> None:
    """A claim consumes 60 of 100 cores at least."""
    row = resource_slice("n0", gpus=1)
    row["spec"]["devices"][0]["capacity"]["cores"] = {
        "value": "100",
        "requestPolicy": {"default": "60", "validValues": ["60", "100"]},
    }
    one_node(api_server, row)
    planned, bound = decide(api_server, controller, *(pod(f"p{k}", "request-server") for k in range(2)))
    assert sorted(planned.values()) == ["", "n0/GPU-n0-0"]
    assert {name: bool(bound[name]) for name in planned} == {name: bool(device) for name, device in planned.items()}


@pytest.mark.parametrize("name", ["memory", f"{DRIVER}/memory"])
def test_a_released_pod_asks_for_the_memory_by_the_name_that_is_published(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """kube-scheduler up to 1.36 finds no device that publishes exactly another name."""
    row = resource_slice("n0")
    for device in row["spec"]["devices"]:
        device["capacity"] = {name: device["capacity"]["memory"]}
    one_node(api_server, row)
    api_server.add(POD, pod("p"))
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    api = ClusterApi(10.0, 100.0, 100)
    assert release_pods(api, settings(), controller_metrics(), 4e9).released == 1
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert pods_by_name(api_server)["p"]["spec"].get("nodeName") == "n0"


def test_only_a_taint_that_keeps_pods_off_hides_a_device(api_server: ApiServer, controller: Start) -> None:
    row = resource_slice("n0", gpus=3)
    for device, effect in zip(row["spec"]["devices"], ("None", "NoSchedule", "NoExecute"), strict=True):
        device["taints"] = [{"key": "k", "value": "v", "effect": effect}]
    one_node(api_server, row)
    planned, bound = decide(api_server, controller, *(pod(f"p{k}", "request-server") for k in range(4)))
    assert sorted(filter(None, planned.values())) == ["n0/GPU-n0-0"] * 2
    assert sum(map(bool, bound.values())) == 2


def selecting(row: Row, place: Row) -> Row:
    """The slice with another way of naming its nodes."""
    row = copy.deepcopy(row)
    del row["spec"]["nodeName"]
    row["spec"] |= place
    return row


ON_N1 = {"nodeSelectorTerms": [{"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": ["n1"]}]}]}


@pytest.mark.parametrize(
    ("place", "node_name"),
    [
        ({"nodeName": "n1"}, "n1"),
        ({"nodeSelector": ON_N1}, "n1"),
        ({"allNodes": True}, ""),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}, ""),
    ],
)
@pytest.mark.parametrize("per_device", [False, True])
def test_a_device_belongs_to_the_only_node_that_reaches_it(place: Row, node_name: str, *, per_device: bool) -> None:
    from interfere.serving.adapters.kubernetes.objects.reading import read_node

    nodes = [read_node(node(name, zone="a")) for name in ("n0", "n1")]
    row = selecting(resource_slice("n0", gpus=1), {"perDeviceNodeSelection": True} if per_device else place)
    if per_device:
        row["spec"]["devices"][0] |= place
    assert [gpu.node for gpu in gpus_of_slices([row], settings(), nodes)] == ([node_name] if node_name else [])


def test_pods_are_sent_to_devices_that_name_their_nodes_themselves(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "hami")  # nodes alone: the slice publishes a GPU of each
    api_server.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    row = selecting(resource_slice("rack"), {"perDeviceNodeSelection": True})
    for k, device in enumerate(row["spec"]["devices"]):
        device["nodeName"] = f"n{k}"
    api_server.add(SLICE, row)
    planned, bound = decide(api_server, controller, *(pod(f"p{k}", "request-server") for k in range(4)))
    assert {name: device.partition("/")[0] for name, device in planned.items()} == bound
    assert sorted(bound.values()) == ["n0", "n0", "n1", "n1"]


@pytest.mark.parametrize("fault", ["a slice too few", "a slice too many", "two devices of one name"])
def test_a_pool_that_is_not_whole_gives_no_gpu(fault: str) -> None:
    row, other = resource_slice("n0"), resource_slice("n0")
    other["metadata"]["name"], other["spec"]["devices"] = "second", []
    slices = [row, other] if fault == "a slice too many" else [row]
    row["spec"]["pool"]["resourceSliceCount"] = 2 if fault == "a slice too few" else 1
    if fault == "two devices of one name":
        row["spec"]["devices"][1]["name"] = row["spec"]["devices"][0]["name"]
    assert gpus_of_slices(slices, settings()) == ()


def partitioned() -> list[Row]:
    """A GPU and a half of it, which consume the same counters."""
    counters = resource_slice("n0", generation=1)
    counters["metadata"]["name"] = "counters"
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]
    devices = resource_slice("n0", generation=1)
    for device, slices in zip(devices["spec"]["devices"], ("7", "3"), strict=True):
        device["consumesCounters"] = [{"counterSet": "gpu-0", "counters": {"slices": {"value": slices}}}]
    for each in (counters, devices):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    return [counters, devices]


@pytest.mark.parametrize("held", [None, 0, 1])
def test_a_gpu_and_its_partitions_are_not_both_given(
    api_server: ApiServer, controller: Start, held: int | None
) -> None:
    one_node(api_server, *partitioned())
    if held is not None:
        resident = api_server.add(POD, pod("resident", "request-server", gated=False, nodeName="n0"))
        result = {"device": f"gpu-{held}", "shareID": "s", "consumedCapacity": {"memory": "40Gi"}}
        api_server.add(CLAIM, allocated("resident-gpu", result, uid=resident["metadata"]["uid"]))
    planned, bound = decide(api_server, controller, *(pod(f"p{k}", "request-server") for k in range(4)))
    assert {name: bool(bound[name]) for name in planned} == {name: bool(device) for name, device in planned.items()}
    used = {device for device in planned.values() if device}
    assert used == {f"n0/GPU-n0-{held or 0}"}


def test_consumed_capacity_is_read_by_either_spelling() -> None:
    for name in ("memory", f"{DRIVER}/memory"):
        claim = read_claim(allocated("c", {"device": "gpu-0", "shareID": "s", "consumedCapacity": {name: "1Gi"}}))
        assert claim.devices[0].consumed == (("memory", 2.0**30),)
