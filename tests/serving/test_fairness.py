"""A client with many calls in flight does not make another wait for all of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import LimitError
from interfere.serving.calls.interceptor import MODEL_CHANGE_EVERY_S, MODEL_CHANGES
from interfere.serving.server import RunningServer
from tests.models import WORKLOADS
from tests.serving.greedy import IN_FLIGHT, greedy
from tests.serving.http2 import connect, read_frame, send_call
from tests.serving.test_attacks import add, client_of
from tests.serving.test_bounds import LARGE_ANSWER, MATRIX
from tests.waiting import wait_until


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


@pytest.mark.parametrize("kind", ["matrices", "pairs"])
def test_a_polite_client_waits_for_few_calls_of_a_greedy_one(
    serve: Callable[..., RunningServer], settings: Settings, kind: str
) -> None:
    """180 calls in flight from one address, large or small; a call from another is answered before most of them."""
    server = serve(replace(settings, max_concurrent_rpcs=IN_FLIGHT))
    with greedy(server.address, kind, WORKLOADS) as answered, connect(server.port, source="127.0.0.2") as polite:
        wait_until(lambda: answered() > 2 * IN_FLIGHT, "the greedy client has been answered for a while")
        waited = []
        for k in range(15):
            before = answered()
            send_call(polite, 1 + 2 * k, MATRIX, LARGE_ANSWER[:200])
            while True:
                frame_kind, flags, _ = read_frame(polite)
                if frame_kind == 1 and flags & 1:
                    break
            waited.append(answered() - before)
    print("answers to the greedy client while the polite one waited:", sorted(waited))
    assert sorted(waited)[len(waited) // 2] < IN_FLIGHT / 4


@pytest.mark.parametrize("kind", ["unknown_callers", "health"])
def test_a_known_client_waits_for_few_calls_that_are_refused_or_need_no_caller(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path, kind: str
) -> None:
    """180 calls without a token in flight, each of which takes next to nothing."""
    add(tmp_path, "polite", "--role=predict")
    server = serve(replace(settings, callers=tmp_path / "callers.toml"))
    with greedy(server.address, kind, WORKLOADS) as answered, client_of(server, tmp_path, "polite") as polite:
        wait_until(lambda: answered() > 2 * IN_FLIGHT, "the greedy client has been answered for a while")
        waited = []
        for _ in range(15):
            before = answered()
            polite.predict(WORKLOADS[:2], pairs=[(0, 1)])
            waited.append(answered() - before)
    print("answers to the greedy client while the polite one waited:", sorted(waited))
    assert sorted(waited)[len(waited) // 2] < IN_FLIGHT / 4
