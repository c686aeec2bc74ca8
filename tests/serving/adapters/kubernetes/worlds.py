"""Small clusters in the stand-in, and what became of their pods."""

from typing import Any

from tests.serving.adapters.kubernetes.api_server import NODE, POD, SLICE, ApiServer
from tests.serving.adapters.kubernetes.facts import node, resource_slice


def two_nodes(api: ApiServer, source: str) -> None:
    """Two nodes of two GPUs with two seats each."""
    for name in ("n0", "n1"):
        api.add(NODE, node(name, gpus=2 if source == "hami" else 0, hami=source == "hami"))
        if source == "dra":
            api.add(SLICE, resource_slice(name))


def pods_by_name(api: ApiServer) -> dict[str, Any]:
    return {row["metadata"]["name"]: row for row in api.rows(POD)}
