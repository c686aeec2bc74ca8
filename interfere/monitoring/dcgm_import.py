"""Imports DCGM exporter metrics of a site, from saved answers of Prometheus range queries.

Each workload (pods of one owner, or what a label `--by` names) gets a profile from the windows in which one of its jobs
held a device alone. Windows shared by two jobs give slowdowns where a counter of training steps is in the same files.
DCGM's metrics are about the device: in a shared window they are no fact of either job, and their samples are counted.

A window is a stretch of time in which the same jobs held a device, without its first and last sample: the value of a
sample covers time before it, when other jobs may have held the device. A gap in the samples ends a stretch.

`step_time = Σ time / Σ steps` over the windows in which a job held a device alone; the slowdown of a shared window is
its time per step over that.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import stdev

from interfere.data.importers.import_result import ImportResult, Notice, dropped, flagged
from interfere.data.importers.strict_reading import fail_at_key, read_csv
from interfere.errors import InvalidInputError, TableError
from interfere.monitoring.company_windows import stretches
from interfere.monitoring.dcgm import BLANK_RANGES, BY_WORKLOAD, METRICS
from interfere.monitoring.job_progress import JobProgress, progress_of_job
from interfere.monitoring.reading import (
    CompanyWindow,
    DeviceSamples,
    JobInWindow,
    gauges_of_job,
    jobs_on_several_devices,
    samples_by_device,
)
from interfere.monitoring.saved_answers import TimeSeries, json_files, merged_series, read_time_series
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import JobIdentity, SiteLabels
from interfere.monitoring.watcher import SoloFacts
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode, parse_sharing_mode

FORMAT_NOTES = (
    "profiles from windows in which a job held its device alone: means over samples, memory the highest of them",
    "the first and last sample of a window are left out: they may cover time with other jobs on the device",
    "two jobs on one device are seen only where the exporter labels each of them (dcgm-exporter: virtual GPUs)",
    "slowdown of a shared window = its time per step over the job's time per step alone; one pass a window",
)
PairKey = tuple[str, str, str]  # victim, neighbour, device type


SAMPLES_OF_PAIRS = "samples of two jobs on one device"
# What is counted as left out, and why.
SIDES = "sides of shared windows without a slowdown"
CROWDED = "samples of three jobs or more on one device"
GANGS = "samples beside or of a job on several devices"
EDGES = "samples at the edge of a window, or in one of under three"
IDLE, BLANK, OTHERS = "values without a job", "blank values", "series of other metrics"
WHY_LEFT_OUT = {
    SIDES: "a job was never seen alone, or its counter is missing, stood still or restarted",
    CROWDED: "a row is about a pair",
    GANGS: "its steps are not those of one device: ",  # and which jobs
    EDGES: "they may cover time with other jobs on the device",
    IDLE: "the device was idle",
    BLANK: "NaN, or DCGM's code for no value",
    OTHERS: "not a field of a profile",
}


def import_dcgm(
    path: Path,
    *,
    by: str = BY_WORKLOAD,
    step_metric: str = "",
    rates: Path | None = None,
    device_type: str = "",
    mode: SharingMode = SharingMode.TIMESLICE,
) -> ImportResult:
    """Import the profiles of a site's workloads, and pairs where training steps are counted.

    `by` is the label that names the workload, or BY_WORKLOAD: the pod's name without what Kubernetes appended.
    `step_metric` is a counter of training steps, `rates` a CSV of step times alone. Raises TableError, which names file
    and key, or InvalidInputError.
    """
    if step_metric and rates:
        raise InvalidInputError(
            "step times come from a counter or from a file", value=f"{step_metric}, {rates}", remedy="give one of them"
        )
    settings = MonitoringSettings(by=by, device_type=device_type, mode=parse_sharing_mode(mode))
    # 1. Read all series, and check them value by value.
    read = [read_time_series(file) for file in json_files(path)]
    every = [series for file_series, _ in read for series in file_series]
    gauges = [series for series in every if series.name in METRICS]
    steps = [series for series in every if step_metric and series.name == step_metric]
    left_out = Counter({OTHERS: len(every) - len(gauges) - len(steps)})
    labels = SiteLabels(settings, {name for series in gauges for name, _ in series.labels})
    _check_gauges(gauges, labels, left_out)
    counters = _counters(steps, SiteLabels(settings, {name for series in steps for name, _ in series.labels}))
    # 2. Sort their samples by device, time and job.
    devices, job_of_series = samples_by_device(merged_series(gauges), labels, Counter())
    if step_metric and not counters:
        raise InvalidInputError("no series of the step metric", value=step_metric, remedy="query it over the same time")
    if not job_of_series:
        raise TableError(
            f"{path.name}: no DCGM metric of any job",
            value=f"metrics such as {next(iter(METRICS))}, label {by!r}",
            remedy="query DCGM_FI_* over a time with jobs; name the label of jobs with --by",
        )
    # 3. Find windows, and turn them into profiles and pairs.
    for device in devices:
        device.stretches = stretches(device.times_s, device.idle_times_s, same_scrape=0.0)
    gang_jobs, samples_of_pairs = jobs_on_several_devices(devices), Counter[str]()
    by_size: dict[int, list[CompanyWindow]] = defaultdict(list)  # windows by the number of their jobs
    identities = {job.id: job for job in job_of_series.values()}
    for window, samples in _windows(devices, identities, counters, gang_jobs, left_out):
        by_size[len(window.jobs)].append(window)
        if len(window.jobs) == 2:
            samples_of_pairs[" + ".join(sorted(member.job.workload for member in window.jobs))] += samples
        elif len(window.jobs) > 2:
            left_out[CROWDED] += samples
    rates_file = read_csv(rates, ("workload", "step_time_s")) if rates else None
    given = {row.text("workload"): row.number("step_time_s", low=1e-9) for row in rates_file.rows} if rates_file else {}
    jobs = _profiles(by_size[1], given)
    if not jobs:
        raise TableError(
            f"{path.name}: no job ever held a device alone for three samples",
            value=f"{len(devices)} devices, {len(set(job_of_series.values()))} jobs",
            remedy="query a longer time, or a finer step",
        )
    passes = _slowdowns(by_size[2], jobs, left_out)
    files = tuple(source for _, source in read) + ((rates_file.source,) if rates_file else ())
    product_of = {device.identity.type: device.identity.product for device in devices}
    measured_at_s = max(device.stretches[-1].end_s for device in devices if device.stretches)
    make = partial(_pair, mode=settings.mode, campaign=files[0].campaign, measured_at_s=measured_at_s)
    step_time_source = "a file of rates" if given else "a counter" if counters else "none"
    return ImportResult(
        source_format="dcgm",
        files=files,
        format_notes=(
            *FORMAT_NOTES,
            f"sharing mode: {settings.mode}, as named in the command; step times: {step_time_source}",
        ),
        jobs=jobs,
        pairs=tuple(make(key, slowdowns, product=product_of[key[2]]) for key, slowdowns in passes.items()),
        notices=_notices(jobs, samples_of_pairs, gang_jobs, left_out),
    )


# --- checks of the files ----------------------------------------------------------------------------------------------


def _check_gauges(every: Sequence[TimeSeries], labels: SiteLabels, left_out: Counter[str]) -> None:
    """Count values that are blank or of no job in `left_out`. Raises TableError for a series or value that is wrong."""
    workload_of: dict[str, str] = {}
    value_of: dict[tuple[str, str, str, float], float] = {}
    for series in every:
        # 1. The device and the job of the series.
        samples = series.without_nan()
        device, job = labels.device(samples), labels.job(samples)
        if device is None:
            fail_at_key(series.path, (*series.keys, "metric", "UUID"), "missing", "", "keep the exporter's labels")
        if not device.type:
            remedy = "name it: --device-type a100"
            fail_at_key(series.path, (*series.keys, "metric", "modelName"), "missing", "", remedy)
        if job is not None and workload_of.setdefault(job.id, job.workload) != job.workload:
            problem = f"another value for {job.id}"
            fail_at_key(series.path, (*series.keys, "metric"), problem, job.workload, "query one label per job")
        # 2. Its values.
        _, factor, maximum = METRICS[series.name]
        for k, (time_s, value) in enumerate(series.samples):
            place = (*series.keys, "values", str(k), "1")
            if math.isnan(value) or any(low <= value <= high for low, high in BLANK_RANGES):
                left_out[BLANK] += 1
                continue
            if not 0 <= value * factor <= maximum * 1.01:  # profiling counters are estimates and may exceed 1 a little
                fail_at_key(series.path, place, "out of range", value, "check the exporter")
            if job is None:
                left_out[IDLE] += 1
            elif value_of.setdefault((device.id, job.id, series.name, time_s), value) != value:
                problem = f"another value of {series.name} for the same device, job and time"
                fail_at_key(series.path, place, problem, value, "give each sample once")


def _counters(every: Sequence[TimeSeries], labels: SiteLabels) -> dict[str, JobProgress | None]:
    """Return the step counter of each job by the job's id; None for a counter of fewer than two samples.

    Raises TableError for a counter of no job, and for a second counter of a job.
    """
    counters: dict[str, JobProgress | None] = {}
    for series in every:
        samples = series.without_nan()
        job = labels.job(samples)
        if job is None:
            fail_at_key(series.path, (*series.keys, "metric"), "no job", "", "label the counter with its job")
        if job.id in counters:
            problem = f"a second counter of {job.id}"
            fail_at_key(series.path, series.keys, problem, series.name, "query one counter per job")
        counters[job.id] = progress_of_job([samples], is_counter=True)
    return counters


# --- windows, profiles and pairs --------------------------------------------------------------------------------------


def _windows(
    devices: Sequence[DeviceSamples],
    jobs: Mapping[str, JobIdentity],
    counters: Mapping[str, JobProgress | None],
    gang_jobs: Collection[str],
    left_out: Counter[str],
) -> Iterator[tuple[CompanyWindow, int]]:
    """Yield the stretches of constant company on all devices without their edges, with the progress of each job, and
    the number of their samples. What is in no window is counted in `left_out`."""
    for device, stretch in ((each, stretch) for each in devices for stretch in each.stretches):
        inner_samples = max(0, len(stretch.times_s) - 2)
        left_out[EDGES] += len(stretch.times_s) - inner_samples
        if not stretch.job_ids.isdisjoint(gang_jobs):
            left_out[GANGS] += inner_samples
        elif inner_samples:
            part = float(stretch.times_s[1]), float(stretch.times_s[-2])
            members = [
                JobInWindow(
                    job=jobs[job_id],
                    measured=counter.measure(part) if (counter := counters.get(job_id)) else None,
                    # The gauges of a window leave its first sample out.
                    gauges=gauges_of_job(device.gauges[job_id], (stretch.start_s, part[1])),
                )
                for job_id in sorted(stretch.job_ids)
            ]
            window = CompanyWindow(device=device.identity, start_s=part[0], end_s=part[1], jobs=tuple(members))
            yield window, inner_samples


def _profiles(solo_windows: Sequence[CompanyWindow], given_step_times_s: Mapping[str, float]) -> tuple[JobProfile, ...]:
    """Return the profiles of all workloads that were seen alone on a device; a given step time replaces a counted
    one."""
    facts = SoloFacts()
    facts.add(solo_windows)
    step_times_s: dict[tuple[str, str], list[float]] = defaultdict(list)
    for window in solo_windows:
        (member,) = window.jobs
        if member.measured is not None:
            step_times_s[member.job.workload, window.device.type].append(1 / member.measured.rate)
    profiles = []
    for profile in facts.new_profiles():
        counted_s = step_times_s[profile.workload, profile.device_type]
        step_time_s = given_step_times_s.get(profile.workload, profile.step_time_s)
        spread_s = stdev(counted_s) if len(counted_s) > 1 else NAN
        profiles.append(replace(profile, step_time_s=step_time_s, step_time_sd_s=spread_s))
    return tuple(profiles)


def _slowdowns(
    shared_windows: Sequence[CompanyWindow], profiles: Sequence[JobProfile], left_out: Counter[str]
) -> dict[PairKey, list[float]]:
    """Return the slowdowns of each pair. Jobs in shared windows that have no slowdown are counted in `left_out`."""
    solo_times_s = {(profile.workload, profile.device_type): profile.step_time_s for profile in profiles}
    passes: dict[PairKey, list[float]] = defaultdict(list)
    for window in shared_windows:
        names, device_type = [member.job.workload for member in window.jobs], window.device.type
        slowdowns = [
            1 / member.measured.rate / solo_times_s.get((member.job.workload, device_type), NAN)
            if member.measured is not None
            else NAN
            for member in window.jobs
        ]
        both_profiled = all((name, device_type) in solo_times_s for name in names)
        # A self pair is one row in which both sides alternate: a side without the other would shift them.
        usable = both_profiled and not (names[0] == names[1] and any(map(math.isnan, slowdowns)))
        for side, slowdown in enumerate(slowdowns):
            if math.isnan(slowdown) or not usable:
                left_out[SIDES] += 1
            else:
                passes[names[side], names[1 - side], device_type].append(slowdown)
    return passes


def _pair(
    key: PairKey, slowdowns: Sequence[float], *, mode: SharingMode, campaign: str, product: str, measured_at_s: float
) -> PairMeasurement:
    """Return the row of a pair from the slowdowns of its windows; an impossible slowdown makes the row unstable."""
    slowdown = math.prod(slowdowns) ** (1 / len(slowdowns))
    in_range = MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN
    return PairMeasurement(
        victim=key[0],
        neighbour=key[1],
        device_type=key[2],
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


def _notices(
    jobs: Sequence[JobProfile], samples_of_pairs: Counter[str], gang_jobs: Collection[str], left_out: Counter[str]
) -> tuple[Notice, ...]:
    """Return notices on the samples that are in no profile and in no pair."""
    pairs_seen = "; ".join(f"{names}: {count}" for names, count in samples_of_pairs.most_common(20))
    gangs = {GANGS: WHY_LEFT_OUT[GANGS] + ", ".join(sorted(gang_jobs)[:10])}
    return (
        flagged(
            sum(math.isnan(job.step_time_s) for job in jobs),
            "profiles without a step time",
            "no counter of steps (--step-metric) and no --rates: they hold only what monitoring measures",
        ),
        flagged(samples_of_pairs.total(), SAMPLES_OF_PAIRS, pairs_seen),
        *(dropped(left_out[what], what, why) for what, why in (WHY_LEFT_OUT | gangs).items()),
    )
