"""Fail-open: whoever is away, pods are released; whoever comes back, advice goes on; a lost race changes nothing."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.errors import UnavailableError, UnfitError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server import watching
from interfere.serving.adapters.kubernetes.api_server.calls import PODS, ClusterApi
from interfere.serving.adapters.kubernetes.lease import Lease
from interfere.serving.adapters.kubernetes.port import Controller, controller_metrics
from interfere.serving.adapters.kubernetes.releasing import release_pods
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.round import one_round
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import pod, settings
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen
from tests.waiting import PATIENCE_S

LEASE_S = 300.0
Start = Callable[[KubernetesSettings], Controller]


def api_of(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    return ClusterApi(10.0, 1000.0, 1000)


def test_release_ungates_all_and_makes_every_pod_schedulable(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no replica and no policy server: the command alone, as the administrator or the CronJob runs it."""
    two_nodes(api_server, "dra")
    api = api_of(api_server, monkeypatch)
    for k in range(6):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    overdue = release_pods(api, settings(window_s=60.0), controller_metrics(), time.time())
    assert (overdue.released, overdue.still_gated) == (0, 6), "none is past its window"
    overdue = release_pods(api, settings(window_s=60.0), controller_metrics(), time.time() + 61.0)
    assert (overdue.released, overdue.still_gated) == (6, 0)
    assert {row["metadata"]["annotations"][names.CLAIM_FOR] for row in api_server.rows(CLAIM)} == {names.ANY_DEVICE}
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert len(scheduler.bound) == 4, "each has a GPU of its own; nobody decided who may share"
    assert release_pods(api, settings(), controller_metrics(), time.time() + 999.0).released == 0


