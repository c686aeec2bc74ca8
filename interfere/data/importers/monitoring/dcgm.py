"""Imports DCGM exporter metrics of a site, from saved answers of Prometheus range queries.

Each workload (pods of one owner, or what a label `--by` names) gets a profile from the windows in which one of its jobs
held a device alone.
Windows shared by two jobs give slowdowns where a counter of training steps is in the same files. DCGM's metrics are
about the device: in a shared window they are no fact of either job, and their samples are only counted. Metrics and
units: NVIDIA, dcgm-exporter `default-counters.csv` and DCGM's `dcgm_fields.h`.

`step_time = Σ time / Σ steps` over the windows in which a job held a device alone; the slowdown of a shared window is
its time per step over that.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, dropped, flagged
from interfere.data.importers.monitoring.prometheus import json_files, read_time_series
from interfere.data.importers.monitoring.site_samples import (
    BY_WORKLOAD,
    METRICS,
    SampledWindow,
    SiteSamples,
    colocation_windows,
    multi_device_jobs,
    sort_samples,
)
from interfere.data.importers.strict_reading import read_csv
from interfere.errors import InvalidInputError, TableError
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode, parse_sharing_mode

PEAK_FIELD = "memory_peak_bytes"  # the highest sample counts; for all other fields it is the mean
FORMAT_NOTES = (
    "profiles from windows in which a job held its device alone: means over samples, memory the highest of them",
    "the first and last sample of a window are left out: they may cover time with other jobs on the device",
    "two jobs on one device are seen only where the exporter labels each of them (dcgm-exporter: virtual GPUs)",
    "slowdown of a shared window = its time per step over the job's time per step alone; one pass a window",
)


def import_dcgm(
    path: Path,
    *,
    by: str = BY_WORKLOAD,
    step_metric: str = "",
    rates: Path | None = None,
    device_type: str = "",
    mode: SharingMode = SharingMode.TIMESLICE,
) -> ImportResult:
    """Import profiles, and pairs where steps are counted.

    `by` is the label that names the workload, or BY_WORKLOAD: the pod's name without what Kubernetes appended to it.
    `step_metric` is a counter of training steps, `rates` a CSV of solo step times. Raises TableError, which names file
    and key, or InvalidInputError.
    """
    if step_metric and rates:
        raise InvalidInputError(
            "step times come from a counter or from a file", value=f"{step_metric}, {rates}", remedy="give one of them"
        )
    mode = parse_sharing_mode(mode)
    # 1. Read all series.
    read = [read_time_series(file) for file in json_files(path)]
    all_series = [series for file_series, _ in read for series in file_series]
    # 2. Sort their samples by device, time and job.
    site = sort_samples(all_series, by, step_metric, device_type)
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


def _import_site(
    site: SiteSamples, mode: SharingMode, given_step_times_s: dict[str, float], files: tuple[SourceFile, ...]
) -> ImportResult:
    # 1. Find windows. Leave out windows with a job on several devices.
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
    product_of = {site.device_type[device]: product for device, product in site.product.items()}
    measured_at_s = max(time_s for _, time_s, _ in samples)
    make = partial(_pair, mode=mode, campaign=files[0].campaign, measured_at_s=measured_at_s)
    pairs = tuple(make(names, values, product=product_of.get(names[2], "")) for names, values in passes.items())
    return ImportResult(
        source_format="dcgm",
        files=files,
        format_notes=(*FORMAT_NOTES, f"sharing mode: {mode}, as named in the command; step times: {step_time_source}"),
        jobs=jobs,
        pairs=pairs,
        notices=_notices(site, jobs, samples, windows, gang_jobs, without_slowdown),
    )


def _notices(
    site: SiteSamples,
    jobs: Sequence[JobProfile],
    samples: Sequence[tuple[str, float, str]],
    windows: Sequence[SampledWindow],
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
    pairs_seen = "; ".join(f"{names}: {count}" for names, count in shared_samples.most_common(20))
    return (
        flagged(
            sum(math.isnan(job.step_time_s) for job in jobs),
            "profiles without a step time",
            "no counter of steps (--step-metric) and no --rates: they hold only what monitoring measures",
        ),
        flagged(shared_samples.total(), "samples of two jobs on one device", pairs_seen),
        dropped(
            without_slowdown,
            "sides of shared windows without a slowdown",
            "a job was never seen alone, or its counter is missing, stood still or restarted",
        ),
        dropped(
            sum(len(window.times_s) for window in one_device if len(window.jobs) > 2),
            "samples of three jobs or more on one device",
            "a row is about a pair",
        ),
        dropped(
            sum(len(window.times_s) for window in windows if window.jobs & gang_jobs),
            "samples beside or of a job on several devices",
            "its steps are not those of one device: " + ", ".join(sorted(gang_jobs)[:10]),
        ),
        dropped(
            len({(device, time_s) for device, time_s, _ in samples}) - window_samples,
            "samples at the edge of a window, or in one of under three",
            "they may cover time with other jobs on the device",
        ),
        dropped(site.idle_values, "values without a job", "the device was idle"),
        dropped(site.blank_values, "blank values", "NaN, or DCGM's code for no value"),
        dropped(site.other_series, "series of other metrics", "not a field of a profile"),
    )


def _profiles(
    site: SiteSamples, solo_windows: Sequence[SampledWindow], given_step_times_s: dict[str, float]
) -> tuple[tuple[JobProfile, ...], str]:
    """Return the profiles of all workloads that were seen alone on a device, and where their step times are from."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    progress: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    ends_s: dict[tuple[str, str], float] = defaultdict(float)
    for window in solo_windows:
        (job,) = window.jobs
        key = (site.workload[job], site.device_type[window.device])
        ends_s[key] = max(ends_s[key], window.times_s[-1])
        fields = samples.setdefault(key, defaultdict(list))
        for time_s in window.times_s:
            for name, value in site.values[window.device, time_s, job].items():
                fields[name].append(value)
        progress[key] += filter(None, [_progress(site, job, window)])
    jobs = []
    for (workload, device_type), fields in samples.items():
        facts: dict[str, Any] = {
            name: max(values) if name == PEAK_FIELD else fmean(values) for name, values in fields.items()
        }
        step_time_s, facts["step_time_sd_s"] = _mean_step_time(progress[workload, device_type])
        facts["step_time_s"] = given_step_times_s.get(workload, step_time_s)
        facts["measured_at_s"] = ends_s[workload, device_type]
        jobs.append(JobProfile(workload=workload, device_type=device_type, source="dcgm", **facts))
    source = "a file of rates" if given_step_times_s else "a counter" if site.step_counters else "none"
    return tuple(jobs), source


