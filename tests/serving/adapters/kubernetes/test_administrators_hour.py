"""An administrator's hour, typed from docs/kubernetes.md: install, observe, read, gate one namespace, roll back.

The guide's own lines run in bash with the real kubectl against the stand-in. helm renders what it would install, and
`kubectl exec` runs the command that it names here: both are a few lines of shell on the PATH. The test plays the
kubelet: it runs the containers of the rendered Deployments with their own arguments.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.server import RunningServer
from tests.deploy.tools import ROOT, need
from tests.serving.adapters.kubernetes.control_plane.admission import create_pod
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    EVENT,
    LEASE,
    NAMESPACE,
    POD,
    SECRET,
    WEBHOOK,
    ApiServer,
)
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DEVICE_TYPE, DRIVER, pod
from tests.serving.adapters.kubernetes.processes import Processes
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes
from tests.waiting import free_port

pytestmark = pytest.mark.journey
GUIDE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
KINDS = {"Secret": SECRET, "MutatingWebhookConfiguration": WEBHOOK, "Lease": LEASE}
HELM = """#!/bin/bash
set -e
verb=$1; shift
[ "$verb" = install ] && : > "$HOUR/values"
for word in "$@"; do [[ $word = --create-namespace || $word = --reuse-values ]] || echo "$word" >> "$HOUR/words"; done
mapfile -t words < "$HOUR/words"; rm "$HOUR/words"
mapfile -t known < "$HOUR/values"
flags=("${words[@]:4}"); printf '%s\\n' "${flags[@]}" >> "$HOUR/values"
cd "$ROOT" && "$REAL_HELM" template "${words[@]:0:4}" "${known[@]}" "${flags[@]}" $EXTRA > "$HOUR/manifest.yaml"
"""
KUBECTL = """#!/bin/bash
if [ "$1" != exec ]; then exec "$REAL_KUBECTL" "$@"; fi
while [ "$1" != -- ]; do shift; done
shift 2
args=("${@/\\/etc\\/interfere/$HOUR}")
exec "$PYTHON" -m interfere "${args[@]/\\/var\\/lib\\/interfere/$HOUR}"
"""


def typed(words: str) -> str:
    """The guide's only block of commands with these words."""
    blocks = [each for each in re.findall(r"```\n(.*?)```", GUIDE, re.DOTALL) if words in each]
    assert len(blocks) == 1, (words, blocks)
    return str(blocks[0]).replace("REGISTRY", "registry")


class Hour:
    """A shell with the guide's tools, and the containers of what was installed."""

    def __init__(self, api: ApiServer, processes: Processes, folder: Path, server: str) -> None:
        self.api, self.processes, self.folder, self.server = api, processes, folder, server
        self.port, self.running = free_port(), list[subprocess.Popen[bytes]]()
        tools = folder / "bin"
        tools.mkdir()
        for name, script in (("helm", HELM), ("kubectl", KUBECTL)):
            (tools / name).write_text(script)
            (tools / name).chmod(0o755)
        extra = f"--set deviceTypes.TEST-GPU={DEVICE_TYPE} --set deviceClass={DRIVER} --set windowSeconds=60"
        tools_of_guide = {"REAL_HELM": need("helm"), "REAL_KUBECTL": need("kubectl"), "PYTHON": sys.executable}
        self.environment = {
            **os.environ,
            **tools_of_guide,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "KUBECONFIG": str(api.kubeconfig),
            "HOME": str(folder),
            "HOUR": str(folder),
            "ROOT": str(ROOT),
            "EXTRA": extra,
        }

    def type(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=240,
            cwd=ROOT,
        )
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    def apply(self) -> None:
        """What the cluster does with the manifest that helm has rendered: new objects, and new containers."""
        for process in self.running:
            process.terminate()
            process.wait(60)
        objects = [each for each in yaml.safe_load_all((self.folder / "manifest.yaml").read_text()) if each]
        (config,) = [each["data"] for each in objects if each["metadata"]["name"] == "interfere-config"]
        text = re.sub(r"server = .*", f'server = "{self.server}"', config["kubernetes.toml"])
        text = text.replace("/var/lib/interfere", str(self.folder))
        (self.folder / "kubernetes.toml").write_text(text)
        known = {(each["kind"], each["metadata"]["name"]) for kind in KINDS.values() for each in self.api.rows(kind)}
        for each in objects:
            if each["kind"] in KINDS and (each["kind"], each["metadata"]["name"]) not in known:
                is_global = each["kind"] == "MutatingWebhookConfiguration"
                namespace = {} if is_global else {"namespace": "interfere"}
                self.api.add(KINDS[each["kind"]], each | {"metadata": each["metadata"] | namespace})
        self.running = [
            self.processes.start(*self.arguments(each["spec"]["template"]["spec"]["containers"][0]))
            for each in objects
            if each["kind"] == "Deployment"
        ]

    def arguments(self, container: dict[str, Any]) -> list[str]:
        ports = {"--port=8443": str(self.port), "--port=8080": str(free_port())}
        given = [f"--port={ports[each]}" if each in ports else each for each in container["args"][1:]]
        return [each.replace("/etc/interfere", str(self.folder)) for each in given]

    def create(self, name: str, namespace: str) -> None:
        create_pod(
            self.api,
            pod(name, "request-server", source="hami", gated=False, namespace=namespace),
            {("interfere", "interfere-webhook"): self.port},
        )

    def is_gated(self, name: str) -> bool:
        return bool(pods_by_name(self.api)[name]["spec"].get("schedulingGates"))

    def note(self, name: str, of: str) -> str:
        return str(pods_by_name(self.api)[name]["metadata"]["annotations"].get(of, ""))


