"""The objects of a cluster in memory, with a clock of their own: as port and stand-in scheduler read and write them."""

import copy
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

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
from interfere.serving.adapters.kubernetes.writes import PodChange, WriteKind
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
        self.count, self.now_s = 0, 1_800_000_000.0

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

    def check_current(self, _stale_s: float) -> None:
        """It is always."""

    def read(self, path: str) -> list[Row]:
        return self.now(PATHS[path])

    def carry_out(self, changes: Sequence[PodChange]) -> None:
        for write in (write for change in changes for write in change.writes):
            if write.kind is WriteKind.CREATE_CLAIM:
                self.add(CLAIM, write.body)
            elif write.kind is WriteKind.DELETE_CLAIM:
                assert not self.objects[CLAIM].pop((write.namespace, write.name)).get("status")
            elif write.kind is WriteKind.PATCH_POD:
                self.merge(POD, write.namespace, write.name, write.body)


def _merged(row: Row, changes: Row) -> Row:
    """A JSON merge patch (RFC 7386)."""
    row = dict(row)
    for key, value in changes.items():
        if value is None:
            row.pop(key, None)
        else:
            row[key] = _merged(row.get(key) or {}, value) if isinstance(value, dict) else value
    return row
