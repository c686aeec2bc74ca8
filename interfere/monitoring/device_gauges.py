"""Gauges of devices over windows: facts of a job where it was alone, or where the exporter tells processes apart.

dcgm-exporter repeats a device's value for every pod on it, unless it was told to attribute values to processes. So in
company only memory is a fact of a job, and only where the jobs on the device have different values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.importers.monitoring.site_samples import BLANK_RANGES, METRICS
from interfere.monitoring.job_progress import Interval
from interfere.monitoring.samples import Floats, SampleSeries

MEMORY = "memory_peak_bytes"
PROCESS_LABEL = "pid"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSummary:
    """One gauge over a window: number of samples, their sum, the largest."""

    samples: int
    total: float
    largest: float


def gauges_of_job(series: Sequence[SampleSeries], part: Interval) -> dict[str, GaugeSummary]:
    """Gauges over a window by field of JobProfile, without its first sample, which may cover time before it.

    Values of several processes of the job are added up.
    """
    found: dict[str, GaugeSummary] = {}
    for each in series:
        if each.name not in METRICS:
            continue
        name, factor, maximum = METRICS[each.name]
        values = np.clip(_without_blanks(each.between(*part).values[1:]) * factor, 0.0, maximum)
        if not len(values):
            continue
        before = found.get(name) if PROCESS_LABEL in each.labels else None
        found[name] = GaugeSummary(
            samples=max(len(values), before.samples if before else 0),
            total=float(values.sum()) + (before.total if before else 0.0),
            largest=float(values.max()) + (before.largest if before else 0.0),
        )
    return found


def memory_in_company(of_jobs: Mapping[str, Mapping[str, GaugeSummary]]) -> dict[str, dict[str, GaugeSummary]]:
    """The memory of each job of a shared window, by job id; empty where all have the value of the device."""
    memory = {job_id: gauges[MEMORY] for job_id, gauges in of_jobs.items() if MEMORY in gauges}
    if len(memory) < len(of_jobs) or len({gauge.total for gauge in memory.values()}) < 2:
        return {}
    return {job_id: {MEMORY: gauge} for job_id, gauge in memory.items()}


def _without_blanks(values: Floats) -> Floats:
    for low, high in BLANK_RANGES:
        values = values[(values < low) | (values > high)]
    return values
