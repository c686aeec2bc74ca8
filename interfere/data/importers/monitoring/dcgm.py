"""Imports DCGM exporter metrics of a site, from saved answers of Prometheus range queries.

Each job (a pod, or what a label `--by` names) gets a profile from the windows in which it held its device alone.
Windows shared by two jobs give slowdowns where a counter of training steps is in the same files. DCGM's metrics are
about the device: in a shared window they are no fact of either job, and their samples are only counted. Metrics and
units: NVIDIA, dcgm-exporter `default-counters.csv` and DCGM's `dcgm_fields.h`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.monitoring.colocation_windows import (
    ColocationWindow,
    colocation_windows,
    multi_device_jobs,
)
from interfere.data.importers.monitoring.prometheus import TimeSeries, json_files, read_time_series
from interfere.data.importers.monitoring.step_counters import (
    WindowProgress,
    mean_step_time,
    pair_measurements,
    progress_in_window,
)
from interfere.data.importers.strict_reading import fail_at_key, read_csv
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile
from interfere.records.checks import check, mode_violations

MIB = 2**20
# For each metric: the field of JobProfile, the factor to SI units or a share, and the highest valid value.
METRICS = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("busy_frac", 1.0, 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_frac", 1.0, 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_frac", 1.0, 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_frac", 1.0, 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_frac", 1.0, 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_frac", 0.01, 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_util_frac", 0.01, 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_peak_bytes", float(MIB), 1e16),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0, 1e5),
}
# Prometheus renames an exporter's label that the scrape sets too: the plain `pod` is then that of the exporter itself.
EXPORTED_PREFIX = "exported_"
PEAK_FIELD = "memory_peak_bytes"  # the highest sample counts; for all other fields it is the mean
# dcgm_structs.h: DCGM_INT64_BLANK, DCGM_INT32_BLANK and DCGM_FP64_BLANK, each followed by the codes of its reasons.
BLANK_RANGES = (
    (9223372036854775792.0, math.inf),
    (2147483632.0, 2147483647.0),
    (140737488355328.0, 140737488355335.0),
)
FORMAT_NOTES = (
    "profiles from windows in which a job held its device alone: means over samples, memory the highest of them",
    "the first and last sample of a window are left out: they may cover time with other jobs on the device",
    "two jobs on one device are seen only where the exporter labels each of them (dcgm-exporter: virtual GPUs)",
    "slowdown of a shared window = its time per step over the job's time per step alone; one pass a window",
)


@dataclass(slots=True)
class _SiteData:
    """All samples of a site, by device, time and job."""

    label_prefix: str  # of the labels that name jobs, on DCGM's metrics
    workload: dict[str, str] = field(default_factory=dict)  # by job
    device_type: dict[str, str] = field(default_factory=dict)  # by device
    product: dict[str, str] = field(default_factory=dict)  # the model name, by device
    jobs_at: dict[str, dict[float, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    values: dict[tuple[str, float, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    step_counters: dict[str, TimeSeries] = field(default_factory=dict)  # by job
    blank_values: int = 0
    idle_values: int = 0
    other_series: int = 0


def import_dcgm(
    path: Path,
    *,
    by: str = "pod",
    step_metric: str = "",
    rates: Path | None = None,
    device_type: str = "",
    mode: str = "timeslice",
) -> ImportResult:
    """Import profiles, and pairs where steps are counted.

    `by` is the label that names the workload, `step_metric` a counter of training steps, `rates` a CSV of solo step
    times. Raises TableError, which names file and key, or InvalidInputError.
    """
    if step_metric and rates:
        raise InvalidInputError(
            "step times come from a counter or from a file", value=f"{step_metric}, {rates}", remedy="give one of them"
        )
    # 1. Read all series.
    read = [read_time_series(file) for file in json_files(path)]
    check(mode_violations(mode))
    all_series = [series for file_series, _ in read for series in file_series]
    # 2. Sort their samples by device, time and job.
    site = _site_data(all_series, by, step_metric, device_type)
    if step_metric and not site.step_counters:
        raise InvalidInputError("no series of the step metric", value=step_metric, remedy="query it over the same time")
    if not site.values:
        raise TableError(
            f"{path.name}: no DCGM metric of any job",
            value=f"metrics such as {next(iter(METRICS))}, label {by!r}",
            remedy="query DCGM_FI_* over a time with jobs; name the label of jobs with --by",
        )
    # 3. Turn them into profiles and pairs.
    rates_file = read_csv(rates, ("workload", "step_time_s")) if rates else None
    given_step_times_s = (
        {row.text("workload"): row.number("step_time_s", low=1e-9) for row in rates_file.rows} if rates_file else {}
    )
    files = tuple(source for _, source in read) + ((rates_file.source,) if rates_file else ())
    return _import_site(site, mode, given_step_times_s, files)


def _site_data(all_series: Sequence[TimeSeries], by: str, step_metric: str, device_type: str) -> _SiteData:
    exported_label = EXPORTED_PREFIX + by
    has_exported = any(
        name == exported_label for series in all_series if series.name in METRICS for name, _ in series.labels
    )
    site = _SiteData(label_prefix=EXPORTED_PREFIX if has_exported else "")
    for series in all_series:
        if step_metric and series.name == step_metric:
            _add_step_counter(site, series, by)
        elif series.name in METRICS:
            _add_gauge(site, series, by, device_type)
        else:
            site.other_series += 1
    return site


def _job_of(site: _SiteData, series: TimeSeries, by: str, prefix: str) -> str:
    """The job of a series: its pod, else the value of its label `by`; empty where it has no such label."""
    workload = series.label(prefix + by)
    job = "/".join(filter(None, (series.label(f"{prefix}namespace"), series.label(f"{prefix}pod")))) or workload
    if not workload:
        return ""
    if site.workload.setdefault(job, workload) != workload:
        fail_at_key(
            series.path, (*series.keys, "metric", by), f"another value for {job}", workload, "query one label per job"
        )
    return job


def _add_step_counter(site: _SiteData, series: TimeSeries, by: str) -> None:
    prefix = EXPORTED_PREFIX if series.label(EXPORTED_PREFIX + by) else ""
    job = _job_of(site, series, by, prefix)
    if not job:
        fail_at_key(series.path, (*series.keys, "metric", by), "missing", "", "label the counter with its job")
    if job in site.step_counters:
        fail_at_key(series.path, series.keys, f"a second counter of {job}", series.name, "query one counter per job")
    site.step_counters[job] = series


def _add_gauge(site: _SiteData, series: TimeSeries, by: str, given_device_type: str) -> None:
    """Add the samples of one DCGM metric of one device."""
    # 1. Which device, and of which type.
    device = "/".join(filter(None, (series.label("UUID"), series.label("GPU_I_ID"))))
    if not series.label("UUID"):
        fail_at_key(series.path, (*series.keys, "metric", "UUID"), "missing", "", "keep the exporter's labels")
    product = series.label("modelName")
    device_type = given_device_type or device_type_of_product(product)
    if not device_type:
        fail_at_key(series.path, (*series.keys, "metric", "modelName"), "missing", "", "name it: --device a100")
    site.product[device] = product
    # A MIG instance is another device type than the whole GPU.
    site.device_type[device] = "-".join(filter(None, (device_type, series.label("GPU_I_PROFILE"))))
    # 2. Which value at which time, for which job.
    name, factor, maximum = METRICS[series.name]
    job = _job_of(site, series, by, site.label_prefix)
    for k, (time_s, raw) in enumerate(series.samples):
        if math.isnan(raw) or any(low <= raw <= high for low, high in BLANK_RANGES):
            site.blank_values += 1
            continue
        value = raw * factor
        place = (*series.keys, "values", str(k), "1")
        if not 0 <= value <= maximum * 1.01:  # profiling counters are estimates and may exceed 1 a little
            fail_at_key(series.path, place, "out of range", raw, "check the exporter")
        if not job:
            site.idle_values += 1
            continue
        site.jobs_at[device][time_s].add(job)
        sample = site.values[device, time_s, job]
        if sample.setdefault(name, min(value, maximum)) != min(value, maximum):
            problem = f"another value of {series.name} for the same device, job and time"
            fail_at_key(series.path, place, problem, raw, "give each sample once")


def _import_site(
    site: _SiteData, mode: str, given_step_times_s: dict[str, float], files: tuple[SourceFile, ...]
) -> ImportResult:
    # 1. Windows, without those that involve a job on several devices.
    samples = [(device, t, job) for device, times in site.jobs_at.items() for t, jobs in times.items() for job in jobs]
    gang_jobs = multi_device_jobs(samples)
    windows = [
        window
        for device, times in site.jobs_at.items()
        for window in colocation_windows(device, {t: frozenset(jobs) for t, jobs in times.items()})
    ]
    one_device = [window for window in windows if not window.jobs & gang_jobs]
    # 2. Profiles, from windows with one job.
    solo_windows = [window for window in one_device if len(window.jobs) == 1]
    jobs, step_time_source = _profiles(site, solo_windows, given_step_times_s)
    if not jobs:
        raise TableError(
            f"{files[0].path.name}: no job ever held a device alone for three samples",
            value=f"{len(samples)} samples of {len(site.workload)} jobs",
            remedy="query a longer time, or a finer step",
        )
    # 3. Pairs, from windows with two jobs.
    solo_times_s = {(job.workload, job.device_type): job.step_time_s for job in jobs}
    shared_windows = [window for window in one_device if len(window.jobs) == 2]
    passes, without_slowdown = _slowdowns(site, shared_windows, solo_times_s)
    pairs = pair_measurements(
        passes,
        mode=mode,
        campaign=files[0].campaign,
        product_of={site.device_type[device]: product for device, product in site.product.items()},
        measured_at_s=max(time_s for _, time_s, _ in samples),
    )
    return ImportResult(
        source_format="dcgm",
        files=files,
        format_notes=(*FORMAT_NOTES, f"sharing mode: {mode}, as named in the command; step times: {step_time_source}"),
        jobs=jobs,
        pairs=pairs,
        notices=_notices(site, jobs, samples, windows, gang_jobs, without_slowdown),
    )


def _notices(
    site: _SiteData,
    jobs: Sequence[JobProfile],
    samples: Sequence[tuple[str, float, str]],
    windows: Sequence[ColocationWindow],
    gang_jobs: frozenset[str],
    without_slowdown: int,
) -> tuple[Notice, ...]:
    one_device = [window for window in windows if not window.jobs & gang_jobs]
    shared_samples = Counter(
        " + ".join(sorted(site.workload[job] for job in window.jobs))
        for window in one_device
        if len(window.jobs) == 2
        for _ in window.times_s
    )
    window_samples = sum(len(window.times_s) for window in windows)
    return nonempty_notices(
        Notice(
            treatment=Treatment.FLAGGED,
            subject="profiles without a step time",
            count=sum(math.isnan(job.step_time_s) for job in jobs),
            reason="no counter of steps (--step-metric) and no --rates: they hold only what monitoring measures",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="samples of two jobs on one device",
            count=shared_samples.total(),
            reason="; ".join(f"{names}: {count}" for names, count in shared_samples.most_common(20)),
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="sides of shared windows without a slowdown",
            count=without_slowdown,
            reason="a job was never seen alone, or its counter is missing, stood still or restarted",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="samples of three jobs or more on one device",
            count=sum(len(window.times_s) for window in one_device if len(window.jobs) > 2),
            reason="a row is about a pair",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="samples beside or of a job on several devices",
            count=sum(len(window.times_s) for window in windows if window.jobs & gang_jobs),
            reason="its steps are not those of one device: " + ", ".join(sorted(gang_jobs)[:10]),
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="samples at the edge of a window, or in one of under three",
            count=len({(device, time_s) for device, time_s, _ in samples}) - window_samples,
            reason="they may cover time with other jobs on the device",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="values without a job",
            count=site.idle_values,
            reason="the device was idle",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="blank values",
            count=site.blank_values,
            reason="NaN, or DCGM's code for no value",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="series of other metrics",
            count=site.other_series,
            reason="not a field of a profile",
        ),
    )


def _profiles(
    site: _SiteData, solo_windows: Sequence[ColocationWindow], given_step_times_s: dict[str, float]
) -> tuple[tuple[JobProfile, ...], str]:
    """The profiles of all workloads that were seen alone, and the source of their step times in words."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    progress: dict[tuple[str, str], list[WindowProgress]] = defaultdict(list)
    for window in solo_windows:
        (job,) = window.jobs
        key = (site.workload[job], site.device_type[window.device])
        fields = samples.setdefault(key, defaultdict(list))
        for time_s in window.times_s:
            for name, value in site.values[window.device, time_s, job].items():
                fields[name].append(value)
        if job in site.step_counters and (in_window := progress_in_window(site.step_counters[job], window)):
            progress[key].append(in_window)
    jobs = []
    for (workload, device_type), fields in samples.items():
        step_time_s, sd_s = mean_step_time(progress[workload, device_type])
        facts: dict[str, Any] = {
            name: max(values) if name == PEAK_FIELD else fmean(values) for name, values in fields.items()
        }
        facts |= {"step_time_s": given_step_times_s.get(workload, step_time_s), "step_time_sd_s": sd_s}
        jobs.append(JobProfile(workload=workload, device_type=device_type, source="dcgm", **facts))
    source = "a file of rates" if given_step_times_s else "a counter" if site.step_counters else "none"
    return tuple(jobs), source


