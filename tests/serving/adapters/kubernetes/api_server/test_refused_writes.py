"""An API server that is overloaded, refuses annotations, or takes no Events: placements and releases go on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.errors import UnavailableError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import PODS, ClusterApi
from tests.serving.adapters.kubernetes.conftest import Start, api_server, controller, policy_server
from tests.serving.adapters.kubernetes.control_plane.api_rules import MAX_ANNOTATIONS
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, EVENT, POD, ApiServer
from tests.serving.adapters.kubernetes.facts import pod, settings
from tests.serving.adapters.kubernetes.worlds import gated, release_overdue, two_nodes, wait_seen

__all__ = ["api_server", "controller", "policy_server"]  # fixtures


@pytest.fixture
def api(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    return ClusterApi(2.5, 1000.0, 1000)


def failing_first(number: int, status: int, part: str) -> Callable[[Any], int | None]:
    """A fault of so many requests whose path ends so."""
    left: Iterator[int] = iter(range(number))
    return lambda request: status if request.url.path.endswith(part) and next(left, None) is not None else None


@pytest.mark.parametrize("part", ["/pods", "/resourceclaims", "/p"])
def test_an_overloaded_server_is_asked_again_when_it_says(api_server: ApiServer, api: ClusterApi, part: str) -> None:
    """API priority and fairness answers 429 with Retry-After; client-go waits, and so does the adapter."""
    api_server.add(POD, pod("p"))
    api_server.kmock.fault = failing_first(1, 429, part)
    begin_s = time.monotonic()
    assert release_overdue(api).released == 1
    assert time.monotonic() - begin_s >= 1.0
    assert gated(api_server) == []
    assert len(api_server.rows(CLAIM)) == 1


def test_a_server_that_stays_overloaded_counts_as_away(api_server: ApiServer, api: ClusterApi) -> None:
    api_server.kmock.fault = lambda request: 429
    begin_s = time.monotonic()
    with pytest.raises(UnavailableError, match="429"):
        api.list(PODS)
    assert time.monotonic() - begin_s < 4.0, "no longer than one call may take"


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize("kind", ["resourceclaims", "resourceslices"])
def test_a_gate_is_removed_where_claims_cannot_be_read(
    api_server: ApiServer, api: ClusterApi, status: int, kind: str
) -> None:
    """A right that is missing, or a list that always fails."""
    api_server.add(POD, pod("p"))
    api_server.kmock.fault = lambda request: (
        status if request.method.value == "GET" and request.url.path.endswith(kind) else None
    )
    assert release_overdue(api).released == 1
    assert gated(api_server) == []
    assert len(api_server.rows(CLAIM)) == 1, "it is schedulable"


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_an_event_that_is_lost_changes_nothing(api_server: ApiServer, controller: Start, status: int) -> None:
    """Events are limited in rate, and a namespace that is deleted takes none: the pod was placed all the same."""
    two_nodes(api_server, "dra")
    for k in range(4):
        api_server.add(POD, pod(f"p{k}", "request-server"))
    api_server.kmock.fault = lambda request: status if request.url.path.endswith("/events") else None
    replica = controller(settings())
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert done.rejected == ()
    assert gated(api_server) == []
    assert api_server.rows(EVENT) == []


def test_a_pod_with_as_many_annotations_as_allowed_is_released_without_more(
    api_server: ApiServer, api: ClusterApi
) -> None:
    full = pod("full", notes={"example.com/large": ""})
    used = sum(len(f"{key}{value}") for key, value in full["metadata"]["annotations"].items())
    full["metadata"]["annotations"]["example.com/large"] = "x" * (MAX_ANNOTATIONS - used)
    api_server.add(POD, full)
    assert release_overdue(api).released == 1
    assert gated(api_server) == []
    assert len(api_server.rows(CLAIM)) == 1, "it is schedulable"


def test_a_policy_that_forbids_annotations_keeps_no_pod_gated(
    api_server: ApiServer, api: ClusterApi, tmp_path: Path
) -> None:
    api_server.add(POD, pod("p", source="hami"))

    def forbids(request: Any) -> int | None:
        body = getattr(request, "data", None)
        return 403 if isinstance(body, dict) and (body.get("metadata") or {}).get("annotations") else None

    api_server.kmock.fault = forbids
    assert release_overdue(api).released == 1
    assert gated(api_server) == []


def test_a_device_class_that_is_no_name_leaves_no_pod_without_a_claim(api_server: ApiServer, api: ClusterApi) -> None:
    api_server.add(POD, pod("p", notes={names.DEVICE_CLASS: "My GPUs"}))
    assert release_overdue(api).released == 1
    (claim,) = api_server.rows(CLAIM)
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == settings().device_class
