"""A copy of collections of the API server, kept current by list and watch.

Law: a copy equals a list at some later time. Every event replaces one object; after any error the collection is listed
anew. Law: an object never becomes older: the answer to a write may come after the watch has shown what happened next.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

from interfere.errors import UnavailableError
from interfere.serving.adapters.kubernetes.api_server.calls import CLAIMS, PODS, ClusterApi
from interfere.serving.adapters.kubernetes.records import JsonObject
from interfere.serving.adapters.kubernetes.writes import Write, WriteKind
from interfere.serving.adapters.round import repeat

WATCH_S = 20  # length of one watch: every copy that is current has news of the API server within that time
LATE_S = 5.0  # after which a watch that should have ended counts as broken
PAUSE_S = 1.0  # before a collection is listed anew
ABSENT_S = 30.0  # before a collection that is not served is asked for again
RESYNC_S = 600.0  # a collection is listed anew after that long, whatever was watched


class Collection:
    """A collection of objects, kept current by a thread that lists and watches it."""

    def __init__(self, api: ClusterApi, path: str, stop: threading.Event) -> None:
        self._api, self._path, self._stop = api, path, stop
        self._objects: dict[tuple[str, str], JsonObject] = {}
        self._lock, self._listed, self._contact_s = threading.Lock(), threading.Event(), -1e18
        self._version = 0  # of what list and watch have shown
        arguments = f"watch {path}", PAUSE_S, self._list_and_watch, stop
        self.thread = threading.Thread(target=repeat, args=arguments, name=f"watch {path}", daemon=True)

    def objects(self) -> list[JsonObject]:
        """Return all objects of the collection now."""
        with self._lock:
            return list(self._objects.values())

    def put(self, row: JsonObject) -> None:
        """Replace an object by the version that the answer to a write contains, unless the watch already delivered that
        version."""
        with self._lock:
            if _version(row) == 0 or _version(row) > self._version:
                self._objects[_key(row)] = row

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object that a write deleted."""
        with self._lock:
            self._objects.pop((namespace, name), None)

    def wait_listed(self, timeout_s: float) -> bool:
        """Wait until the collection was listed once. Returns False where that took longer than the time limit."""
        return self._listed.wait(timeout_s)

    @property
    def age_s(self) -> float:
        """Seconds since the API server last answered for this collection."""
        return time.monotonic() - self._contact_s

    @property
    def is_current(self) -> bool:
        """Whether the watch works: the copy shows what the API server knew a moment ago."""
        return self._listed.is_set() and self.age_s <= WATCH_S + LATE_S

    def _list_and_watch(self) -> None:
        rows, version = self._api.list(self._path)
        with self._lock:
            self._objects = {_key(row): row for row in rows}
            self._version = _number(version)
        self._contact()
        self._listed.set()
        if not version:  # the cluster does not serve it; a driver may be installed later
            self._stop.wait(ABSENT_S)
        end_s = time.monotonic() + RESYNC_S
        while version and not self._stop.is_set() and time.monotonic() < end_s:
            for event in self._api.watch(self._path, version, WATCH_S):
                version = self._apply(event) or version
                self._contact()
                if self._stop.is_set():
                    return
            self._contact()

    def _apply(self, event: JsonObject) -> str:
        kind, row = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise UnavailableError("the watch has failed", value=str(row.get("message") or row)[:200])
        version = str((row.get("metadata") or {}).get("resourceVersion") or "")
        with self._lock:
            self._version = max(self._version, _number(version))
            if kind == "DELETED":
                self._objects.pop(_key(row), None)
            elif kind != "BOOKMARK" and not _is_older(row, self._objects.get(_key(row))):
                self._objects[_key(row)] = row
        return version

    def _contact(self) -> None:
        self._contact_s = time.monotonic()


class Cluster:
    """The watched collections of a cluster."""

    def __init__(self, api: ClusterApi, paths: Iterable[str], stop: threading.Event) -> None:
        self._api = api
        self.collections = {path: Collection(api, path, stop) for path in paths}

    def start(self) -> None:
        """Begin to list and watch."""
        for collection in self.collections.values():
            collection.thread.start()

    def check_current(self, stale_s: float) -> None:
        """Ask the API server whether it answers.

        Raises UnavailableError where it does not, or where a collection was never listed: no decision is made on
        outdated state.
        """
        for path, collection in self.collections.items():
            if not collection.wait_listed(stale_s):
                raise UnavailableError(
                    "the API server has not listed it yet", value=path, remedy="kubectl auth can-i list"
                )
        if max(collection.age_s for collection in self.collections.values()) > stale_s:
            self._api.call("GET", "/version")

    def remember(self, write: Write, row: JsonObject) -> None:
        """Put the result of a write into the copies, so that the next round sees it before the watch shows it."""
        if write.kind is WriteKind.PATCH_POD and row:
            self.collections[PODS].put(row)
        elif write.kind is WriteKind.CREATE_CLAIM and row:
            self.collections[CLAIMS].put(row)
        elif write.kind is WriteKind.DELETE_CLAIM:
            self.collections[CLAIMS].remove(write.namespace, write.name)

    def read(self, path: str) -> list[Any]:
        """Return all objects of one collection now."""
        return self.collections[path].objects()


def _key(row: JsonObject) -> tuple[str, str]:
    metadata = row.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _is_older(row: JsonObject, known: JsonObject | None) -> bool:
    """Whether `known` is a later version of the same object as `row`."""
    if known is None or (row.get("metadata") or {}).get("uid") != (known.get("metadata") or {}).get("uid"):
        return False
    return 0 < _version(row) < _version(known)


def _version(row: JsonObject) -> int:
    return _number((row.get("metadata") or {}).get("resourceVersion"))


def _number(version: object) -> int:
    """Return a resourceVersion as a number; 0 for any other text. Within one resource these numbers can be compared
    (KEP 5504)."""
    text = str(version)
    return int(text) if text.isdecimal() else 0
