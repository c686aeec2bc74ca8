"""Steps that sidecars send become windows of constant company, pods' ends become outcomes; restarts repeat no id."""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.progress import Mark
from interfere.serving.adapters.kubernetes.marks import MarkStore, SpoolSender, send_until_stopped
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state, read_pod
from interfere.serving.adapters.kubernetes.port import SETTLE_S, Controller, end_reason, runs
from interfere.serving.adapters.kubernetes.records import Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.windows import Residencies, Residency, colocation_windows, progress
from tests.serving.adapters.kubernetes.control_plane.api_server import POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import node, pod, settings
from tests.serving.adapters.kubernetes.worlds import two_nodes, wait_seen
from tests.waiting import wait_until

NOW = 1_800_000_000.0
CHOSEN = settings(report_every_s=60.0)
RULES = CHOSEN.window_rules(settle_s=SETTLE_S)
Start = Callable[[KubernetesSettings], Controller]


def running(name: str, start_s: float, workload: str = "gemm", ended_s: float = 0.0, reason: str = "Completed") -> dict:
    row = pod(name, workload, source="node", gated=False, nodeName="n0")
    times = {"startedAt": stamp(start_s)} | ({"finishedAt": stamp(ended_s), "reason": reason} if ended_s else {})
    kind = "terminated" if ended_s else "running"
    row["status"] = {"phase": "Succeeded" if ended_s else "Running", "podIP": f"10.0.0.{len(name)}"}
    row["status"]["containerStatuses"] = [{"restartCount": 0, "state": {kind: times}}]
    row["metadata"]["uid"] = name
    return row


def stamp(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def residencies_of(*rows: dict, now_s: float = NOW) -> Residencies[Pod]:
    residencies = Residencies[Pod](CHOSEN.lookback_s)
    see(residencies, *rows, now_s=now_s)
    return residencies


def see(residencies: Residencies[Pod], *rows: dict, now_s: float) -> None:
    residencies.see(runs(cluster_state(CHOSEN, rows, [node("n0", gpus=1)], [], []), now_s), now_s)


class Given:
    """Marks of the pods `a` and `bb`. Implements MarkSource."""

    def __init__(self, own: list[Mark], other: list[Mark]) -> None:
        self._of = {"a": own, "bb": other}

    def marks(self, residency: Residency[Pod], now_s: float) -> list[Mark]:
        return self._of[residency.job.name]

    def complete_until_s(self, now_s: float) -> float:
        return now_s


def marks(start_s: float, end_s: float, rate: float, writer: str = "w") -> list[Mark]:
    return [Mark(writer, start_s + k, start_s + k, rate * k) for k in range(int(end_s - start_s))]


def test_windows_are_cut_where_company_changes() -> None:
    residencies = residencies_of(running("a", NOW - 50.0), running("bb", NOW - 30.0, ended_s=NOW - 10.0))
    windows = [each for each in colocation_windows(residencies.all(), RULES, NOW) if each.residency.job.name == "a"]
    spans = [
        (round(each.start_s - NOW), round(each.end_s - NOW), [c.job.name for c in each.company]) for each in windows
    ]
    assert spans == [(-50, -31, []), (-29, -11, ["bb"])], "a second is left out beside a change; the open one is later"


def test_a_pod_that_was_deleted_ends_where_it_was_missed() -> None:
    residencies = residencies_of(running("a", NOW - 50.0), running("bb", NOW - 30.0))
    see(residencies, running("a", NOW - 50.0), now_s=NOW + 20.0)
    shared = [each for each in colocation_windows(residencies.all(), RULES, NOW + 40.0) if each.company]
    ends_s = {each.residency.job.name: round(each.end_s - NOW) for each in shared if each.end_s > NOW}
    assert ends_s == {"a": 19, "bb": 20}


def test_steps_are_counted_while_the_company_marks_too() -> None:
    residencies = residencies_of(running("a", NOW - 50.0), running("bb", NOW - 50.0, ended_s=NOW - 10.0))
    (window,) = [each for each in colocation_windows(residencies.all(), RULES, NOW) if each.residency.job.name == "a"]
    own, other = marks(NOW - 50.0, NOW, 10.0), marks(NOW - 30.0, NOW, 10.0)
    measured = progress(window, Given(own, other), RULES, "kubernetes/c", NOW)
    assert measured is not None
    assert (measured.steps, measured.start_s, measured.end_s) == (190.0, NOW - 30.0, NOW - 11.0)
    assert measured.company == ("gemm",)
    assert progress(window, Given(own[:2], []), RULES, "kubernetes/c", NOW) is None, "too few marks"
    again = residencies_of(running("a", NOW - 50.0), running("bb", NOW - 50.0, ended_s=NOW - 10.0), now_s=NOW + 5)
    ids = {each.observation_id("kubernetes/c") for each in colocation_windows(again.all(), RULES, NOW + 5)}
    assert measured.observation_id in ids, "a restart makes the same id"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "Evicted"}, "evicted"),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled"}}}]},
            "out of memory",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            "completed",
        ),
        ({"phase": "Failed"}, "failed"),
    ],
)
def test_why_a_pod_ended(status: dict, reason: str) -> None:
    assert end_reason(read_pod(pod("p") | {"status": status}, settings())) == reason


