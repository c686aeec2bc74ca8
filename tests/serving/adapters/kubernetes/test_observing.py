"""Observe-only: annotations and Events say what would have been placed where; no pod's spec is ever written."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.journal import read_journal, summarise
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.command import report
from interfere.serving.adapters.kubernetes.port import Controller
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, EVENT, POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DEVICE_TYPE, pod, settings
from tests.serving.adapters.kubernetes.test_observations import marks, stamp
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
    assert {each.job.name for each in done.decisions} == {"p0", "p1", "p2"}
    rows = pods_by_name(api_server)
    for each in done.decisions:
        assert rows[each.job.name]["metadata"]["annotations"][names.ADVICE].endswith(each.action.device_id)
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
    wait_seen(replica, api_server)
    replica.advisor.round()
    left = sum(bool(row["spec"].get("schedulingGates")) for row in api_server.rows(POD))
    assert f"gated_pods {left}" in replica.metrics.text(), "an administrator is told what waits"


def test_two_weeks_of_observing_are_summed_up(
    api_server: ApiServer, controller: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From what a controller wrote while it observed: a pod alone, and two side by side that marked steps."""
    two_nodes(api_server, "hami")
    chosen = settings(mode=Mode.OBSERVE, journal=tmp_path / "journal.jsonl", least_window_s=2.0)
    replica, now_s = controller(chosen), time.time()
    uuids = {"alone": "GPU-n0-0", "p0": "GPU-n1-0", "p1": "GPU-n1-0"}
    for number, (name, uuid) in enumerate(uuids.items()):
        row = pod(name, "request-server", source="hami", gated=False, nodeName=uuid[4:6])
        row["metadata"]["annotations"][names.HAMI_ALLOCATED] = f"{uuid},NVIDIA,8192,0:;"
        ended = {"startedAt": stamp(now_s - 90.0), "finishedAt": stamp(now_s - 20.0), "reason": "Completed"}
        statuses = [{"restartCount": 0, "state": {"terminated": ended}}]
        row["status"] = {"phase": "Running", "podIP": f"10.0.0.{number}", "containerStatuses": statuses}
        api_server.add(POD, row)
        rate = 10.0 if name == "alone" else 8.0
        lines = [json.dumps(each._asdict()) for each in marks(now_s - 88.0, now_s - 22.0, rate, name)]
        replica.marks.receive(f"10.0.0.{number}", ("\n".join(lines) + "\n").encode(), now_s)
    wait_seen(replica, api_server)
    answer = replica.advisor.client.predict(["request-server"] * 2, pairs=[(0, 1)], device_type=DEVICE_TYPE)
    before = float(answer.prediction.median[0])
    replica.advisor.round()
    for name in uuids:
        api_server.patch(POD, "ml", name, {"status": {"phase": "Succeeded"}})
    wait_seen(replica, api_server)
    replica.advisor.round()
    report(chosen.journal, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["decided"], document["bound"], document["compared"]) == (3, 3, 2)
    (row,) = document["companies"]
    assert (row["workload"], row["company"], row["pods"]) == ("request-server", ["request-server"], 2)
    assert row["measured"] == pytest.approx(1.25, rel=0.02)
    assert row["predicted"] == pytest.approx(before, rel=0.05), "each window as predicted before it was reported"
    report(chosen.journal)
    text = capsys.readouterr().out
    print(text)
    assert "2 times a job ran beside others" in text
    assert "1.25" in text
