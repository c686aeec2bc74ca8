"""Observe-only: annotations and Events say what would have been placed where; no pod's spec is ever written."""

import os
from collections.abc import Callable

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from serving.adapters.kubernetes import names
from serving.adapters.kubernetes.controller import Controller
from serving.adapters.kubernetes.observations.journal import read_journal, summarise
from serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, EVENT, POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import pod, settings
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen

ROUNDS = 1000 if os.environ.get("SOAK_ROUNDS") else 25
Start = Callable[[KubernetesSettings], Controller]


def test_what_would_have_been_placed_where(api_server: ApiServer, controller: Start, tmp_path) -> None:
    two_nodes(api_server, "hami")
    chosen = settings(mode=Mode.OBSERVE, journal=tmp_path / "journal.jsonl")
    replica, scheduler = controller(chosen), StandInScheduler(api_server)
    for k in range(3):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k], source="hami", gated=False))
    scheduler.once()  # bound before any round sees them pending
    wait_seen(replica, api_server)
    done = replica.advisor.round()
    assert {each.pod.name for each in done.decisions} == {"p0", "p1", "p2"}
    rows = pods_by_name(api_server)
    for each in done.decisions:
        assert rows[each.pod.name]["metadata"]["annotations"][names.ADVICE].endswith(each.device)
    assert {row["reason"] for row in api_server.rows(EVENT)} == {"InterfereAdvice"}
    replica.advisor.round()
    summary = summarise(read_journal(chosen.journal))
    assert (summary.decided, summary.bound) == (3, 3)


def test_no_spec_is_written_and_no_claim_made(api_server: ApiServer, controller: Start) -> None:
    """Pods come, run and end; gated ones of other hands too."""
    two_nodes(api_server, "dra")
    replica, scheduler = controller(settings(mode=Mode.OBSERVE)), StandInScheduler(api_server)
    for k in range(ROUNDS):
        if k % 5 == 0 and k < 200:
            api_server.add(POD, pod(f"p{k}", WORKLOADS[k // 5 % 4], gated=k % 2 == 0))
        scheduler.once()
        replica.advisor.round()
    assert [path for method, path, body in api_server.writes if "/pods/" in path and set(body) != {"metadata"}] == []
    kinds = {
        path.rsplit("/", 1)[-1] if method == "POST" else path.split("/")[-2] for method, path, _ in api_server.writes
    }
    assert kinds <= {"events", "pods", "leases"}
    assert api_server.rows(CLAIM) == []


def test_the_report_compares_predicted_with_measured() -> None:
    entries = [
        {"kind": "decision", "at_s": 0.0, "uid": "a", "device": "d0", "predicted_slowdown": 1.5},
        {"kind": "decision", "at_s": 0.0, "uid": "b", "device": "d1", "predicted_slowdown": None},
        {"kind": "bound", "at_s": 1.0, "uid": "a", "device": "d0"},
        {"kind": "bound", "at_s": 1.0, "uid": "b", "device": "d0"},
        {
            "kind": "window",
            "at_s": 60.0,
            "uid": "z",
            "workload": "w",
            "device_type": "t",
            "company": [],
            "step_time_s": 0.1,
        },
        {
            "kind": "window",
            "at_s": 86400.0,
            "uid": "a",
            "workload": "w",
            "device_type": "t",
            "company": ["v"],
            "step_time_s": 0.2,
        },
    ]
    summary = summarise(entries)
    assert (summary.days, summary.decided, summary.bound, summary.as_decided, summary.compared) == (1.0, 2, 2, 1, 1)
    assert (summary.median_predicted, summary.median_measured, summary.median_error) == (1.5, 2.0, 0.25)
