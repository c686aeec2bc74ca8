"""The page of the metrics: what a server and the adapters count, and the alerts that rest on it."""

import re
from collections.abc import Callable, Mapping

from deploy.monitoring import ALERTS
from docs.site.reference.markdown import code, plain, table
from interfere.serving.adapters.kubernetes.port import controller_metrics
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.slurm.port import slurm_metrics
from interfere.serving.metrics import LABELS, Metrics

INTRODUCTION = """# Metrics

What Prometheus reads from a server (`--metrics-port`) and from the adapters. The shipped
[dashboard](../../deploy/grafana/interfere.json) and
[alert rules](../../deploy/prometheus/interfere-rules.yaml) are made from the same lists.
"""
_ADAPTERS: Mapping[str, Callable[[], AdapterMetrics]] = {
    "Slurm adapter": slurm_metrics,
    "Kubernetes controller": controller_metrics,
    "Agent of a node": lambda: AdapterMetrics("node", {}),
}


def metrics_page() -> str:
    """Return the page: the metrics of the server with their types and labels, those of each adapter, the alerts."""
    parts = [INTRODUCTION, "## Server\n", table(("metric", "type", "labels", "meaning"), _server_rows())]
    for name, metrics in _ADAPTERS.items():
        parts += [f"## {name}\n", table(("metric", "type", "meaning"), _adapter_rows(metrics()))]
    alerts = (
        (code(alert.name), alert.severity, alert.lasting, plain(alert.summary), plain(alert.remedy)) for alert in ALERTS
    )
    return "\n".join([*parts, "## Alerts\n", table(("alert", "severity", "after", "meaning", "what to do"), alerts)])


def _server_rows() -> list[tuple[str, str, str, str]]:
    rows = []
    for family in Metrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(code(str(label)) for label in LABELS.get(family.name, ()))
        rows.append((code(name), family.type, labels, plain(family.documentation)))
    return rows


def _adapter_rows(metrics: AdapterMetrics) -> list[tuple[str, str, str]]:
    text = metrics.text()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
    return [(code(name), types[name], plain(meaning)) for name, meaning in helps]
