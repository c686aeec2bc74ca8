"""A copy of a collection follows the API server, whatever comes late and whenever a watch ends."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.errors import UnavailableError
from interfere.serving.adapters.kubernetes.api_server import watching
from interfere.serving.adapters.kubernetes.api_server.calls import PODS, ClusterApi
from interfere.serving.adapters.kubernetes.api_server.watching import Collection
from tests.serving.adapters.kubernetes.control_plane.api_server import POD, ApiServer
from tests.serving.adapters.kubernetes.facts import pod


@pytest.fixture
def collection(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collection]:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.setattr(watching, "PAUSE_S", 0.05)
    stop = threading.Event()
    watched = Collection(ClusterApi(10.0, 1000.0, 1000), PODS, stop)
    watched.thread.start()
    assert watched.wait_listed(20.0)
    yield watched
    stop.set()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def nodes(collection: Collection) -> dict[str, str]:
    return {row["metadata"]["name"]: row["spec"].get("nodeName", "") for row in collection.objects()}


def test_an_answer_that_comes_after_the_watch_makes_nothing_older(
    api_server: ApiServer, collection: Collection
) -> None:
    """The scheduler binds a pod milliseconds after its gate is gone: the watch may say so before the patch is answered,
    and without a further event an older copy would stay for minutes."""
    api_server.add(POD, pod("p"))
    (answer,) = api_server.rows(POD)
    api_server.patch(POD, "ml", "p", {"spec": {"nodeName": "n0"}})
    wait_for(lambda: nodes(collection) == {"p": "n0"})
    collection.put(answer)
    assert nodes(collection) == {"p": "n0"}
    api_server.delete(POD, "ml", "p")
    wait_for(lambda: nodes(collection) == {})
    collection.put(answer)
    assert nodes(collection) == {}, "no ghost of a pod that is gone"


def test_an_answer_that_comes_before_the_watch_is_known_at_once(api_server: ApiServer, collection: Collection) -> None:
    row = pod("p")
    row["metadata"] |= {"uid": "u", "resourceVersion": str(10**9)}
    collection.put(row)
    assert nodes(collection) == {"p": ""}
    older: dict[str, Any] = pod("p", nodeName="before")
    older["metadata"] |= {"uid": "u", "resourceVersion": str(10**9 - 1)}
    collection._apply({"type": "MODIFIED", "object": older})  # an event that was under way
    assert nodes(collection) == {"p": ""}
    older["metadata"]["uid"] = "another"  # a pod of the same name, in a cluster whose etcd was restored
    collection._apply({"type": "ADDED", "object": older})
    assert nodes(collection) == {"p": "before"}


def test_a_watch_whose_version_is_gone_begins_with_a_list(api_server: ApiServer, collection: Collection) -> None:
    """410 comes as the answer to a watch, or as an event of one; what changed meanwhile is seen."""
    for fault in (410, None):
        gone = iter([fault]) if fault else iter(())
        api_server.kmock.fault = lambda request, gone=gone: (
            next(gone, None) if request.params.get("watch") == "true" else None
        )
        api_server.down()
        name = f"p{len(api_server.rows(POD))}"
        api_server.add(POD, pod(name))
        api_server.up()
        wait_for(lambda name=name: name in nodes(collection))
    status = {"kind": "Status", "code": 410, "message": "too old resource version: 5 (9)"}
    with pytest.raises(UnavailableError, match="too old resource version"):
        collection._apply({"type": "ERROR", "object": status})


def test_a_bookmark_moves_the_watch_on(api_server: ApiServer, collection: Collection) -> None:
    event = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "987654"}}}
    assert collection._apply(event) == "987654"
    assert collection.objects() == []
