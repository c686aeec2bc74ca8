"""What an administrator types: kubectl shows decisions, and the guide's commands roll back."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from tests.deploy.tools import need
from tests.serving.adapters.kubernetes.conftest import WORKLOADS, Start
from tests.serving.adapters.kubernetes.control_plane.api_server import NAMESPACE, POD, WEBHOOK, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, pod, settings
from tests.serving.adapters.kubernetes.processes import COMMAND
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes, wait_seen

pytestmark = pytest.mark.journey
GUIDE = Path(__file__).parents[4] / "docs" / "kubernetes.md"


def run(api: ApiServer, tmp_path: Path, *command: str) -> str:
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_shows_decisions_and_rolls_back(api_server: ApiServer, controller: Start, tmp_path: Path) -> None:
    kubectl = need("kubectl")
    two_nodes(api_server, "dra")
    for k in range(12):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    replica, scheduler = controller(settings()), StandInScheduler(api_server)
    wait_seen(replica, api_server)
    decisions = {each.job.name: each.action for each in replica.advisor.round().decisions}
    scheduler.once()
    # 1. Decisions.
    placed = next(name for name, each in decisions.items() if each.device_id)
    waiting = next(name for name, each in decisions.items() if not each.device_id)
    text = run(api_server, tmp_path, kubectl, "describe", "pod", placed, "--namespace", "ml")
    assert f"{names.DEVICE}: {decisions[placed].device_id}" in text
    assert "InterferePlaced" in text
    assert decisions[placed].reason in text
    text = run(api_server, tmp_path, kubectl, "describe", "pod", waiting, "--namespace", "ml")
    assert "InterfereWaiting" in text
    assert decisions[waiting].reason in text
    # 2. Rollback: no new pod is gated, and every gated one is left to Kubernetes.
    for name, label in (("ml", names.ENABLED), ("cv", names.ENABLED), ("other", "")):
        labels = {"team": name} | ({names.OPT_IN: label} if label else {})
        api_server.add(NAMESPACE, {"metadata": {"name": name, "labels": labels}})
    label = f"kubectl label namespace --all {names.OPT_IN}-"
    assert label in GUIDE.read_text()
    run(api_server, tmp_path, kubectl, *label.split()[1:])
    assert all(names.OPT_IN not in row["metadata"]["labels"] for row in api_server.rows(NAMESPACE))
    assert {row["metadata"]["labels"]["team"] for row in api_server.rows(NAMESPACE)} == {"ml", "cv", "other"}
    label = f"kubectl label namespace ml {names.OPT_IN}={names.ENABLED}"
    assert label in GUIDE.read_text()
    run(api_server, tmp_path, kubectl, *label.split()[1:])
    opted_in = [
        row["metadata"]["name"] for row in api_server.rows(NAMESPACE) if names.OPT_IN in row["metadata"]["labels"]
    ]
    assert opted_in == ["ml"]
    config = tmp_path / "kubernetes.toml"
    config.write_text(f'mode = "gate"\ndevice_class = "{DRIVER}"\n')
    answer = json.loads(run(api_server, tmp_path, *COMMAND, "release", "--config", str(config), "--json"))
    assert answer["released"] == sum(not each.device_id for each in decisions.values())
    assert all("schedulingGates" not in row["spec"] for row in api_server.rows(POD))
    delete = "kubectl delete mutatingwebhookconfiguration interfere"
    assert delete in GUIDE.read_text()
    api_server.add(WEBHOOK, {"metadata": {"name": "interfere"}, "webhooks": []})
    run(api_server, tmp_path, kubectl, *delete.split()[1:])
    assert api_server.rows(WEBHOOK) == []
    # 3. With nothing of interfere left: the guide's line for one pod.
    api_server.add(POD, pod("left", source="hami"))
    patch = '{"spec":{"schedulingGates":null}}'
    assert f"kubectl patch pod NAME --type=merge -p '{patch}'" in GUIDE.read_text()
    run(api_server, tmp_path, kubectl, "patch", "pod", "left", "-n", "ml", "--type=merge", "-p", patch)
    assert "schedulingGates" not in pods_by_name(api_server)["left"]["spec"]
    assert "left" in run(api_server, tmp_path, kubectl, "get", "pods", "-n", "ml", "--output=name")
