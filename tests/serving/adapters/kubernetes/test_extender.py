"""The extender answers kube-scheduler's filter and prioritize calls, and fails open."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.https.extender import PASS_S, Extender
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.settings import Mode
from interfere.serving.http_server import HttpServer, Request
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.facts import node, pod, settings

CHOSEN = settings(mode=Mode.OBSERVE)
NAMES = ["empty", "beside-gemm", "beside-light", "full"]


def resident(node_name: str, workload: str, k: int = 0) -> dict[str, Any]:
    row = pod(f"r-{node_name}-{k}", workload, source="node", gated=False, nodeName=node_name)
    row["metadata"]["uid"] = f"r-{node_name}-{k}"
    return row


def state(**given: Any) -> Any:
    nodes = [node(name, gpus=1) for name in NAMES]
    pods = [resident("beside-gemm", "gemm"), resident("beside-light", "rl-rollout")]
    pods += [resident("full", "gemm", k) for k in range(2)]
    return cluster_state(CHOSEN, pods, nodes, [], [])


def asking(address: str) -> Iterator[HttpServer]:
    with PolicyClient(address, timeout_s=60.0) as client:
        extender = Extender(CHOSEN, client, state)
        extender.refresh()
        server = HttpServer({("POST", "/filter"): extender.filter, ("POST", "/prioritize"): extender.prioritize}, 0)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def extender(policy_server: RunningServer) -> Iterator[HttpServer]:
    yield from asking(policy_server.address)


@pytest.fixture
def orphan() -> Iterator[HttpServer]:
    """An extender whose policy server is away."""
    yield from asking("127.0.0.1:1")


def ask(server: HttpServer, path: str, arguments: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, body=arguments if isinstance(arguments, bytes) else json.dumps(arguments))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.status == 200 else text.decode()


def arguments(**notes: str) -> dict[str, Any]:
    return {"Pod": pod("p", "gemm", source="node", gated=False, notes=notes), "Nodes": None, "NodeNames": NAMES}


def test_an_empty_gpu_scores_best_and_the_gentler_neighbour_better(extender: HttpServer) -> None:
    status, scores = ask(extender, "/prioritize", arguments())
    assert status == 200
    by_name = {each["Host"]: each["Score"] for each in scores}
    assert list(by_name) == NAMES
    assert by_name["empty"] == 10
    assert by_name["empty"] > by_name["beside-light"] >= by_name["beside-gemm"]
    assert by_name["full"] == 0
    assert all(isinstance(each["Score"], int) and 0 <= each["Score"] <= 10 for each in scores)


def test_nodes_that_would_break_a_cap_fail_with_a_reason(extender: HttpServer) -> None:
    status, answer = ask(extender, "/filter", arguments(**{names.MAX_SLOWDOWN: "1.01"}))
    assert (status, answer["Error"], answer["Nodes"]) == (200, "", None)
    assert set(answer["NodeNames"]) | set(answer["FailedNodes"]) == set(NAMES)
    assert "empty" in answer["NodeNames"]
    assert answer["FailedNodes"]["beside-gemm"]


def test_keys_are_read_without_regard_to_case_and_nodes_may_be_whole_objects(extender: HttpServer) -> None:
    nodes = {"items": [node(name, gpus=1) for name in NAMES]}
    status, answer = ask(extender, "/filter", {"pod": arguments()["Pod"], "nodes": nodes, "nodenames": None})
    assert status == 200
    assert answer["NodeNames"] is None
    assert {each["metadata"]["name"] for each in answer["Nodes"]["items"]} <= set(NAMES)


def test_without_a_policy_server_every_node_passes_with_an_equal_score(orphan: HttpServer) -> None:
    assert ask(orphan, "/filter", arguments())[1]["NodeNames"] == NAMES
    assert {each["Score"] for each in ask(orphan, "/prioritize", arguments())[1]} == {0}


def test_a_server_that_is_away_is_not_asked_for_each_pod(
    policy_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed call every node passes for five seconds; then the server is asked again."""
    at_s = [100.0]
    clock = type("Clock", (), {"time": time.time, "monotonic": staticmethod(lambda: at_s[0])})
    monkeypatch.setattr("interfere.serving.adapters.kubernetes.https.extender.time", clock)
    with PolicyClient("127.0.0.1:1", timeout_s=0.4) as away, PolicyClient(policy_server.address) as back:
        extender = Extender(CHOSEN, away, state)
        extender.refresh()
        body = json.dumps(arguments(**{names.MAX_SLOWDOWN: "1.01"})).encode()
        request = Request(body=body, address="")
        assert extender.filter(request).document["NodeNames"] == NAMES
        extender._client = back
        assert extender.filter(request).document["NodeNames"] == NAMES, "not asked"
        at_s[0] += PASS_S
        assert extender.filter(request).document["NodeNames"] != NAMES


def test_a_pod_without_a_workload_passes_everywhere(extender: HttpServer) -> None:
    plain = arguments()
    del plain["Pod"]["metadata"]["annotations"][names.WORKLOAD]
    assert ask(extender, "/filter", plain)[1]["NodeNames"] == NAMES


def test_what_is_no_call_of_a_scheduler_is_refused_and_the_extender_lives_on(extender: HttpServer) -> None:
    assert ask(extender, "/filter", b"[]")[0] == 400
    assert ask(extender, "/filter", b"{")[0] == 400
    assert ask(extender, "/bind", {})[0] == 404
    assert ask(extender, "/filter", arguments())[0] == 200


def test_a_gpu_of_three_seats_takes_a_third_pod(policy_server: RunningServer) -> None:
    """As the controller offers it: the device plugin shares the GPU among three."""
    chosen = settings(mode=Mode.OBSERVE, seats=3)
    pods = [resident("three", "request-server", k) for k in range(2)]
    shared = cluster_state(chosen, pods, [node("three", gpus=1, replicas=3)], [], [])
    with PolicyClient(policy_server.address) as client:
        extender = Extender(chosen, client, lambda: shared)
        extender.refresh()
        asked = {"Pod": pod("p", "request-server", source="node", gated=False), "NodeNames": ["three"]}
        answer = extender.filter(Request(body=json.dumps(asked).encode(), address=""))
    assert (answer.document["NodeNames"], answer.document["FailedNodes"]) == (["three"], {})
