"""A real Prometheus scrapes a real server: every panel of the dashboard shows something, and every metric is there."""

import json
import math
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from deploy import monitoring
from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Device, Job, Limits, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE
from tests.monitoring.prometheus_server import needs_prometheus, running_prometheus
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.waiting import PATIENCE_S, wait_until


def vector(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """The series of an instant query."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=PATIENCE_S) as answer:
        return list(json.load(answer)["data"]["result"])


def empty_panels(prometheus: str) -> Iterator[str]:
    """The queries that show no number, or whose series lack a label that their legend names."""
    for panel in json.loads(monitoring.BOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "1m").replace('"$job"', '".*"')
            series = vector(prometheus, expression.replace('"$instance"', '".*"'))
            labels = [part.partition("}}")[0] for part in target["legendFormat"].split("{{")[1:]]
            shown = [
                s for s in series if math.isfinite(float(s["value"][1])) and all(s["metric"].get(at) for at in labels)
            ]
            if not shown:
                yield f"{panel['title']}: {expression}"


def test_every_panel_shows_what_a_running_server_does(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    needs_prometheus()
    server = serve(replace(settings, metrics_port=0))
    full = Device(id="d", type=DEVICE_TYPE, residents=(Job(id="r", workload="infer"),))
    snapshot = Snapshot(
        pending=(Job(id="a", workload="gemm"), Job(id="b", workload="train")),
        devices=(full,),
        limits=Limits.of(max_slowdown=1.001),
    )
    rounds = count()
    target = f"127.0.0.1:{server.metrics_port}"
    with (
        PolicyClient(server.address, timeout_s=PATIENCE_S) as client,
        running_prometheus(tmp_path / "tsdb", target=target, paths=["/metrics"], interval="200ms") as prometheus,
    ):

        def is_full() -> bool:
            client.match(snapshot)
            client.observe([window(f"o{next(rounds)}", "infer", "gemm", slowdown=2.0)])
            return not list(empty_panels(prometheus))

        try:
            wait_until(is_full, "every panel shows something")
        finally:
            assert list(empty_panels(prometheus)) == []


def test_promtool_has_nothing_to_say_of_the_page_and_it_has_every_metric(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    needs_prometheus()
    page = scrape(serve(replace(settings, metrics_port=0)))
    told = {line.split()[2] for line in page.splitlines() if line.startswith("# HELP ")}
    assert told >= {name for alert in monitoring.ALERTS for name in monitoring.metrics_of(alert.expression)}
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
