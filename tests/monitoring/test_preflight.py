"""Audits and watchers of the wrong thing: a gauge, a mistyped name, labels that join nothing. They end, and say what
is there."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.monitoring.audit.audit import audit
from interfere.monitoring.preflight import PreflightError, ProgressCounts, check_progress, count_progress
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.watcher import Watcher
from tests.monitoring.recorded_site import RecordedSite
from tests.monitoring.saved_site import write_answers
from tests.monitoring.simulated_site import SimulatedSite

STEPS = "train_steps_total"


@pytest.fixture(scope="module")
def site() -> SimulatedSite:
    return SimulatedSite(seed=3, hours=4, devices=2)


def changed(site: SimulatedSite, kind: str) -> SampleBlock:
    """The site's samples, with the progress of its jobs replaced by something else."""
    rng, block = np.random.default_rng(0), site.block()
    if kind == "gauge":
        progress = [replace(each, values=rng.uniform(0.0, 100.0, len(each.values))) for each in block.progress]
    elif kind == "queue":  # a gauge that is often 0
        progress = [replace(each, values=rng.poisson(0.7, len(each.values)).astype(float)) for each in block.progress]
    elif kind == "constant":
        progress = [replace(each, values=np.full(len(each.values), 7.0)) for each in block.progress]
    elif kind == "clock":  # seconds since the job began
        progress = [
            replace(each, values=each.times_s - each.times_s[0]) for each in block.progress if len(each.times_s)
        ]
    elif kind == "other labels":
        progress = [
            replace(each, labels={"__name__": STEPS, "k8s_pod": each.labels["pod"], "pod": f"x-{k}"})
            for k, each in enumerate(block.progress)
        ]
    elif kind == "nothing":
        progress = []
    else:
        progress = list(block.progress)
    return SampleBlock(device=block.device, progress=tuple(progress))


WRONG = pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("gauge", "no counter: it falls in"),
        ("queue", "no counter: it falls in"),
        ("constant", "never changes"),
        ("clock", "this counts time"),
        ("other labels", "belongs to a job on a device"),
        ("nothing", "nothing was recorded under this name"),
    ],
)


@WRONG
def test_what_is_no_counter_of_the_jobs_is_refused(site: SimulatedSite, kind: str, part: str) -> None:
    source = RecordedSite(changed(site, kind), site.end_s)
    with pytest.raises(PreflightError, match=part):
        audit(source, MonitoringSettings(progress=STEPS), site.start_s, site.end_s)


@WRONG
def test_a_watcher_of_what_is_no_counter_ends_and_nothing_is_sent(
    site: SimulatedSite, tmp_path: Path, kind: str, part: str
) -> None:
    with pytest.raises(PreflightError, match=part):
        watcher(RecordedSite(changed(site, kind), site.end_s), tmp_path / "state.json").catch_up()


def test_a_label_that_no_device_has_is_refused_by_both_and_those_that_exist_are_named(
    site: SimulatedSite, tmp_path: Path
) -> None:
    source, settings = RecordedSite(site.block(), site.end_s), MonitoringSettings(progress=STEPS, by="namespace+nmae")
    with pytest.raises(PreflightError, match="has this label: nmae") as refused:
        audit(source, settings, site.start_s, site.end_s)
    assert "pod" in refused.value.remedy
    with pytest.raises(PreflightError, match="has this label: nmae"):
        watcher(source, tmp_path / "state.json", settings).catch_up()


def test_a_watcher_passes_over_idle_time_and_waits_for_enough_of_the_progress_of_jobs(
    site: SimulatedSite, client: PolicyClient, tmp_path: Path
) -> None:
    source, state = RecordedSite(SampleBlock(), site.end_s), tmp_path / "state.json"
    assert all(report.windows == 0 for report in watcher(source, state, sink=client).catch_up())
    state.unlink()
    few = site.block().between(site.start_s + 3600, site.start_s + 3690)
    source = RecordedSite(SampleBlock(device=few.device), site.start_s + 3600 + 1500)
    watching = watcher(source, state, sink=client)
    assert all(report.windows == 0 for report in watching.catch_up()), "too little to tell"
    source.block = changed(site, "nothing")
    with pytest.raises(PreflightError, match="nothing was recorded"):
        watching.catch_up()


def test_what_was_seen_to_fit_is_not_asked_again_where_jobs_stand_still(
    site: SimulatedSite, client: PolicyClient, tmp_path: Path
) -> None:
    state, middle_s = tmp_path / "state.json", site.start_s + 7200
    assert watcher(RecordedSite(site.block(), middle_s), state, sink=client).catch_up()
    stopped = SampleBlock(device=site.block().device, progress=site.block().between(0, middle_s - 3600).progress)
    assert watcher(RecordedSite(stopped, site.end_s), state, sink=client).catch_up()


