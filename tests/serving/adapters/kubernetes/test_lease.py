"""The lease is written as client-go writes it."""

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.lease import Lease
from tests.serving.adapters.kubernetes.control_plane.api_server import LEASE, ApiServer


def test_a_renewal_keeps_when_the_lease_was_taken_and_what_others_wrote(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    api = ClusterApi(10.0, 1000.0, 1000)
    first, second = (Lease(api, "interfere", name, 15.0, name="l") for name in ("a", "b"))
    assert first.try_hold()
    api_server.patch(LEASE, "interfere", "l", {"metadata": {"labels": {"team": "ml"}}})
    (taken,) = api_server.rows(LEASE)
    assert first.try_hold()
    (renewed,) = api_server.rows(LEASE)
    assert renewed["spec"]["acquireTime"] == taken["spec"]["acquireTime"] < renewed["spec"]["renewTime"]
    assert renewed["spec"]["leaseTransitions"] == 0
    assert renewed["metadata"]["labels"] == {"team": "ml"}
    first.release()
    assert second.try_hold()
    (changed,) = api_server.rows(LEASE)
    assert changed["spec"]["leaseTransitions"] == 1
    assert changed["spec"]["acquireTime"] == changed["spec"]["renewTime"]
    assert changed["metadata"]["labels"] == {"team": "ml"}