def test_a_pod_speaks_for_itself_alone() -> None:
    store = MarkStore()
    lines = b"".join(json.dumps(each._asdict()).encode() + b"\n" for each in marks(NOW - 20.0, NOW, 1.0))
    assert store.receive("10.0.0.1", lines + b"junk\n", NOW) == 20
    one, other = residencies_of(running("a", NOW - 50.0), running("bb", NOW - 50.0)).all()
    assert len(store.marks(one, NOW)) == 20
    assert store.marks(other, NOW) == []
    later = replace(one, start_s=NOW - 5.0)  # the address was another pod's before
    assert len(store.marks(later, NOW)) == 5


def test_a_sidecar_sends_its_spool_until_a_replica_takes_it(
    api_server: ApiServer, controller: Start, tmp_path: Path
) -> None:
    replica, spool, stop = controller(settings()), tmp_path / "steps.jsonl", threading.Event()
    http = replica.serve(0, host="127.0.0.1")
    where: list[tuple[str, int]] = [("127.0.0.1", 1)]
    sender = SpoolSender(spool, lambda: where, timeout_s=20.0)
    now_s = time.time()
    line = json.dumps(Mark("w", now_s, 1.0, 5.0)._asdict()) + "\n"
    assert sender.send(), "a job that marks nothing yet is no failure"
    spool.write_text(line + '{"torn')
    assert not sender.send()
    where[:] = [("127.0.0.1", 1), ("127.0.0.1", http.port)]
    assert sender.send()
    assert sum(map(len, replica.marks._marks.values())) == 1
    with spool.open("a") as file:
        file.write('": 1}\n' + line)
    thread = threading.Thread(target=send_until_stopped, args=(sender, 0.05, stop))
    thread.start()
    wait_until(lambda: sum(map(len, replica.marks._marks.values())) >= 2, "the second mark has arrived")
    stop.set()
    thread.join()
    assert sum(map(len, replica.marks._marks.values())) == 2
    text = urllib.request.urlopen(f"http://127.0.0.1:{http.port}/metrics", timeout=10).read().decode()
    assert "interfere_kubernetes_rounds_total" in text
    http.stop()


@pytest.mark.parametrize("trap", ["link", "FIFO"])
def test_a_sidecar_neither_follows_a_link_nor_waits_for_a_fifo(tmp_path: Path, trap: str) -> None:
    (tmp_path / "secret").write_text("secret\n")
    if trap == "link":
        (tmp_path / "steps.jsonl").symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(tmp_path / "steps.jsonl")
    sender = SpoolSender(tmp_path / "steps.jsonl", lambda: pytest.fail("something is sent"))
    assert sender.send()


def test_windows_and_outcomes_reach_the_server_once(api_server: ApiServer, controller: Start) -> None:
    two_nodes(api_server, "hami")
    for k in range(2):
        api_server.add(
            POD, pod(f"p{k}", "request-server", source="hami", nodeSelector={"kubernetes.io/hostname": "n0"})
        )
    chosen = settings(least_window_s=2.0)
    replica = controller(chosen)
    replica.advisor.round()
    StandInScheduler(api_server).once()
    now_s = time.time()
    for k in range(2):  # as if they had run for a minute, and then ended
        began, ended = stamp(now_s - 60.0), stamp(now_s - 20.0)
        state = {"terminated": {"startedAt": began, "finishedAt": ended, "reason": "Completed"}}
        status = {
            "phase": "Running",
            "podIP": f"10.0.0.{k}",
            "containerStatuses": [{"restartCount": 0, "state": state}],
        }
        api_server.patch(POD, "ml", f"p{k}", {"status": status})
        lines = [json.dumps(each._asdict()) for each in marks(now_s - 60.0, now_s - 20.0, 10.0, f"w{k}")]
        replica.marks.receive(f"10.0.0.{k}", ("\n".join(lines) + "\n").encode(), now_s)
    wait_seen(replica, api_server)
    results = replica.advisor.round().observations
    for k in range(2):
        api_server.patch(POD, "ml", f"p{k}", {"status": {"phase": "Succeeded"}})
    wait_seen(replica, api_server)
    results += replica.advisor.round().observations
    assert results["rejected"] == 0
    assert sum(results.values()) >= 6, "of each pod its start, at least a window, and its end"
    assert replica.advisor.round().observations == {}
