"""Pods that hold more GPU memory than they were granted are warned and evicted; nobody else is.

API server and kube-scheduler are stand-ins, control groups and nvidia-smi are recorded; adapter, agent and server
are real.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError
from interfere.monitoring import job_memory
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.kubernetes.writes import WriteKind
from interfere.serving.adapters.node.agent import MeasuredJobs, PodJobs
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.control_plane.api_server import EVENT, POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import pod, settings
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen
from tests.waiting import wait_until

PATIENCE_S = 5.0  # a busy machine decides within it
SMI = """#!{python}
from pathlib import Path
print(Path({table!r}).read_text(), end="")
"""


@pytest.mark.journey
def test_a_pod_above_its_grant_is_warned_and_evicted(
    api_server: ApiServer,
    controller: Callable[[KubernetesSettings], Controller],
    policy_server: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 1. Two pods of 8 GiB each run on one GPU of HAMi's.
    chosen = settings(granule_gib=4.0, grant_patience_s=PATIENCE_S, cluster="grants", least_window_s=1.0)
    two_nodes(api_server, "hami")
    for name in ("leak", "neighbour"):
        api_server.add(POD, pod(name, "rl-rollout", source="hami"))
    evictions = set[str]()

    def record(request: Any) -> None:
        """Of an eviction, which the stand-in does not carry out."""
        if request.url.path.endswith("/eviction"):
            evictions.add(request.url.path)

    api_server.kmock.fault = record
    replica, scheduler = controller(chosen), StandInScheduler(api_server)

    def decide() -> Any:
        wait_seen(replica, api_server)
        return replica.advisor.round()

    decide()
    scheduler.once()
    notes = [row["metadata"]["annotations"] for row in pods_by_name(api_server).values()]
    assert {each[names.SLOTS] for each in notes} <= {"0-1", "2-3"}
    assert len({(each[names.DEVICE], each[names.SLOTS]) for each in notes}) == 2  # no slot twice
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
    running = {"containerStatuses": [{"restartCount": 0, "state": {"running": {"startedAt": stamp}}}]}
    rows = pods_by_name(api_server)
    for name in rows:
        api_server.patch(POD, "ml", name, {"status": {"phase": "Running"} | running})
    decide()
    # 2. What they hold, as the kernel and the driver of their node say.
    node_name = rows["leak"]["spec"]["nodeName"]
    groups = tmp_path / "cgroup"
    for pid, name in ((11, "leak"), (12, "neighbour")):
        group = groups / "memory" / "kubepods" / "burstable" / f"pod{rows[name]['metadata']['uid']}" / "main"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{pid}\n")
        (group.parent / "cgroup.procs").write_text("")
    monkeypatch.setattr(job_memory, "CGROUPS", groups)
    (tmp_path / "bin").mkdir()
    table, program = tmp_path / "table.csv", tmp_path / "bin" / "nvidia-smi"
    program.write_text(SMI.format(python=sys.executable, table=str(table)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    # 3. Rounds of the agent and of the controller: first both are within their grants, then one is not.
    with PolicyClient(policy_server.address, timeout_s=60.0) as client:
        api = ClusterApi(chosen.timeout_s, chosen.writes_per_s, chosen.burst)
        agent = MeasuredJobs(PodJobs(chosen, api, node_name), chosen, 60.0, enforce=True)
        table.write_text("11, python, 7000\n12, python, 8000\n77, foreign, 60000\n")
        for _ in range(3):
            assert agent.report(client) == {}
            decide()
            time.sleep(0.2)
        table.write_text("11, python, 9500\n12, python, 8000\n77, foreign, 60000\n")
        warned: dict[str, str] = {}

        assert evictions == set()
        reasons, told = list[str](), list[str]()

        def evicted() -> bool:
            warned.update(agent.report(client))
            done = decide()
            reasons.extend(each.action.reason for each in done.decisions if each.action.kind.value == "end")
            writes = [write for change in done.changes for write in change.writes]
            told.extend(write.body["message"] for write in writes if write.kind is WriteKind.EVENT)
            time.sleep(0.2)
            return bool(evictions)

        wait_until(evicted, "the pod is evicted")
    # 4. It was warned, both reasons are Events, and nobody else was evicted.
    assert [name.split("/")[1] for name in warned] == ["leak"]
    assert reasons[0].startswith("held 9.28 GiB of 8 GiB granted for ")
    events = [row["message"] for row in api_server.rows(EVENT)]
    assert any(message.startswith("interfere warns this pod: it holds 9.28 GiB") for message in events)
    assert f"evicted (end): {reasons[0]}" in told
    assert evictions == {"/api/v1/namespaces/ml/pods/leak/eviction"}


def test_a_granule_must_be_positive() -> None:
    with pytest.raises(InvalidInputError, match="granule_gib"):
        settings(granule_gib=0.0)