@pytest.fixture
def hour(api_server: ApiServer, policy_server: RunningServer, tmp_path: Path) -> Iterator[Hour]:
    processes = Processes(api_server, tmp_path)
    yield Hour(api_server, processes, tmp_path, policy_server.address)
    processes.stop()


def test_an_administrators_hour(api_server: ApiServer, hour: Hour) -> None:
    wait = hour.processes.wait_for
    scheduler = StandInScheduler(api_server)
    two_nodes(api_server, "hami")
    for name in ("ml", "other"):
        api_server.add(NAMESPACE, {"metadata": {"name": name, "labels": {}}})
    # 1. Install: nothing but a controller that observes.
    hour.type(typed("helm install interfere"))
    hour.apply()
    assert len(hour.running) == 1
    # 2. Observe: Kubernetes places the pods, and is told where they would have been placed.
    for k in range(3):
        hour.create(f"seen{k}", "ml")
    scheduler.once()
    wait(lambda: all(hour.note(f"seen{k}", names.ADVICE) for k in range(3)))
    text = hour.type("kubectl describe pod seen0 --namespace ml")
    assert "InterfereAdvice" in text
    assert names.ADVICE in text
    assert {row["reason"] for row in api_server.rows(EVENT)} == {"InterfereAdvice"}
    assert [path for _, path, body in api_server.writes if "/pods/" in path and set(body) != {"metadata"}] == []
    # 3. Read what it would have done.
    told = "3 jobs have a decision that names a device"
    wait(lambda: told in hour.type(typed("kubernetes report")))
    # 4. Gate one namespace.
    hour.type(typed("--set mode=gate"))
    hour.apply()
    assert len(hour.running) == 2
    (configuration,) = api_server.rows(WEBHOOK)
    first = configuration["webhooks"][0]["name"]
    wait(lambda: "caBundle" in api_server.rows(WEBHOOK)[0]["webhooks"][0]["clientConfig"], 240.0)
    time.sleep(1.0)  # until it listens
    hour.create("placed", "ml")
    hour.create("left", "other")
    assert hour.is_gated("placed"), first
    assert not hour.is_gated("left")
    wait(lambda: not hour.is_gated("placed"))
    assert hour.note("placed", names.STATE) == "placed"
    assert "InterferePlaced" in hour.type("kubectl describe pod placed --namespace ml")
    scheduler.once()
    assert pods_by_name(api_server)["placed"]["spec"]["nodeName"] == hour.note("placed", names.DEVICE).split("/")[0]
    # 5. Roll back with one command, while pods wait: one that no GPU is free for among them.
    for k in range(5):
        hour.create(f"waiting{k}", "ml")
    wait(lambda: sum(hour.is_gated(f"waiting{k}") for k in range(5)) in (1, 2, 3))
    assert len(typed("interfere.dev/placement- ").strip().split("\n")) == 2, "one command in two lines"
    hour.type(typed("interfere.dev/placement- "))
    assert not any("schedulingGates" in row["spec"] for row in api_server.rows(POD))
    hour.create("after", "ml")
    assert not hour.is_gated("after"), "nobody opts in any longer"