def test_a_pod_that_was_ungated_by_hand_is_given_its_claim(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that died between the deletion of a claim and its creation leaves such a pod."""
    two_nodes(api_server, "dra")
    notes = {names.STATE: "placed", names.DEVICE: "n0/GPU-n0-0", names.DECIDED_AT: str(time.time())}
    api_server.add(POD, pod("p", gated=False, notes=notes))
    assert release_pods(api_of(api_server, monkeypatch), settings(), controller_metrics(), time.time()).released == 1
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert len(scheduler.bound) == 1


def test_pods_of_others_are_never_touched(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose user has yet to make its claim, and one that another gate holds too."""
    unnamed = pod("own-claim", gated=False)
    del unnamed["metadata"]["annotations"][names.WORKLOAD]
    api_server.add(POD, unnamed)
    gates = [{"name": names.GATE}, {"name": "kueue.x-k8s.io/admission"}]
    api_server.add(POD, pod("queued", schedulingGates=gates))
    api = api_of(api_server, monkeypatch)
    assert release_pods(api, settings(), controller_metrics(), time.time() + 1e6).released == 1
    rows = pods_by_name(api_server)
    assert rows["queued"]["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    assert names.STATE not in rows["own-claim"]["metadata"]["annotations"]


def test_a_pod_that_is_never_advised_is_released_at_once(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim is its user's own, or it names no workload: there is nothing to wait for."""
    api_server.add(POD, pod("own-claim"))
    api_server.add(CLAIM, {"metadata": {"name": "own-claim-gpu", "namespace": "ml"}, "spec": {"devices": {}}})
    unnamed = pod("unnamed", source="hami")
    del unnamed["metadata"]["annotations"][names.WORKLOAD]
    api_server.add(POD, unnamed)
    api_server.add(POD, pod("advised", source="hami"))
    done = release_pods(api_of(api_server, monkeypatch), settings(), controller_metrics(), time.time())
    assert (done.released, done.still_gated) == (2, 1)
    rows = pods_by_name(api_server)
    assert [name for name, row in rows.items() if row["spec"].get("schedulingGates")] == ["advised"]
    (claim,) = api_server.rows(CLAIM)
    assert claim["spec"] == {"devices": {}}, "it is not the adapter's"


def test_without_a_policy_server_nothing_is_placed_and_the_loop_goes_on(
    api_server: ApiServer, controller: Start
) -> None:
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p"))
    replica = controller(settings())
    before = replica.advisor.client
    replica.advisor.client = PolicyClient("127.0.0.1:1", timeout_s=0.5)
    assert one_round(replica.advisor) is None
    assert 'rounds_total{result="unavailable"} 1' in replica.metrics.text()
    assert api_server.rows(CLAIM) == []
    replica.advisor.client = before
    (decision,) = replica.advisor.round().decisions
    assert decision.action.device_id


def test_a_pod_that_changed_since_it_was_read_is_left_to_the_next_round(
    api_server: ApiServer, controller: Start
) -> None:
    two_nodes(api_server, "hami")
    api_server.add(POD, pod("p", source="hami"))
    replica = controller(settings())
    collection = replica.cluster.collections["/api/v1/pods"]
    stale = next(row for row in collection.objects())
    api_server.patch(POD, "ml", "p", {"metadata": {"labels": {"a": "b"}}})
    wait_seen(replica, api_server)
    collection._objects["ml", "p"] = stale  # as if the watch were late
    (lost,) = replica.advisor.round().rejected
    assert lost.lost_race
    assert pods_by_name(api_server)["p"]["spec"]["schedulingGates"]
    (fresh,) = api_server.rows(POD)
    collection._objects["ml", "p"] = fresh
    assert replica.advisor.round().rejected == ()
    assert "schedulingGates" not in pods_by_name(api_server)["p"]["spec"]


def test_two_replicas_never_decide_at_once(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api = api_of(api_server, monkeypatch)
    first, second = (Lease(api, "interfere", name, LEASE_S, name="l") for name in ("a", "b"))
    assert first.try_hold()
    assert not second.try_hold()
    first._renewed_s -= LEASE_S * 3 / 4  # it has not renewed for more than two thirds of its time
    assert not first.held
    assert not second.try_hold()
    second._seen_s -= LEASE_S  # not renewed by anybody: the lease has expired
    assert second.try_hold()
    assert not first.try_hold()
    second.release()
    assert first.try_hold()


def test_an_api_server_that_went_away_is_found_again(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    chosen = settings(stale_s=0.5, timeout_s=2.0, interval_s=0.2)
    replica = controller(chosen)
    assert all(collection.wait_listed(PATIENCE_S) for collection in replica.cluster.collections.values())
    replica.advisor.round()
    api_server.down()
    time.sleep(0.6)
    with pytest.raises(UnavailableError):
        replica.advisor.round()
    api_server.up()
    api_server.add(POD, pod("p"))
    deadline_s = time.monotonic() + PATIENCE_S
    while "schedulingGates" in pods_by_name(api_server)["p"]["spec"] and time.monotonic() < deadline_s:
        replica._lease.try_hold()
        one_round(replica.advisor)
        time.sleep(0.2)
    assert "schedulingGates" not in pods_by_name(api_server)["p"]["spec"]


def test_a_refused_write_is_reported_and_the_rest_goes_on(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    for k in range(2):
        api_server.add(POD, pod(f"p{k}", "request-server"))
    replica = controller(settings())

    def forbidden(request: object) -> int | None:
        body = getattr(request, "data", None) or {}
        is_first = isinstance(body, dict) and (body.get("metadata") or {}).get("name") == "p0-gpu"
        return 403 if is_first else None

    api_server.kmock.fault = forbidden
    done = replica.advisor.round()
    assert [each.job_id.split("/")[1] for each in done.rejected] == ["p0"]
    assert not done.rejected[0].lost_race
    rows = pods_by_name(api_server)
    assert rows["p0"]["spec"]["schedulingGates"]
    assert "schedulingGates" not in rows["p1"]["spec"]


def test_a_follower_decides_nothing(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("p"))
    replica = controller(replace(settings(), lease_s=15.0))
    replica._lease._renewed_s -= 100.0
    assert replica.advisor.round().changes
    assert pods_by_name(api_server)["p"]["spec"]["schedulingGates"]
    assert api_server.rows(CLAIM) == []


def test_a_rotated_token_is_read_again(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api = api_of(api_server, monkeypatch)
    for token in ("first", "second"):
        api_server.rotate_token(token)
        assert api.list(PODS)[0] == []
    api_server.kmock.token = "of another cluster"
    with pytest.raises(UnfitError, match="forbids"):
        api.list(PODS)


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
def test_ages_count_by_the_clock_of_the_api_server(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """A replica whose clock is an hour late or early releases neither all pods at once nor none for an hour."""
    api_server.add(POD, pod("p"))
    api = api_of(api_server, monkeypatch)
    true_s = time.time()
    clock = type("Clock", (), {"time": staticmethod(lambda: time.time() + ahead_s), "monotonic": time.monotonic})
    monkeypatch.setattr("interfere.serving.adapters.kubernetes.api_server.calls.time", clock)
    assert abs(api.time_s() - true_s) < 5.0
    assert release_pods(api, settings(window_s=60.0), controller_metrics(), api.time_s()).released == 0
    assert release_pods(api, settings(window_s=60.0), controller_metrics(), api.time_s() + 61.0).released == 1


def test_nothing_is_listed_while_the_watches_work(
    api_server: ApiServer, controller: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes(api_server, "dra")
    replica = controller(settings())
    assert all(collection.wait_listed(PATIENCE_S) for collection in replica.cluster.collections.values())
    api_server.add(POD, pod("p", notes={names.STATE: "waiting"}))
    wait_seen(replica, api_server)
    before = api_server.kmock.lists.total()
    for _ in range(10):
        release_pods(replica._api, settings(), replica.metrics, time.time(), cluster=replica.cluster)
        replica.advisor.round()
    assert api_server.kmock.lists.total() == before
    monkeypatch.setattr(watching, "WATCH_S", -1e9)  # as where nothing was heard for long
    done = release_pods(replica._api, settings(), replica.metrics, time.time() + 61.0, cluster=replica.cluster)
    assert api_server.kmock.lists["pods"] == 2
    assert done.released == 0, "it was placed meanwhile"
