"""The objects of a cluster in memory, with a clock of their own: as port and stand-in scheduler read and write them."""

import copy
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest

from interfere.errors import ConflictError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from interfere.serving.adapters.kubernetes.writes import Write, WriteKind
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    CLAIM,
    CLASS,
    NODE,
    POD,
    SLICE,
    TEMPLATE,
    VOLUME,
    VOLUME_CLAIM,
)

Row = dict[str, Any]
PATHS = {PODS: POD, NODES: NODE, SLICES: SLICE, CLAIMS: CLAIM, CLASSES: CLASS, TEMPLATES: TEMPLATE}
PATHS |= {VOLUME_CLAIMS: VOLUME_CLAIM, VOLUMES: VOLUME}


class Memory:
    """The objects of a cluster, as port and scheduler read and write them."""

    def __init__(self) -> None:
        self.objects: dict[Any, dict[tuple[str, str], Row]] = defaultdict(dict)
        self.count, self.now_s, self.decided_s = 0, 1_800_000_000.0, 0.0

    def add(self, kind: Any, row: Row) -> None:
        self.count += 1
        created = datetime.fromtimestamp(self.now_s, UTC).isoformat()
        metadata = {"uid": f"u{self.count}", "resourceVersion": str(self.count), "creationTimestamp": created}
        row = copy.deepcopy(row)
        row["metadata"] = metadata | row["metadata"]
        self.objects[kind][row["metadata"].get("namespace", ""), row["metadata"]["name"]] = row

    def now(self, kind: Any) -> list[Row]:
        return copy.deepcopy(list(self.objects[kind].values()))

    def merge(self, kind: Any, namespace: str, name: str, changes: Row) -> None:
        self.count += 1
        row = _merged(self.objects[kind][namespace, name], changes)
        row["metadata"]["resourceVersion"] = str(self.count)
        self.objects[kind][namespace, name] = row

    async def patching(self, kind: Any, namespace: str, name: str, changes: Row) -> None:
        self.merge(kind, namespace, name, changes)

    def run(self, coroutine: Any) -> None:
        with pytest.raises(StopIteration):
            coroutine.send(None)  # nothing in it waits

    def time_s(self) -> float:
        """As the API server's clock."""
        return self.now_s

    def check_current(self, _stale_s: float) -> None:
        """It is always."""

    def read(self, path: str) -> list[Row]:
        return self.now(PATHS[path])

    async def _add(self, kind: Any, row: Row) -> None:
        self.add(kind, row)

    def delete(self, kind: Any, namespace: str, name: str) -> None:
        """Delete an object, and with a pod the claims that it owns or holds, as the garbage collector does."""
        uid = self.objects[kind].pop((namespace, name))["metadata"]["uid"]
        for key, row in list(self.objects[CLAIM].items()) if kind == POD else ():
            users = [*row["metadata"].get("ownerReferences", ()), *((row.get("status") or {}).get("reservedFor") or ())]
            if any(each["uid"] == uid for each in users):
                del self.objects[CLAIM][key]

    # --- as `ClusterApi` -------------------------------------------------------------------------------------------

    def list(self, path: str, *, fields: str = "") -> tuple[list[Row], str]:
        """The objects of a collection; `fields` selects less than the reader does by itself."""
        return self.read(path), str(self.count)

    def call(self, method: str, path: str, **_: Any) -> Row:
        """The lease alone is known."""
        if method == "DELETE":
            return {}
        assert method == "GET", method
        assert path.endswith("/leases/interfere-controller"), path
        return {"metadata": {"annotations": {names.DECIDED_AT: str(self.decided_s)}}}

    def write(self, write: Write) -> Row:
        """Carry out one write, as an API server with nothing but optimistic concurrency."""
        key = write.namespace, write.name
        if write.kind is WriteKind.CREATE_CLAIM:
            if key in self.objects[CLAIM]:
                raise ConflictError("the object exists", value=write.name)
            self.add(CLAIM, write.body)
            return self.objects[CLAIM][key]
        if write.kind is WriteKind.DELETE_CLAIM:
            assert not self.objects[CLAIM].pop(key).get("status")
        elif write.kind is WriteKind.EVICT:
            assert self.objects[POD][key]["metadata"]["uid"] == write.body["deleteOptions"]["preconditions"]["uid"]
            self.delete(POD, *key)
        elif write.kind is WriteKind.PATCH_POD:
            if write.body["metadata"]["resourceVersion"] != self.objects[POD][key]["metadata"]["resourceVersion"]:
                raise ConflictError("the object has changed", value=write.name)
            self.merge(POD, *key, write.body)
            return self.objects[POD][key]
        return {}

    def remember(self, write: Write, row: Row) -> None:
        """Nothing is watched."""


def _merged(row: Row, changes: Row) -> Row:
    """A JSON merge patch (RFC 7386)."""
    row = dict(row)
    for key, value in changes.items():
        if value is None:
            row.pop(key, None)
        else:
            row[key] = _merged(row.get(key) or {}, value) if isinstance(value, dict) else value
    return row
