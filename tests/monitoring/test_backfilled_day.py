"""A day in a real Prometheus, backfilled by promtool: 24 hours, 1,000 series, restarts, gaps, resets, renamed pods.

The audit's and the watcher's commands read it as they would read a site's.
"""

import json
import math
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError, UnavailableError
from interfere.monitoring.audit.audit import audit
from interfere.monitoring.company_windows import read_span
from interfere.monitoring.prometheus import PrometheusSource
from interfere.monitoring.reading import read_cell
from interfere.monitoring.saved_answers import SavedAnswers
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from interfere.monitoring.watcher import progress_observations
from tests.monitoring.conftest import SETTINGS
from tests.monitoring.prometheus_server import backfill, needs_prometheus, running_prometheus
from tests.monitoring.simulated_site import BASE_RATE, WORST, SimulatedSite, planted_slowdown
from tests.monitoring.test_reading import check_windows
from tests.monitoring.test_watcher import reported
from tests.reports.html_tree import Tree
from tests.waiting import PATIENCE_S, free_port, wait_until

pytestmark = pytest.mark.journey
MAX_MIB = 150  # resident memory of the watcher with 1,000 series; the interpreter and gRPC take 60 of it
CELL_S = 3600.0


@pytest.fixture(scope="module")
def past_day() -> SimulatedSite:
    """A day that ended three quarters of an hour ago."""
    return SimulatedSite(seed=11, hours=24, devices=4, start_s=math.floor(time.time()) - 24 * 3600 - 2700.0)


