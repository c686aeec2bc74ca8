"""Audits of the wrong thing: a gauge, a mistyped name, labels that join nothing. They end and say what is there."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.monitoring.audit.audit import audit
from interfere.monitoring.progress_check import ProgressCounts, ProgressError, check_progress, count_progress
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings
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


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("gauge", "no counter: it falls in"),
        ("queue", "no counter: it falls in"),
        ("constant", "never changes"),
        ("other labels", "belongs to a job on a device"),
        ("nothing", "nothing was recorded under this name"),
    ],
)
def test_what_is_no_counter_of_the_jobs_is_refused(site: SimulatedSite, kind: str, part: str) -> None:
    source = RecordedSite(changed(site, kind), site.end_s)
    with pytest.raises(ProgressError, match=part):
        audit(source, MonitoringSettings(progress=STEPS), site.start_s, site.end_s)


def test_labels_that_differ_are_shown_and_the_remedy_joins_them(site: SimulatedSite) -> None:
    source = RecordedSite(changed(site, "other labels"), site.end_s)
    with pytest.raises(ProgressError, match="k8s_pod=") as refused:
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
