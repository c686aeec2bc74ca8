"""The watcher reports each window once to a real server, whatever is away or killed in between."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.data.importers.site_traces import read_workload_map
from interfere.errors import InvalidInputError, UnavailableError
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.watcher import Watcher, describe
from interfere.records import Progress
from tests.monitoring.recorded_site import RecordedSite
from tests.monitoring.simulated_site import BASE_RATE, DEVICE_TYPE, SimulatedSite
from tests.monitoring.test_reading import check_windows

SETTINGS = MonitoringSettings(progress="train_steps_total", cell_s=900.0)
HOURS = 5.0


@pytest.fixture(scope="module")
def site() -> SimulatedSite:
    return SimulatedSite(seed=5, hours=HOURS, devices=2)


def reported(client: PolicyClient) -> list[Progress]:
    """Everything in the server's log, oldest first."""
    found: list[Progress] = []
    at = None
    while True:
        page = client.observation_log(at_sequence=at, limit=1000)
        found += [entry.observation for entry in page.entries if isinstance(entry.observation, Progress)]
        if not page.entries or page.entries[-1].sequence <= 1:
            return found[::-1]
        at = page.entries[-1].sequence - 1


def watcher(source: RecordedSite, client: PolicyClient, state: Path) -> Watcher:
    return Watcher(source, client, SETTINGS, state, lookback_s=HOURS * 3600)


def test_every_window_is_in_the_server_once_and_the_jobs_have_profiles(
    site: SimulatedSite, client: PolicyClient, tmp_path: Path
) -> None:
    source = RecordedSite(site.block(), site.end_s + 900)
    reports = watcher(source, client, tmp_path / "state.json").catch_up()
    assert [a.end_s for a in reports[:-1]] == [b.start_s for b in reports[1:]]
    log = reported(client)
    check_windows(site, log, SETTINGS.cell_s)
    assert sum((report.results for report in reports), Counter()).total() == len(log)
    assert "rejected" not in sum((report.results for report in reports), Counter())
    assert all(describe(report) for report in reports)
    profiles = {each.workload: each for each in client.list_profiles(device_type=DEVICE_TYPE)}
    alone = {each.workload for each in log if not each.company}
    assert set(profiles) == alone
    for workload, profile in profiles.items():
        assert profile.source == "dcgm"
        assert profile.step_time_s == pytest.approx(1 / BASE_RATE[workload], rel=0.1)


def test_killed_at_any_cell_it_goes_on_and_nothing_is_counted_twice(
    site: SimulatedSite, client: PolicyClient, tmp_path: Path
) -> None:
    """Killed before the state was written: the cell comes again, and the server recognises it."""
    source, state = RecordedSite(site.block(), site.start_s + 1800), tmp_path / "state.json"
    results: Counter[str] = Counter()
    saved = ""
    for k in range(1, 18):
        source.clock_s = site.start_s + 1800 + k * 1100
        if k % 3 == 0 and saved:
            state.write_text(saved)
        elif state.exists():
            saved = state.read_text()
        for report in watcher(source, client, state).catch_up():
            results += report.results
    log = reported(client)
    assert results["duplicate"] > 0
    check_windows(site, log, SETTINGS.cell_s)
    assert len({each.observation_id for each in log}) == len(log) == results.total() - results["duplicate"]


def test_away_prometheus_or_server_costs_no_window(site: SimulatedSite, client: PolicyClient, tmp_path: Path) -> None:
    source, state = RecordedSite(site.block(), site.start_s + 7200), tmp_path / "state.json"
    source.away = True
    watching = watcher(source, client, state)
    with pytest.raises(UnavailableError):
        watching.catch_up()
    source.away = False
    with PolicyClient("127.0.0.1:1", timeout_s=0.5) as nobody, pytest.raises(UnavailableError):
        watcher(source, nobody, state).catch_up()
    assert reported(client) == []
    source.clock_s = site.end_s + 900
    watcher(source, client, state).catch_up()
    check_windows(site, reported(client), SETTINGS.cell_s)


def test_a_state_file_of_other_settings_or_a_damaged_one_is_refused(
    site: SimulatedSite, client: PolicyClient, tmp_path: Path
) -> None:
    source, state = RecordedSite(site.block(), site.start_s + 3600), tmp_path / "state.json"
    watcher(source, client, state).catch_up()
    document = json.loads(state.read_text())
    with pytest.raises(InvalidInputError, match="cell_s"):
        Watcher(source, client, MonitoringSettings(progress="x", cell_s=600.0), state, lookback_s=60.0)
    (names := tmp_path / "names.csv").write_text("pattern,workload\n^a,b\n")
    with pytest.raises(InvalidInputError, match="workloads"):
        Watcher(source, client, replace(SETTINGS, workloads=read_workload_map(names)), state, lookback_s=60.0)
    for text in ("{", "[]", json.dumps(document | {"format": 9}), json.dumps(document | {"facts": [1]})):
        state.write_text(text)
        with pytest.raises(InvalidInputError, match="cannot be read"):
            watcher(source, client, state)
