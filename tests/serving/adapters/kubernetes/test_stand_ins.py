"""The stand-ins behave as the API server and kube-scheduler 1.36 were seen to."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, pod, resource_slice
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes


def claim(name: str, uuid: str = "", memory: str = "30Gi") -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": memory}}}
    if uuid:
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].uuid == "{uuid}"'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    metadata = {"name": name, "namespace": "ml"}
    return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


def patch(api: ApiServer, path: str, body: dict[str, Any]) -> int:
    headers = {"Content-Type": "application/merge-patch+json"}
    url = f"http://127.0.0.1:{api.port}{path}"
    request = urllib.request.Request(url, method="PATCH", data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def ungate(api: ApiServer, name: str) -> None:
    assert patch(api, f"/api/v1/namespaces/ml/pods/{name}", {"spec": {"schedulingGates": None}}) == 200


def test_late_claims_put_two_pods_on_the_gpu_named_and_refuse_the_third(api_server: ApiServer) -> None:
    two_nodes(api_server, "dra")
    scheduler = StandInScheduler(api_server)
    for name in ("p1", "p2", "p3"):
        api_server.add(POD, pod(name))
    scheduler.once()
    reasons = {row["status"]["conditions"][0]["reason"] for row in api_server.rows(POD)}
    assert reasons == {"SchedulingGated"}
    for name in ("p1", "p2", "p3"):
        api_server.add(CLAIM, claim(f"{name}-gpu", "GPU-n0-1"))
        ungate(api_server, name)
    scheduler.once()
    assert scheduler.bound == [(pods_by_name(api_server)[name]["metadata"]["uid"], "n0") for name in ("p1", "p2")]
    assert pods_by_name(api_server)["p3"]["status"]["conditions"][0]["message"] == "cannot allocate all claims"
    # An unreserved claim is deleted and created anew with another uuid: the waiting pod is bound.
    api_server.delete(CLAIM, "ml", "p3-gpu")
    api_server.add(CLAIM, claim("p3-gpu", "GPU-n1-0"))
    scheduler.once()
    assert pods_by_name(api_server)["p3"]["spec"]["nodeName"] == "n1"


def test_a_pod_without_its_claim_waits_until_an_unrestricted_one_exists(api_server: ApiServer) -> None:
    api_server.add(SLICE, resource_slice("n0"))
    two_nodes(api_server, "hami")  # nodes alone: the slice is of the first
    scheduler = StandInScheduler(api_server)
    api_server.add(POD, pod("p1", gated=False))
    scheduler.once()
    assert pods_by_name(api_server)["p1"]["status"]["conditions"][0]["reason"] == "Unschedulable"
    api_server.add(CLAIM, claim("p1-gpu"))
    scheduler.once()
    assert pods_by_name(api_server)["p1"]["spec"]["nodeName"] == "n0"


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"nodeSelector": {names.HOSTNAME: "n0"}}, 200),
        ({"nodeSelector": {"zone": "b"}}, 422),  # a change
        ({"schedulingGates": [{"name": names.GATE}, {"name": "other"}]}, 422),
        ({"resourceClaims": []}, 422),
    ],
)
def test_what_may_change_in_a_gated_pod(api_server: ApiServer, spec: dict[str, Any], status: int) -> None:
    api_server.add(POD, pod("p1", nodeSelector={"zone": "a"}))
    assert patch(api_server, "/api/v1/namespaces/ml/pods/p1", {"spec": spec}) == status


def test_a_gate_is_never_added_again_and_a_stale_write_is_refused(api_server: ApiServer) -> None:
    api_server.add(POD, pod("p1"))
    path = "/api/v1/namespaces/ml/pods/p1"
    version = pods_by_name(api_server)["p1"]["metadata"]["resourceVersion"]
    ungate(api_server, "p1")
    assert patch(api_server, path, {"spec": {"schedulingGates": [{"name": names.GATE}]}}) == 422
    assert patch(api_server, path, {"spec": {"nodeSelector": {names.HOSTNAME: "n0"}}}) == 422
    assert patch(api_server, path, {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}}) == 409