def _slowdowns(
    site: SiteSamples, shared_windows: Sequence[SampledWindow], solo_times_s: dict[tuple[str, str], float]
) -> tuple[dict[tuple[str, str, str], list[float]], int]:
    """Return slowdowns by (victim, neighbour, device type), one per shared window and job.

    The second value is the number of jobs in shared windows that have no slowdown.
    """
    passes: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    without_slowdown = 0
    for window in shared_windows:
        device_type = site.device_type[window.device]
        workloads, slowdowns = [], []
        for job in sorted(window.jobs):
            workloads.append(site.workload[job])
            time_s, steps = _progress(site, job, window) or (NAN, 1.0)
            slowdowns.append(time_s / steps / solo_times_s.get((workloads[-1], device_type), NAN))
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


def _progress(site: SiteSamples, job: str, window: SampledWindow) -> tuple[float, float] | None:
    """Return the seconds and the steps of a job in a window, by its step counter.

    None where the job has no counter, or it has under two samples in the window, restarted, or stood still.
    """
    counter = site.step_counters.get(job)
    samples = [
        (time_s, value)
        for time_s, value in (counter.samples if counter else ())
        if window.times_s[0] <= time_s <= window.times_s[-1] and not math.isnan(value)
    ]
    if len(samples) < 2 or any(after < before for (_, before), (_, after) in pairwise(samples)):
        return None
    steps = samples[-1][1] - samples[0][1]
    return (samples[-1][0] - samples[0][0], steps) if steps > 0 else None


def _mean_step_time(progress: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean time of one step over windows, and its standard deviation between them; NaN if unknown.

    `progress` holds the seconds and the steps of each window.
    """
    if not progress:
        return NAN, NAN
    mean_s = math.fsum(time_s for time_s, _ in progress) / math.fsum(steps for _, steps in progress)
    return mean_s, stdev([time_s / steps for time_s, steps in progress]) if len(progress) > 1 else NAN


def _pair(
    names: tuple[str, str, str],
    slowdowns: Sequence[float],
    *,
    mode: SharingMode,
    campaign: str,
    product: str,
    measured_at_s: float,
) -> PairMeasurement:
    """Return the row of one (victim, neighbour, device type) from the slowdowns of its windows.

    A slowdown outside the range of a record marks the row as unstable.
    """
    slowdown = math.prod(slowdowns) ** (1 / len(slowdowns))
    in_range = MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN
    return PairMeasurement(
        victim=names[0],
        neighbour=names[1],
        device_type=names[2],
        mode=mode,
        slowdown=slowdown if in_range else NAN,
        passes=tuple(slowdowns),
        status=PairStatus.OK if in_range else PairStatus.UNSTABLE,
        reason="" if in_range else f"slowdown {slowdown:g}: the counter or the time alone is of another run",
        source="dcgm",
        campaign=campaign,
        device_name=product,
        measured_at_s=measured_at_s,
    )
