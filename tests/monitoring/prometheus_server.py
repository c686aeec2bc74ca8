"""A real Prometheus on a free port, with history backfilled by promtool or scraping an exporter of the test."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from interfere.monitoring.samples import SampleBlock
from tests.monitoring.simulated_site import write_openmetrics
from tests.waiting import PATIENCE_S, free_port


def needs_prometheus() -> None:
    """Skip without the programs; where REQUIRE_ALL is set (CI) that is a failure."""
    missing = [name for name in ("prometheus", "promtool") if not shutil.which(name)]
    why = f"Prometheus is missing ({', '.join(missing)}): apt-get install --no-install-recommends prometheus"
    if missing and os.environ.get("REQUIRE_ALL"):
        pytest.fail(why)
    if missing:
        pytest.skip(why)


def backfill(block: SampleBlock, folder: Path) -> int:
    """Write samples into the storage folder of a Prometheus that is not running; the number of series."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder.parent / "history.om"
    series = write_openmetrics(block, text)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    text.unlink()
    return series


@contextlib.contextmanager
def running_prometheus(
    folder: Path, *, port: int = 0, target: str = "", paths: Sequence[str] = (), interval: str = "1s"
) -> Iterator[str]:
    """A Prometheus over the storage `folder`, which scrapes the paths of `target`; its address. Killed at the end."""
    port = port or free_port()
    config = folder.parent / "prometheus.yml"
    jobs = [
        {"job_name": path, "metrics_path": path, "honor_labels": True, "static_configs": [{"targets": [target]}]}
        for path in paths
    ]
    document = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}
    config.write_text(json.dumps(document))  # JSON is YAML
    address = f"127.0.0.1:{port}"
    with (folder.parent / "prometheus.log").open("a") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}",
                f"--web.listen-address={address}",
                "--storage.tsdb.retention.time=10y",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_ready(address, process, folder.parent / "prometheus.log")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _wait_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"not ready: {log.read_text()[-2000:]}")
