"""`python -m tests.deploy.manifests`: render the chart into deploy/kustomize, which is for those who use no helm."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import ROOT, need

CHART = ROOT / "deploy" / "helm" / "interfere"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
VARIANTS = {"observe": (), "gate": ("mode=gate",)}
HEADER = "# Generated: python -m tests.deploy.manifests. Change deploy/helm/interfere instead.\n"
FULL = (
    "mode=gate",
    "retrain.enabled=true",
    "retrain.data=/var/lib/interfere/table",
    "retrain.trackingUri=http://mlflow:5000",
    "serviceMonitor.enabled=true",
    "controller.journal.enabled=true",
    "controller.journal.storageClassName=nfs",
    "server.storage.storageClassName=ssd",
    f"server.modelDigest=sha256:{'0' * 64}",
    "server.identity.enabled=true",
    r'server.identity.keys=\{"keys": []\}',
    "prometheus.url=http://prometheus.monitoring:9090",
    "prometheus.progress=train_steps_total",
    "deviceTypes.NVIDIA-A100=a100",
    "nodeSelector.role=system",
    "imagePullSecrets[0].name=registry",
    "tolerations[0].operator=Exists",
    "grafanaDashboard.enabled=true",
    "prometheusRule.enabled=true",
    "priorityClassName=system-cluster-critical",
    "controller.tlsSecret=marks-tls",
    "evictions.enabled=true",
    "grants.granuleGib=10",
    "agent.enabled=true",
    "agent.enforce=true",
    "agent.runtimeClass=nvidia",
    "agent.tolerations[0].operator=Exists",
)

CERT_MANAGER = ("mode=gate", "certManager.enabled=true", "serviceMonitor.enabled=true")

DATABASE = (
    *FULL,
    "retrain.enabled=false",
    "server.replicas=3",
    "server.database.address=postgresql://interfere@db.example:6432/interfere?sslmode=require",
    "server.database.passwordSecret=database",
    "server.database.modelsClaim=models",
)


def render(*values: str, check: bool = True, hooks: bool = True) -> subprocess.CompletedProcess[str]:
    """`helm template` with values."""
    settings = [word for value in values for word in ("--set", value)] + ([] if hooks else ["--no-hooks"])
    command = [need("helm"), "template", "interfere", str(CHART), "--namespace", "interfere", *settings]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [document for document in yaml.safe_load_all(text) if document]


def expected(variant: str) -> str:
    """What the file of a variant must hold: without hooks, which kubectl would run at once."""
    return HEADER + render(*VARIANTS[variant], hooks=False).stdout


def path_of(variant: str) -> Path:
    return KUSTOMIZE / variant / "resources.yaml"


if __name__ == "__main__":
    for each in VARIANTS:
        path_of(each).write_text(expected(each), encoding="utf-8")
