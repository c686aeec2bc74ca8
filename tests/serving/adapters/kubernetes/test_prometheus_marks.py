"""Steps of pods from a real Prometheus that scrapes them: windows reach the server though no job was touched."""

import http.server
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.errors import InvalidInputError, UnavailableError
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.records import Progress
from interfere.serving.adapters.kubernetes.marks import read_by
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from tests.monitoring.prometheus_server import backfill, needs_prometheus, running_prometheus
from tests.serving.adapters.kubernetes.conftest import Start
from tests.serving.adapters.kubernetes.control_plane.api_server import POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import pod, settings
from tests.serving.adapters.kubernetes.test_observations import residencies_of, running, stamp
from tests.serving.adapters.kubernetes.worlds import two_nodes, wait_seen
from tests.waiting import PATIENCE_S

RATES = {"p0": 10.0, "p1": 4.0}  # steps per second


class Exporter:
    """The pods' counters since they began, each with its time; p1's process restarts once, and counts from zero."""

    def __init__(self, address: str) -> None:
        self.address, self.began_s = address, time.time()

    def text(self) -> str:
        now_s = round(time.time(), 3)
        elapsed_s = now_s - self.began_s
        since_s = {"p0": elapsed_s, "p1": elapsed_s - 6.0 if elapsed_s > 6.0 else elapsed_s}
        rows = [
            f'train_steps_total{{namespace="ml",pod="{name}"}} {rate * since_s[name]} {now_s * 1000:.0f}'
            for name, rate in RATES.items()
        ]
        return "\n".join(["# TYPE train_steps_total counter", *rows, 'train_steps_total{job="other"} 1', ""])


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(made.text().encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Exporter(f"127.0.0.1:{server.server_address[1]}")
    yield made
    server.shutdown()


@pytest.mark.journey
def test_windows_of_untouched_jobs_reach_the_server(
    api_server: ApiServer, controller: Start, exporter: Exporter, tmp_path: Path
) -> None:
    needs_prometheus()
    two_nodes(api_server, "hami")
    for name in RATES:
        selector = {"kubernetes.io/hostname": "n0"}
        notes = {"nvidia.com/use-gpuuuid": "GPU-n0-0"}
        api_server.add(POD, pod(name, "request-server", source="hami", gated=False, nodeSelector=selector, notes=notes))
    StandInScheduler(api_server).once()
    with running_prometheus(tmp_path / "data", target=exporter.address, paths=["/metrics"], interval="500ms") as url:
        began_s = exporter.began_s = time.time()
        for name in RATES:
            running = {"running": {"startedAt": stamp(began_s)}}
            status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"state": running}]}
            api_server.patch(POD, "ml", name, {"status": status})
        replica = controller(settings(prometheus=url, progress="train_steps_total", least_window_s=2.0))
        wait_seen(replica, api_server)
        assert replica.advisor.round().observations["undelivered"] == 0
        time.sleep(max(0.0, began_s + 14.0 - time.time()))
        ended = {
            "terminated": {"startedAt": stamp(began_s), "finishedAt": stamp(began_s + 13.0), "reason": "Completed"}
        }
        for name in RATES:
            status = {"phase": "Succeeded", "containerStatuses": [{"state": ended}]}
            api_server.patch(POD, "ml", name, {"status": status})
        wait_seen(replica, api_server)
        delivered: list[Progress] = []
        observe = replica.advisor.client.observe
        replica.advisor.client.observe = lambda rows, **more: (
            delivered.extend(each for each in rows if isinstance(each, Progress)),
            observe(rows, **more),
        )[1]
        replica.advisor.round()
        assert delivered == [], "nothing was read yet of that time"
        deadline_s = time.monotonic() + PATIENCE_S
        while {each.job_id.split("/")[1] for each in delivered} != set(RATES) and time.monotonic() < deadline_s:
            replica._prometheus.refresh()
            replica.advisor.round()
            time.sleep(0.5)
    assert len(delivered) == 2, "one window each, counted once"
    for each in delivered:
        rate = RATES[each.job_id.split("/")[1]]
        assert each.steps / (each.end_s - each.start_s) == pytest.approx(rate, rel=0.1)
        assert each.company == ("request-server",)
    with pytest.raises(UnavailableError):
        replica._prometheus.refresh()
    replica.advisor.round()  # windows wait, placement goes on


def test_an_expression_of_steps_per_second(tmp_path: Path) -> None:
    """A rate looks back: the first of its values after a pod began are about the time before."""
    needs_prometheus()
    now_s = time.time()
    times_s = np.arange(now_s - 600.0, now_s - 30.0, 5.0)
    labels = {"namespace": "ml", "pod": "a"}
    counter = SampleSeries.from_samples("train_steps_total", labels, times_s, 10.0 * (times_s - times_s[0]))
    backfill(SampleBlock(progress=(counter,)), tmp_path / "data")
    (residency,) = residencies_of(running("a", now_s - 600.0), now_s=now_s).all()
    for progress in ("train_steps_total", "rate(train_steps_total[1m])"):
        with running_prometheus(tmp_path / "data") as url:
            source = read_by(settings(prometheus=url, progress=progress))
            assert source.complete_until_s(now_s) == 0.0
            source.refresh()
        assert now_s - 30.0 < source.complete_until_s(now_s) <= now_s
        own = source.marks(
            replace(residency, end_s=now_s - 40.0), now_s
        )  # it ended; its counter was scraped a little longer
        assert (own[-1].steps - own[0].steps) / (own[-1].unix_s - own[0].unix_s) == pytest.approx(10.0, rel=0.01)
        assert own[0].unix_s < now_s - 500.0
        assert source.marks(replace(residency, start_s=now_s - 100.0), now_s)[0].unix_s >= now_s - 100.0
        assert source.marks(replace(residency, job=replace(residency.job, namespace="other")), now_s) == []


def test_the_address_and_the_counter_belong_together(tmp_path: Path) -> None:
    file = tmp_path / "kubernetes.toml"
    file.write_text('prometheus = "http://127.0.0.1:1"\n')
    with pytest.raises(InvalidInputError, match="progress"):
        KubernetesSettings.load(file, {})
    with pytest.raises(InvalidInputError, match="address of a Prometheus"):
        read_by(settings(prometheus="prometheus:9090", progress="steps_total"))
