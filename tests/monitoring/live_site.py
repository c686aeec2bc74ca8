"""A simulated site that runs in real time: an HTTP exporter with DCGM's names, a real Prometheus, a real server.

A scrape is half a second, so that a minute of the plan is two seconds. Half-way Prometheus is killed and comes back,
and so does the server. Samples carry the time at which they were rendered, so that a slow machine delays them and no
more.
"""

import json
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Progress
from interfere.serving.server import start_server
from tests.models import publish
from tests.monitoring.prometheus_server import running_prometheus
from tests.monitoring.simulated_site import PRODUCT, WORKLOADS, SimulatedSite, inside, steps_shown
from tests.monitoring.test_watcher import reported
from tests.waiting import PATIENCE_S, free_port, wait_until

UNIT = 1 / 30
INTERVAL = "500ms"
CELL_S = 8.0
DEVICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A plan that was run: the site with the outage that it had, and what became of it."""

    site: SimulatedSite
    observations: list[Progress]  # in the server's log
    read_until_s: float  # what ended later was not read yet
    log: str  # of the watcher


def run_live(folder: Path, seconds: float, seed: int) -> LiveRun:
    """Run the plan in real time."""
    site = SimulatedSite(seed=seed, hours=seconds / 3600, devices=DEVICES, start_s=time.time() + 5.0, unit=UNIT)
    site.prometheus_down.clear()
    settings = Settings(
        model=publish(folder / "tiny"), work=folder / "work", port=free_port(), grace_s=1.0, decision_workers=0
    )
    paths = [f"/gpu{device}" for device in range(DEVICES)] + ["/pods"]
    port = free_port()
    with _exporter(site) as target:
        with (
            running_prometheus(folder / "data", port=port, target=target, paths=paths, interval=INTERVAL) as url,
            (folder / "watch.log").open("w") as log,
        ):
            watcher = subprocess.Popen(_command(url, settings.port, folder), stdout=log, stderr=log, cwd=folder)
            server = start_server(settings)
            _sleep_until(site.start_s + seconds / 2)
            server.stop()
        outage_s = time.time()
        _wait_for_line(folder / "watch.log", "waiting: Prometheus does not answer")
        server = start_server(settings)
        with running_prometheus(folder / "data", port=port, target=target, paths=paths, interval=INTERVAL) as url:
            site.prometheus_down.append((outage_s, time.time()))
            _sleep_until(site.end_s)
            watcher.terminate()
            status = watcher.wait(PATIENCE_S)
    log_text = (folder / "watch.log").read_text()
    assert status == 0, log_text[-3000:]
    with PolicyClient(server.address) as client:
        observations = reported(client)
    server.stop()
    next_cell = json.loads((folder / "state.json").read_text())["next_cell"]
    return LiveRun(site=site, observations=observations, read_until_s=next_cell * CELL_S, log=log_text)


def _command(url: str, port: int, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "interfere", "watch", "prometheus", url, "--progress", "train_steps_total"]
    command += ["--cell", f"{CELL_S:g}s", "--min-window", f"{60 * UNIT:g}s", "--since", "20s"]
    return [*command, "--target", f"127.0.0.1:{port}", "--state", str(folder / "state.json")]


def _wait_for_line(log: Path, text: str) -> None:
    """Until a log holds a line: the watcher asks only when a cell is over."""
    wait_until(lambda: text in log.read_text(), text)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


@contextmanager
def _exporter(site: SimulatedSite) -> Iterator[str]:
    """An HTTP server with what each device's exporter, and every pod, shows at this moment; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now_s = round(time.time(), 3)
            text = _pods(site, now_s) if self.path == "/pods" else _device(site, int(self.path[4:]), now_s)
            body = text.encode()
            self.send_response(200 if text else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _device(site: SimulatedSite, device: int, now_s: float) -> str:
    """The text of one device's exporter; empty while it is down."""
    if inside(now_s, site.exporter_down[device]):
        return ""
    labels = f'UUID="{site.uuid(device)}",gpu="{device}",modelName="{PRODUCT}",Hostname="node-0"'
    pods = [pod for pod in site.pods if pod.device == device and pod.start_s <= now_s < pod.end_s]
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    at = f"{now_s * 1000:.0f}"
    if not pods:
        lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 0 {at}")
    of_pod = [f'{labels},namespace="ml",pod="{pod.name}",container="main"' for pod in pods]
    lines += [f"DCGM_FI_DEV_GPU_UTIL{{{each}}} 90 {at}" for each in of_pod]
    lines.append("# TYPE DCGM_FI_DEV_FB_USED gauge")
    for pod, each in zip(pods, of_pod, strict=True):
        lines.append(f"DCGM_FI_DEV_FB_USED{{{each}}} {1000 * (1 + WORKLOADS.index(pod.workload))} {at}")
    return "\n".join(lines) + "\n"


def _pods(site: SimulatedSite, now_s: float) -> str:
    """The counters of all pods that are up and answer."""
    lines = ["# TYPE train_steps_total counter"]
    for pod in site.pods:
        if pod.start_s <= now_s < pod.end_s and not inside(now_s, pod.down + pod.missed):
            steps = steps_shown(pod, np.array([now_s]))[0]
            labels = f'namespace="ml",pod="{pod.name}"'
            lines.append(f"train_steps_total{{{labels}}} {steps:.0f} {now_s * 1000:.0f}")
    return "\n".join(lines) + "\n"


def check_live(run: LiveRun) -> tuple[int, int]:
    """No window across a change, none twice; how many long ones were found, of how many.

    A slow machine may miss scrapes, so that not every short window must be found.
    """
    site, observations = run.site, run.observations
    every = site.expected_windows(0.0)
    assert len({each.observation_id for each in observations}) == len(observations)
    found: dict[tuple[int, str], float] = {}
    for each in observations:
        owners = [
            k
            for k, window in enumerate(every)
            if site.uuid(window.device) == each.device_id
            and window.start_s - 0.002 <= each.start_s
            and each.end_s <= window.end_s + 0.002
            and each.job_id.removeprefix("ml/") in window.pods
        ]
        assert len(owners) == 1, f"across a change: {each}"
        key = owners[0], each.job_id.removeprefix("ml/")
        assert each.start_s >= found.get(key, 0.0)
        found[key] = each.end_s
    long = [
        (k, pod)
        for k, window in enumerate(every)
        for pod in window.pods
        if window.end_s - window.start_s >= 3 * 60 * UNIT and window.end_s <= run.read_until_s
    ]
    return sum(key in found for key in long), len(long)