def test_labels_that_differ_are_shown_and_the_remedy_joins_them(site: SimulatedSite) -> None:
    source = RecordedSite(changed(site, "other labels"), site.end_s)
    with pytest.raises(PreflightError, match="k8s_pod=") as refused:
        audit(source, MonitoringSettings(progress=STEPS), site.start_s, site.end_s)
    assert "--same-label" in refused.value.remedy
    joined = MonitoringSettings(progress=STEPS, label_map=(("pod", "k8s_pod"),))
    assert audit(source, joined, site.start_s, site.end_s).estimates


def test_a_counter_whose_jobs_restart_is_one_and_a_reading_without_progress_is_not_checked(site: SimulatedSite) -> None:
    assert any((np.diff(each.values) < 0).any() for each in site.block().progress), "jobs restart"
    source = RecordedSite(site.block(), site.end_s)
    assert audit(source, MonitoringSettings(progress=STEPS), site.start_s, site.end_s).estimates
    assert audit(source, MonitoringSettings(), site.start_s, site.end_s).busy_hours > 0


def test_a_gauge_of_steps_per_second_is_an_expression_and_may_fall(site: SimulatedSite) -> None:
    settings = MonitoringSettings(progress="avg by (namespace, pod) (steps_per_second)")
    source = RecordedSite(changed(site, "gauge"), site.end_s)
    assert math.isfinite(audit(source, settings, site.start_s, site.end_s).busy_hours)


def test_counts_of_two_spans_add_up() -> None:
    def series(values: list[float]) -> SampleSeries:
        return SampleSeries.from_samples("s", {"pod": "p"}, np.arange(len(values), dtype=float), np.array(values))

    both = count_progress([series([1, 2, 2, 0])], [series([1])]) + count_progress([series([0, 5])], [])
    assert both == ProgressCounts(series=3, joined=2, rises=2, falls=1, unjoined=('pod="p"',))
    assert both.falling == pytest.approx(1 / 3)
    check_progress(both, MonitoringSettings(progress="s"), "")  # too few changes to call it a gauge


def watcher(
    source: RecordedSite,
    state: Path,
    settings: MonitoringSettings = MonitoringSettings(progress=STEPS),  # noqa: B008 - frozen
    *,
    sink: PolicyClient | None = None,
    cell_s: float = 900.0,
) -> Watcher:
    """A watcher of the last four hours; without a sink, one whose server is unreachable."""
    sink = sink or PolicyClient("127.0.0.1:1", timeout_s=0.5)
    return Watcher(source, sink, replace(settings, cell_s=cell_s), state, lookback_s=4 * 3600)


@pytest.mark.parametrize(("kind", "name"), [("gauge", STEPS), ("right", "train_step_total")])
def test_the_command_ends_with_status_2_and_names_what_is_there(
    site: SimulatedSite, tmp_path: Path, kind: str, name: str
) -> None:
    folder = write_answers(tmp_path / "saved", changed(site, kind))
    command = [sys.executable, "-m", "interfere", "audit", "--from-files", str(folder), "--progress", name]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240, check=False)
    assert ran.returncode == 2
    assert STEPS in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "audit.html").exists()


@pytest.mark.parametrize(
    "name",
    ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "container_cpu_usage_seconds_total", "step_time_ms_total", "gpu_joules"],
)
def test_counters_of_time_or_energy_are_refused_by_their_names_and_an_expression_overrides(name: str) -> None:
    right = ProgressCounts(series=4, joined=4, rises=400, others=4)
    with pytest.raises(PreflightError, match="counts no work of a job"):
        check_progress(right, MonitoringSettings(progress=name + "{x='y'}"), "")
    rates = ProgressCounts(series=4, joined=4, rises=200, falls=200, others=4)
    check_progress(rates, MonitoringSettings(progress=f"rate({name}[1m])"), "")
    with pytest.raises(PreflightError, match="no steps per second"):
        check_progress(right, MonitoringSettings(progress=f"sum by (pod) ({name})"), "")


def test_equal_pods_of_two_clusters_in_one_prometheus_are_two_jobs(site: SimulatedSite) -> None:
    """Each cluster's slowdowns are those that it has by itself: no series is joined to a job of the other."""

    def of_cluster(name: str, every: tuple[SampleSeries, ...]) -> tuple[SampleSeries, ...]:
        return tuple(
            replace(
                each,
                labels=dict(each.labels)
                | {"cluster": name}
                | ({"UUID": name + each.labels["UUID"]} if "UUID" in each.labels else {}),
            )
            for each in every
        )

    block, settings = site.block(), MonitoringSettings(progress=STEPS)
    both = SampleBlock(
        device=of_cluster("a", block.device) + of_cluster("b", block.device),
        progress=of_cluster("a", block.progress) + of_cluster("b", block.progress),
    )
    one = audit(RecordedSite(block, site.end_s), settings, site.start_s, site.end_s)
    two = audit(RecordedSite(both, site.end_s), settings, site.start_s, site.end_s)
    assert (two.jobs, two.devices, two.windows) == (2 * one.jobs, 2 * one.devices, 2 * one.windows)
    assert two.busy_hours == pytest.approx(2 * one.busy_hours)
    assert dict(two.left_out) == {name: 2 * count for name, count in one.left_out}
