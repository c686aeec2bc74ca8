"""Small clusters in the stand-in, and what became of their pods."""

import time
from typing import Any

from interfere.serving.adapters.kubernetes.api_server.calls import CLAIMS, PODS, ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller, controller_metrics
from interfere.serving.adapters.kubernetes.releasing import Released, release_pods
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.facts import DRIVER, node, resource_slice, settings
from tests.waiting import wait_until

LATER_S = 61.0  # seconds: every pod is past its window


def two_nodes(api: ApiServer, source: str) -> None:
    """Two nodes of two GPUs with two seats each."""
    api.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    for name in ("n0", "n1"):
        api.add(NODE, node(name, gpus=2 if source == "hami" else 0, hami=source == "hami"))
        if source == "dra":
            api.add(SLICE, resource_slice(name))


def pods_by_name(api: ApiServer) -> dict[str, Any]:
    return {row["metadata"]["name"]: row for row in api.rows(POD)}


def wait_seen(replica: Controller, api_server: ApiServer) -> None:
    """Until a controller's watch has brought the newest version of every pod and claim: a round on older ones is
    refused."""

    def versions(rows: list[dict[str, Any]]) -> dict[str, str]:
        return {row["metadata"]["name"]: row["metadata"]["resourceVersion"] for row in rows}

    watched = [(path, kind) for path, kind in ((PODS, POD), (CLAIMS, CLAIM)) if path in replica.cluster.collections]
    wait_until(
        lambda: all(versions(replica.cluster.read(path)) == versions(api_server.rows(kind)) for path, kind in watched),
        "the watch has brought what was written",
    )


def release_overdue(api: ClusterApi) -> Released:
    """A pass of the release, a minute later than it is."""
    return release_pods(api, settings(), controller_metrics(), time.time() + LATER_S)


def gated(api: ApiServer) -> list[str]:
    """Names of the pods with a gate."""
    return sorted(name for name, row in pods_by_name(api).items() if row["spec"].get("schedulingGates"))
