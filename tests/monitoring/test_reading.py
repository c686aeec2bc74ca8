"""Windows of constant company from samples: each once, none across a change, whatever monitoring misses."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from interfere.monitoring.company_windows import read_span
from interfere.monitoring.reading import CompanyWindow, read_cell
from interfere.monitoring.samples import SampleBlock
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from interfere.monitoring.watcher import progress_observations
from interfere.records import Progress
from tests.monitoring.simulated_site import SimulatedSite

SETTINGS = MonitoringSettings(progress="train_steps_total")


def windows_of(block: SampleBlock, settings: MonitoringSettings, start_s: float, end_s: float) -> list[CompanyWindow]:
    """Every window that a reader of all cells finds, each cell from its own span of samples alone."""
    labels = SiteLabels(settings, block.label_names)
    found: list[CompanyWindow] = []
    first, last = int(start_s // settings.cell_s), int(end_s // settings.cell_s)
    for k in range(first, last + 1):
        cell = k * settings.cell_s, (k + 1) * settings.cell_s
        found += read_cell(block.between(*read_span(cell, settings.min_window_s)), labels, settings, cell).windows
    return found


def check_windows(site: SimulatedSite, observations: Iterable[Progress], cell_s: float) -> None:
    """Each time of constant company of a minute or more is observed once for each job, none across a change."""
    observations = list(observations)
    assert len({each.observation_id for each in observations}) == len(observations)
    of_job: dict[tuple[str, str], list[Progress]] = {}
    for each in observations:
        of_job.setdefault((each.device_id, each.job_id), []).append(each)
    for spans in of_job.values():
        spans.sort(key=lambda each: each.start_s)
        assert all(a.end_s <= b.start_s for a, b in pairwise(spans))
    every = site.expected_windows(0.0)
    within = Counter()
    for each in observations:
        owners = [
            k
            for k, window in enumerate(every)
            if site.uuid(window.device) == each.device_id
            and window.start_s <= each.start_s
            and each.end_s <= window.end_s
            and each.job_id.removeprefix("ml/") in window.pods
            and len(each.company) == len(window.pods) - 1
        ]
        assert len(owners) == 1, f"across a change: {each}"
        within[owners[0], each.job_id] += 1
    workload = {pod.name: pod.workload for pod in site.pods}
    loads_until = {pod.name: pod.first_step_s for pod in site.pods}
    checked = 0
    for k, window in enumerate(every):
        stepping_s = max([window.start_s, *(loads_until[name] for name in window.pods)])
        if window.end_s - window.start_s < 60.0 or window.end_s - stepping_s < 60.0:
            continue
        cells = window.end_s // cell_s - window.start_s // cell_s
        for name in window.pods:
            count = within[k, f"ml/{name}"]
            assert 1 <= count <= 1 + cells, f"{count} observations of {name} ({workload[name]}) in {window}"
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cell_s", [600.0, 3600.0])
def test_each_time_of_constant_company_is_one_window_and_none_is_across_a_change(seed: int, cell_s: float) -> None:
    site = SimulatedSite(seed=seed, hours=6, devices=3)
    settings = MonitoringSettings(progress="train_steps_total", cell_s=cell_s)
    windows = windows_of(site.block(), settings, site.start_s, site.end_s)
    check_windows(site, progress_observations(windows, settings), cell_s)
    assert np.all([window.end_s > window.start_s for window in windows])