def _slowdowns(
    site: _SiteData, shared_windows: Sequence[ColocationWindow], solo_times_s: dict[tuple[str, str], float]
) -> tuple[dict[tuple[str, str, str], list[float]], int]:
    """Slowdowns by (victim, neighbour, device type), one per window and side; and the number of sides without one."""
    passes: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    without_slowdown = 0
    for window in shared_windows:
        device_type = site.device_type[window.device]
        jobs = sorted(window.jobs)
        workloads = [site.workload[job] for job in jobs]
        slowdowns = []
        for job, workload in zip(jobs, workloads, strict=True):
            progress = progress_in_window(site.step_counters[job], window) if job in site.step_counters else None
            solo_s = solo_times_s.get((workload, device_type), NAN)
            slowdowns.append(progress.step_time_s / solo_s if progress else NAN)
        both_profiled = all((workload, device_type) in solo_times_s for workload in workloads)
        # A self pair is one row in which both sides alternate: a side without the other would shift them.
        is_self_pair = workloads[0] == workloads[1]
        usable = both_profiled and not (is_self_pair and any(map(math.isnan, slowdowns)))
        for side, slowdown in enumerate(slowdowns):
            if math.isnan(slowdown) or not usable:
                without_slowdown += 1
            else:
                passes[workloads[side], workloads[1 - side], device_type].append(slowdown)
    return passes, without_slowdown
