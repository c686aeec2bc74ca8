"""The adapter on a real control plane: etcd, kube-apiserver, kube-scheduler and kube-controller-manager of the PATH.

They are never built or fetched by the project: where one is missing the test is skipped, and says which. A small fake
kubelet runs what was bound. Rights are enforced (RBAC): the controller has the roles of the chart alone.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from interfere.config import Settings
from interfere.errors import InterfereError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import (
    CLAIMS,
    CLASSES,
    MERGE,
    NODES,
    PODS,
    SLICES,
    ClusterApi,
)
from interfere.serving.adapters.kubernetes.objects.values import timestamp
from interfere.serving.server import start_server
from tests.deploy.manifests import documents, render
from tests.serving.adapters.kubernetes.conftest import SHIPPED
from tests.serving.adapters.kubernetes.facts import DEVICE_TYPE, DRIVER, node, pod, resource_slice
from tests.serving.adapters.kubernetes.processes import COMMAND
from tests.waiting import PATIENCE_S, free_port, wait_until

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
ADMIN, CONTROLLER = "admin-token", "controller-token"
PODS_A_ROUND, ROUNDS = 12, int(os.environ.get("SOAK_ROUNDS", "5")) // 5
KIND_PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/interfere/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/interfere/rolebindings",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/interfere/leases",
}
Row = dict[str, Any]


def missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"a control plane is not on the PATH: {', '.join(missing())}")


class ControlPlane:
    """Processes of a control plane on ports of the loopback, with an administrator's and a controller's token."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.port, etcd, peer = free_port(), free_port(), free_port()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (folder / "accounts.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        account = "system:serviceaccount:interfere:interfere-controller"
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n{CONTROLLER},{account},2\n')
        self.start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self.start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",  # no kubelet says that nodes are ready
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--feature-gates=DRAConsumableCapacity=true",
        )
        for name, token in (("admin", ADMIN), ("controller", CONTROLLER)):
            cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
            document = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
            self.kubeconfig(name).write_text(yaml.safe_dump(document))

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def start(self, *command: str, **environment: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{Path(command[0]).name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        self.processes.append(process)
        return process

    def start_controllers(self) -> None:
        """What needs an API server that answers."""
        common = f"--kubeconfig={self.kubeconfig('admin')}", "--leader-elect=false"
        self.start("kube-scheduler", *common, "--secure-port=0", "--feature-gates=DRAConsumableCapacity=true")
        self.start(
            "kube-controller-manager",
            *common,
            "--secure-port=0",
            "--controllers=resourceclaim-controller,garbage-collector-controller",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
        )

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


class FakeKubelet:
    """Runs what was bound for a second, by saying so."""

    def __init__(self, api: ClusterApi) -> None:
        self.api, self.since_s = api, dict[str, float]()

    def look(self) -> None:
        for row in self.api.list(PODS)[0]:
            metadata, now_s = row["metadata"], time.time()
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
            if not row["spec"].get("nodeName") or row["status"]["phase"] not in ("Pending", "Running"):
                continue
            began_s = self.since_s.setdefault(metadata["uid"], now_s)
            stamp = timestamp(began_s)[:19] + "Z"
            if row["status"]["phase"] == "Pending":
                running = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
                statuses = [running | {"state": {"running": {"startedAt": stamp}}}]
                self._patch(path, {"status": {"phase": "Running", "containerStatuses": statuses}})
            elif now_s - began_s > 1.0:
                self._patch(path, {"status": {"phase": "Succeeded"}})

    def _patch(self, path: str, body: Row) -> None:
        self.api.call("PATCH", path, body=body, content=MERGE)


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path)
    yield plane
    plane.stop()


def apply_facts(api: ClusterApi) -> None:
    """Two nodes of two GPUs, the driver's class, namespaces, and the roles of the chart for mode gate."""
    for name in ("ml", "interfere"):
        api.call("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    api.call(
        "POST", CLASSES, body=_typed("resource.k8s.io/v1", "DeviceClass", {"metadata": {"name": DRIVER}, "spec": spec})
    )
    for name in ("n0", "n1"):
        row = node(name)
        api.call("POST", NODES, body=_typed("v1", "Node", {key: row[key] for key in ("metadata", "spec")}))
        status = row["status"] | {"capacity": row["status"]["allocatable"]}
        api.call("PATCH", f"{NODES}/{name}/status", body={"status": status}, content=MERGE)
        api.call("POST", SLICES, body=_typed("resource.k8s.io/v1", "ResourceSlice", resource_slice(name)))
    for each in documents(render("mode=gate", hooks=False).stdout):
        if each["kind"] in KIND_PATHS:
            api.call("POST", KIND_PATHS[each["kind"]], body=each)


def _typed(version: str, kind: str, row: Row) -> Row:
    return {"apiVersion": version, "kind": kind, **row}


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_pods_run_where_the_plan_says_and_no_write_is_refused(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("admin")))
    api = ClusterApi(10.0, 1000.0, 1000)

    def is_ready() -> bool:
        try:
            return bool(api.call("GET", "/apis/resource.k8s.io/v1"))
        except InterfereError:
            return False

    wait_until(is_ready, "the API server answers")
    apply_facts(api)
    control_plane.start_controllers()
    running = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=0, grace_s=0.5))
    config = tmp_path / "kubernetes.toml"
    config.write_text(
        f'mode = "gate"\nserver = "{running.address}"\ndevice_class = "{DRIVER}"\ninterval_s = 1.0\nwindow_s = 30.0\n'
        f'[device_types]\n"TEST-GPU" = "{DEVICE_TYPE}"\n'
    )
    kubeconfig = str(control_plane.kubeconfig("controller"))
    control_plane.start(*COMMAND, "controller", "--config", str(config), KUBECONFIG=kubeconfig)
    kubelet, sent = FakeKubelet(api), dict[str, str]()
    try:
        for k in range(max(1, ROUNDS)):
            for j in range(PODS_A_ROUND):
                row = pod(f"p{k}-{j}", "request-server", notes={names.MEMORY_GIB: "20"})
                row["spec"]["containers"][0]["image"] = "i"
                api.call("POST", "/api/v1/namespaces/ml/pods", body=_typed("v1", "Pod", row))
            end_s = time.monotonic() + 3 * PATIENCE_S
            while time.monotonic() < end_s:
                kubelet.look()
                claims = {row["metadata"]["name"]: row for row in api.list(CLAIMS)[0]}
                for name, row in claims.items():
                    results = ((row.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", [])
                    if results and names.CLAIM_FOR in row["metadata"].get("annotations", {}):
                        place = f"{results[0]['pool']}/GPU-{results[0]['pool']}-{results[0]['device'][-1]}"
                        sent[name] = place
                        target = row["metadata"]["annotations"][names.CLAIM_FOR]
                        assert target in (place, names.ANY_DEVICE), (name, target, place)
                rows = api.list(PODS)[0]
                if all(row["status"]["phase"] == "Succeeded" for row in rows):
                    break
                time.sleep(0.3)
            left = [row["metadata"]["name"] for row in rows if row["status"]["phase"] != "Succeeded"]
            assert left == [], (control_plane.folder / f"{Path(COMMAND[0]).name}.log").read_text()[-3000:]
    finally:
        running.stop()
    log = "".join(path.read_text(errors="replace") for path in control_plane.folder.glob("python*.log"))
    assert "forbids" not in log, log[-3000:]
    print(json.dumps({"pods": PODS_A_ROUND * max(1, ROUNDS), "allocated where they were sent": len(sent)}))
    assert len(sent) >= 0.7 * PODS_A_ROUND * max(1, ROUNDS)