@pytest.fixture(scope="module")
def prometheus(past_day: SimulatedSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    needs_prometheus()
    folder = tmp_path_factory.mktemp("prometheus") / "data"
    assert backfill(past_day.block(), folder) >= 1000
    with running_prometheus(folder) as url:
        yield url


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "interfere", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def test_each_time_of_constant_company_is_read_once_and_none_across_a_change(
    past_day: SimulatedSite, prometheus: str
) -> None:
    source = PrometheusSource(prometheus, SETTINGS)
    labels = SiteLabels(SETTINGS, source.device_label_names())
    observations = []
    for k in range(int(past_day.start_s // CELL_S), int(past_day.end_s // CELL_S) + 1):
        cell = k * CELL_S, (k + 1) * CELL_S
        block = source.read(*read_span(cell, SETTINGS.min_window_s))
        observations += progress_observations(read_cell(block, labels, SETTINGS, cell).windows, SETTINGS)
    check_windows(past_day, observations, CELL_S)


def test_the_audit_recovers_what_was_planted_and_its_page_names_the_worst_pair_first(
    prometheus: str, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    options = ("--prometheus", prometheus, "--since", "1.04d", "--progress", "train_steps_total", "--out", str(page))
    result = run("audit", *options, "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    inside = [
        row["lower"] <= math.prod(planted_slowdown(row["victim"], name) for name in row["company"]) <= row["upper"]
        for row in document["estimates"]
    ]
    print(f"{sum(inside)} of {len(inside)} planted slowdowns in their intervals")
    assert len(inside) >= 30
    assert sum(inside) >= 0.9 * len(inside)
    first = document["separations"][0]
    assert (first["victim"], first["neighbour"]) == WORST
    lost = sum(
        (shift["hours_before"] - shift["hours_after"]) * (1 - 1 / planted_slowdown(*names))
        for shift in first["change"]["shifts"]
        for names in (shift["names"], shift["names"][::-1])
    )
    assert first["change"]["lower"] <= lost <= first["change"]["upper"]
    assert document["match"]["decisions"] > 100
    first_row = Tree(page.read_text().removeprefix("<!doctype html>\n")).root.all("tbody")[0].all("tr")[0]
    assert [cell.words.strip() for cell in first_row.inside[:2]] == list(WORST)


def test_the_watcher_killed_on_its_way_reports_each_window_once_in_bounded_memory(
    past_day: SimulatedSite, prometheus: str, client: PolicyClient, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "interfere", "watch", "prometheus", prometheus, "--progress", "train_steps_total"]
    command += ["--cell", "30m", "--since", "25h", "--target", client.target, "--state", str(tmp_path / "state.json")]
    peaks_mib = []
    for _ in range(3):
        with (tmp_path / "watch.log").open("a") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
        before = _next_cell(tmp_path)
        _wait(lambda before=before: _next_cell(tmp_path) > before + 4, process)
        peaks_mib.append(_peak_mib(process.pid))
        process.send_signal(signal.SIGKILL)
        process.wait()
    result = subprocess.run([*command, "--once", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    log_entries = reported(client)
    assert len({each.observation_id for each in log_entries}) == len(log_entries)
    check_windows(past_day, log_entries, 1800.0)
    print(f"{len(log_entries)} observations; watcher's peak memory {max(peaks_mib):.0f} MiB")
    assert max(peaks_mib) < MAX_MIB
    rates = {each.workload: each for each in client.list_profiles()}
    assert rates.keys() >= BASE_RATE.keys()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--progress", "train_step_total"), "the first: --progress train_steps_total"),
        (("--progress", "DCGM_FI_DEV_FB_USED"), "remedy"),
        (("--progress", "train_steps_total", "--same-label", "pod=namespace"), "--same-label"),
        (("--progress", "train_steps_total", "--by", "podd"), "no series of a device has this label: podd"),
    ],
)
@pytest.mark.parametrize("once", [("--once",), ()])
def test_a_watcher_of_the_wrong_thing_ends_with_status_2_and_sends_nothing(
    prometheus: str,
    client: PolicyClient,
    tmp_path: Path,
    options: tuple[str, ...],
    part: str,
    once: tuple[str, ...],
) -> None:
    where = ("--target", client.target, "--state", str(tmp_path / "state.json"), "--since", "6h")
    result = run("watch", "prometheus", prometheus, *options, *where, *once, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert reported(client) == []


def test_a_prometheus_that_is_down_at_the_start_is_waited_for(client: PolicyClient, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "interfere", "watch", "prometheus", f"http://127.0.0.1:{free_port()}"]
    with (tmp_path / "watch.log").open("w") as log:
        options = ("--progress", "x", "--target", client.target, "--state", str(tmp_path / "s.json"))
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    wait_until(lambda: "waiting: Prometheus does not answer" in (tmp_path / "watch.log").read_text(), "waiting")
    assert process.poll() is None
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_an_expression_of_steps_per_second_gives_the_same_slowdowns(
    past_day: SimulatedSite, prometheus: str, tmp_path: Path
) -> None:
    expression = "sum by (namespace, pod) (rate(train_steps_total[1m]))"
    options = ("--prometheus", prometheus, "--since", "1.04d", "--progress", expression)
    result = run("audit", *options, "--out", str(tmp_path / "page.html"), "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["estimates"]
    errors = sorted(
        abs(math.log(row["slowdown"] / math.prod(planted_slowdown(row["victim"], name) for name in row["company"])))
        for row in rows
    )
    assert len(errors) >= 30
    assert errors[len(errors) // 2] < 0.05


def test_a_saved_answer_says_what_the_server_says(past_day: SimulatedSite, prometheus: str, tmp_path: Path) -> None:
    """The query that the documentation shows, saved as it comes."""
    start_s, end_s = past_day.start_s, past_day.start_s + 4 * CELL_S
    query = {"query": '{__name__=~"DCGM_FI_.*|train_steps_total"}[4h]', "time": f"{end_s:.3f}"}
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{urllib.parse.urlencode(query)}", timeout=60) as answer:
        (tmp_path / "day.json").write_bytes(answer.read())
    saved = SavedAnswers(tmp_path / "day.json", SETTINGS)
    reports = [audit(source, SETTINGS, start_s, end_s) for source in (saved, PrometheusSource(prometheus, SETTINGS))]
    assert len(reports[0].estimates) > 5
    assert reports[0].estimates == reports[1].estimates


def test_without_a_counter_the_audit_names_those_that_may_be_one(
    past_day: SimulatedSite, prometheus: str, tmp_path: Path
) -> None:
    until = past_day.end_s - 900
    options = (
        "--prometheus",
        prometheus,
        "--since",
        "0.1d",
        "--until",
        f"{until:.0f}",
        "--out",
        str(tmp_path / "p.html"),
    )
    result = run("audit", *options, "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "may count steps: train_steps_total" in result.stderr
    document = json.loads(result.stdout)
    assert document["estimates"] == []
    assert document["shared_hours"] > 0


def test_what_prometheus_refuses_and_that_it_is_away_are_told_apart(prometheus: str) -> None:
    bad = PrometheusSource(prometheus, MonitoringSettings(progress="sum by ("))
    with pytest.raises(InvalidInputError, match="parse error"):
        bad.read(time.time() - 60, time.time())
    with pytest.raises(UnavailableError, match="does not answer"):
        PrometheusSource("http://127.0.0.1:1", SETTINGS).now_s()
    with pytest.raises(InvalidInputError, match="address"):
        PrometheusSource("file:///etc/passwd", SETTINGS)
    assert abs(PrometheusSource(prometheus, SETTINGS).now_s() - time.time()) < 60


def _peak_mib(process_id: int) -> float:
    """The largest resident memory that a process ever had."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _next_cell(folder: Path) -> float:
    state = folder / "state.json"
    return float(json.loads(state.read_text())["next_cell"]) if state.exists() else -math.inf


def _wait(condition, process: "subprocess.Popen[bytes]", timeout_s: float = 120.0) -> None:  # type: ignore[no-untyped-def]
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s and process.poll() is None:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("the watcher did not get on")
