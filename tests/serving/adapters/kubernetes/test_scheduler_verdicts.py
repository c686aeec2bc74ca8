"""What kube-scheduler 1.36 allocated in 38 recorded cases: the stand-in allocates the same, and so does the adapter."""

import json
import time
from typing import Any

import pytest

from tests.data.importers.public_files import DATA, public
from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.values import quantity
from interfere.serving.adapters.kubernetes.port import controller_metrics
from interfere.serving.adapters.kubernetes.releasing import release_pods
from tests.serving.adapters.kubernetes.conftest import Start
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import node, pod, settings
from tests.serving.adapters.kubernetes.worlds import wait_seen

Row = dict[str, Any]
FILE, DRIVER = "kubernetes/scheduler_verdicts.json", "gpu.example.dev"
CASES: list[Row] = json.loads((DATA / FILE).read_text()) if (DATA / FILE).exists() else []
CLASSES = {
    DRIVER: f"device.driver == '{DRIVER}'",
    "only-gpus": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'",
    "only-other": "device.driver == 'other.example.dev'",
}


def test_all_recorded_cases_are_here() -> None:
    assert len(json.loads(public(FILE).read_text())) == 38


def control_plane(api: ApiServer, case: Row) -> None:
    """The nodes, classes and slices of a case."""
    api.add(NODE, node("n0"))
    for name, expression in CLASSES.items():
        api.add(CLASS, {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
    others = case.get("other slices", [])
    spec = {
        "driver": DRIVER,
        "nodeName": "n0",
        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1 + len(others)},
        "devices": case["devices"],
    }
    for k, each in enumerate([*others, spec]):
        api.add(SLICE, {"metadata": {"name": f"n0-{k}"}, "spec": each})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['case']}, {json.dumps(case['request'])}")
def test_the_stand_in_allocates_as_the_scheduler_did(api_server: ApiServer, case: Row) -> None:
    control_plane(api_server, case)
    request = case["request"]
    exactly: Row = {"deviceClassName": request["deviceClass"]}
    if request["capacity"]:
        exactly["capacity"] = {"requests": request["capacity"]}
    if request["selector"]:
        exactly["selectors"] = [{"cel": {"expression": request["selector"]}}]
    scheduler = StandInScheduler(api_server)
    for k in range(case["claims"]):
        metadata = {"name": f"p{k}-gpu", "namespace": "ml"}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        api_server.add(CLAIM, {"metadata": metadata, "spec": spec})
        api_server.add(POD, pod(f"p{k}", gated=False))
        scheduler.once()
    claims = {row["metadata"]["name"]: (row.get("status") or {}).get("allocation") for row in api_server.rows(CLAIM)}
    assert {name: amounts(allocation) for name, allocation in claims.items()} == {
        f"{name.replace('claim ', 'p')}-gpu": recorded and [(each["device"], sizes(each)) for each in recorded]
        for name, recorded in case["allocations"].items()
    }


def amounts(allocation: Row | None) -> list[tuple[str, dict[str, float]]] | None:
    """The devices of an allocation with what they give."""
    return allocation and [(each["device"], sizes(each)) for each in allocation["devices"]["results"]]


def sizes(result: Row) -> dict[str, float]:
    return {name: quantity(amount) for name, amount in (result.get("consumedCapacity") or {}).items()}


UUIDS = {
    case["case"]: {each["name"]: each["attributes"]["uuid"]["string"] for each in case["devices"]} for case in CASES
}
SHAPES = {case["case"]: case for case in CASES if case["case"].endswith("two GPUs of 80 GiB")}


@pytest.mark.parametrize("shape", SHAPES)
def test_four_pods_of_twenty_gibibytes_run_on_two_gpus_of_every_driver(
    api_server: ApiServer, controller: Start, shape: str
) -> None:
    control_plane(api_server, SHAPES[shape])
    for k in range(4):
        api_server.add(POD, pod(f"p{k}", "request-server", notes={names.MEMORY_GIB: "20"}))
    replica, scheduler = controller(settings(device_class=DRIVER)), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert done.rejected == ()
    scheduler.once()
    planned = {each.job.name: each.action.device_id.removeprefix("n0/GPU-") for each in done.decisions}
    held = {
        row["metadata"]["name"].removesuffix("-gpu"): row["status"]["allocation"]["devices"]["results"][0]["device"]
        for row in api_server.rows(CLAIM)
        if (row.get("status") or {}).get("allocation")
    }
    assert held == planned
    assert sorted(held.values()) == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_released_pod_gets_an_idle_gpu_or_none(api_server: ApiServer, controller: Start, shape: str) -> None:
    control_plane(api_server, SHAPES[shape])
    api_server.add(POD, pod("first", "request-server", notes={names.MEMORY_GIB: "1"}))
    replica, scheduler = controller(settings(device_class=DRIVER)), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    replica.advisor.round()
    scheduler.once()
    for k in range(2):
        api_server.add(POD, pod(f"p{k}", "request-server", notes={names.MEMORY_GIB: "1"}))
    late_s = time.time() + 61.0
    release_pods(replica._api, settings(device_class=DRIVER), controller_metrics(), late_s)
    scheduler.once()
    assert len(scheduler.bound) == 2
    held = [row["status"] for row in api_server.rows(CLAIM) if (row.get("status") or {}).get("allocation")]
    assert sorted(status["allocation"]["devices"]["results"][0]["device"] for status in held) == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize(
    ("case", "device_class", "pods"),
    [
        ("shared MIG devices and a GPU; class takes all", DRIVER, 6),
        ("shared MIG devices and a GPU; class selects type gpu", "only-gpus", 2),
        ("a GPU and its two partitions with one uuid; any", DRIVER, 2),
    ],
)
def test_pods_go_where_their_class_and_their_selector_allow(
    api_server: ApiServer, controller: Start, case: str, device_class: str, pods: int
) -> None:
    """As many pods as there are seats are bound, each where the plan says, at the first try."""
    control_plane(api_server, next(each for each in CASES if each["case"] == case))
    for k in range(pods):
        api_server.add(POD, pod(f"p{k}", "request-server", notes={names.MEMORY_GIB: "20"}))
    replica, scheduler = controller(settings(device_class=device_class)), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert done.rejected == ()
    scheduler.once()
    assert len(scheduler.bound) == pods
    held = {
        row["metadata"]["name"].removesuffix("-gpu"): row["status"]["allocation"]["devices"]["results"][0]["device"]
        for row in api_server.rows(CLAIM)
    }
    planned = {each.job.name: each.action.device_id for each in done.decisions}
    ids = {f"n0/{uuid}": name for name, uuid in UUIDS[case].items()} | {
        f"n0/{uuid}/{name}": name for name, uuid in UUIDS[case].items()
    }
    assert held == {name: ids[device] for name, device in planned.items()}
