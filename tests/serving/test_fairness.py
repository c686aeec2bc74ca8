"""A client with many calls in flight does not make another wait for all of them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import LimitError
from interfere.serving.calls.listening import MODEL_CHANGE_EVERY_S, MODEL_CHANGES
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import WORKLOADS
from tests.serving.http2 import connect, read_frame, send_call
from tests.serving.test_bounds import LARGE_ANSWER, MATRIX
from tests.waiting import PATIENCE_S, wait_until

IN_FLIGHT = 180


@contextmanager
def greedy(address: str, in_flight: int) -> Iterator[list[int]]:
    """Keep calls in flight until the end of the block. Yields a list that grows by one for each answer."""
    answered, over = list[int](), threading.Event()
    request = pb.PredictMatrixRequest(victims=[pb.JobRef(workload=WORKLOADS[k % 4]) for k in range(100)])
    content = request.SerializeToString()
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options) as one, grpc.insecure_channel(address, options) as two:
        calls = [channel.unary_unary(MATRIX) for channel in (one, two)]

        def send(k: int) -> None:
            def ended(_: Any) -> None:
                answered.append(k)
                if not over.is_set():
                    send(k)

            calls[k % 2].future(content, timeout=PATIENCE_S).add_done_callback(ended)

        for k in range(in_flight):
            send(k)
        try:
            yield answered
        finally:
            over.set()


def test_changes_of_the_model_are_few_in_a_short_time(server: RunningServer, client: PolicyClient) -> None:
    """Each copies a model, checks it and teaches it what was observed."""
    version = client.model().version
    for _ in range(MODEL_CHANGES):
        client.load_model(version)
    with pytest.raises(LimitError) as caught:
        client.load_model(version)
    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= MODEL_CHANGE_EVERY_S
    assert client.model().version == version


def test_a_polite_client_waits_for_few_calls_of_a_greedy_one(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    """180 calls in flight from one address; a call from another is answered before most of them."""
    server = serve(replace(settings, max_concurrent_rpcs=IN_FLIGHT))
    with greedy(server.address, IN_FLIGHT) as answered, connect(server.port, source="127.0.0.2") as polite:
        wait_until(lambda: len(answered) > 2 * IN_FLIGHT, "the greedy client has been answered for a while")
        waited = []
        for k in range(15):
            before = len(answered)
            send_call(polite, 1 + 2 * k, MATRIX, LARGE_ANSWER[:200])
            while True:
                kind, flags, _ = read_frame(polite)
                if kind == 1 and flags & 1:
                    break
            waited.append(len(answered) - before)
    print("answers to the greedy client while the polite one waited:", sorted(waited))
    assert sorted(waited)[len(waited) // 2] < IN_FLIGHT / 4
