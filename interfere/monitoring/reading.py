"""The pure core: samples of a site in, windows of constant company with the steps of each job out.

Laws: a window is within one stretch of constant company and within one run of every counter of its jobs, so no restart,
gap, counter reset or renamed pod lies inside; each window ends in exactly one cell, so that reading cell after cell
gives each once; equal samples give equal windows.

Gauges of devices are facts of a job where it was alone, or where the exporter tells processes apart:
dcgm-exporter repeats a device's value for every pod on it, unless it was told to attribute values to processes. So in
company only memory is a fact of a job, and only where the jobs on the device have different values.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from interfere.monitoring.company_windows import Stretch, cut_at_cells, stretches
from interfere.monitoring.dcgm import BLANK_RANGES, METRICS
from interfere.monitoring.job_progress import Interval, JobProgress, MeasuredSteps, intersect, progress_of_job
from interfere.monitoring.preflight import ProgressCounts, count_progress
from interfere.monitoring.samples import Floats, SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import DeviceIdentity, JobIdentity, SiteLabels, matching_jobs, recurring_labels

JITTER = 0.1  # of a sampling interval: scrapes are that punctual


class NotMeasured(StrEnum):
    """The reason why a job's progress in a window is not known."""

    NO_COUNTER = "no counter"
    STOOD_STILL = "stood still"
    TOO_FEW_SAMPLES = "too few samples"
    NEIGHBOUR_STOOD_STILL = "neighbour stood still"
    SEVERAL_DEVICES = "a job on several devices"


MEMORY = "memory_peak_bytes"
PROCESS_LABEL = "pid"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSummary:
    """The number of samples of a gauge in a window, their sum, and the largest sample."""

    samples: int
    total: float
    largest: float


def gauges_of_job(series: Sequence[SampleSeries], part: Interval) -> dict[str, GaugeSummary]:
    """Return the gauges of a job over a window by field of JobProfile; values of several processes are added up.

    The first sample of the window is left out, because it may cover time before the window.
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
    """Return the memory of each job of a shared window by job id; empty where all jobs have the same value, the
    device's."""
    memory = {job_id: gauges[MEMORY] for job_id, gauges in of_jobs.items() if MEMORY in gauges}
    if len(memory) < len(of_jobs) or len({gauge.total for gauge in memory.values()}) < 2:
        return {}
    return {job_id: {MEMORY: gauge} for job_id, gauge in memory.items()}


def _without_blanks(values: Floats) -> Floats:
    for low, high in BLANK_RANGES:
        values = values[(values < low) | (values > high)]
    return values


# --- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInWindow:
    """One job of a window. Exactly one of `measured` and `not_measured` is set."""

    job: JobIdentity
    measured: MeasuredSteps | None = None
    not_measured: NotMeasured | None = None
    gauges: Mapping[str, GaugeSummary] = field(default_factory=dict)  # facts of this job, by field of JobProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyWindow:
    """A time in which the same jobs held a device, with the progress of each job."""

    device: DeviceIdentity
    start_s: float
    end_s: float
    jobs: tuple[JobInWindow, ...]  # by id

    def neighbours(self, job_id: str) -> tuple[str, ...]:
        """Return the workloads beside a job, sorted."""
        return tuple(sorted(each.job.workload for each in self.jobs if each.job.id != job_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTime:
    """A time in which the same jobs held a device, whether or not the progress of the jobs is known."""

    device: DeviceIdentity
    jobs: tuple[JobIdentity, ...]
    start_s: float
    end_s: float

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads of the jobs, sorted."""
        return tuple(sorted(job.workload for job in self.jobs))

    @property
    def seconds(self) -> float:
        """The length of the time."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReading:
    """The windows and the shared time of a cell, with counts of what was left out."""

    windows: tuple[CompanyWindow, ...]
    shared: tuple[SharedTime, ...]
    workload_of: Mapping[str, str]  # by job id
    recurring_labels: tuple[tuple[str, int], ...]  # labels whose values recur over jobs, and how many values they have
    series: int
    progress: ProgressCounts
    left_out: Counter[str]  # what was not used, and how much of it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """The identities, counters and runs of all jobs of a site."""

    identity: Mapping[str, JobIdentity]  # by job id
    counters: Mapping[str, JobProgress]
    runs: Mapping[str, list[Interval]]  # of each counter
    on_several_devices: frozenset[str]


@dataclass(slots=True)
class DeviceSamples:
    """The samples of a device: the times of each job and of no job on the device, gauges by job, and stretches."""

    identity: DeviceIdentity
    times_s: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))  # by job id
    idle_times_s: list[Floats] = field(default_factory=list)
    gauges: dict[str, list[SampleSeries]] = field(default_factory=lambda: defaultdict(list))  # by job id
    stretches: tuple[Stretch, ...] = ()


def read_cell(block: SampleBlock, labels: SiteLabels, settings: MonitoringSettings, cell: Interval) -> SiteReading:
    """Return the windows that end in (cell start, cell end]; `block` holds samples over at least `read_span` of the
    cell."""
    left_out: Counter[str] = Counter()
    # 1. Sort device series by device and job.
    devices, job_of_series = samples_by_device(block.device, labels, left_out)
    # 2. Join progress series to jobs.
    counters, progress = _counters_by_job(block, labels, settings, job_of_series, left_out)
    # 3. Stretches of constant company, and the jobs that are on several devices at once.
    for device in devices:
        device.stretches = stretches(device.times_s, device.idle_times_s)
    jobs = _Jobs(
        identity={job.id: job for job in job_of_series.values()},
        counters=counters,
        runs={job_id: counter.runs() for job_id, counter in counters.items()},
        on_several_devices=jobs_on_several_devices(devices),
    )
    # 4. Windows that end in the cell, and time shared within it.
    windows = tuple(
        window
        for device in devices
        for stretch in device.stretches
        for window in _windows(device, stretch, jobs, settings)
        if cell[0] < window.end_s <= cell[1]
    )
    return SiteReading(
        windows=windows,
        shared=tuple(_shared_times(devices, jobs.identity, cell)),
        workload_of={job_id: job.workload for job_id, job in jobs.identity.items()},
        recurring_labels=recurring_labels(block.device, job_of_series),
        series=len(block.device) + len(block.progress),
        progress=progress,
        left_out=left_out,
    )


def samples_by_device(
    series: Sequence[SampleSeries], labels: SiteLabels, left_out: Counter[str]
) -> tuple[list[DeviceSamples], dict[int, JobIdentity]]:
    """Return the devices in order of their ids, and the job of each series by the index of the series.

    Series without a device or a device type are counted in `left_out`.
    """
    devices: dict[str, DeviceSamples] = {}
    job_of_series: dict[int, JobIdentity] = {}
    for k, each in enumerate(series):
        identity = labels.device(each)
        if identity is None or not identity.type:
            left_out[
                "series without UUID" if identity is None else "series without modelName (--device-type names it)"
            ] += 1
            continue
        device = devices.setdefault(identity.id, DeviceSamples(identity=identity))
        job = labels.job(each)
        if job is None:
            device.idle_times_s.append(each.times_s)
            continue
        job_of_series[k] = job
        device.times_s[job.id].append(each.times_s)
        device.gauges[job.id].append(each)
    return [devices[name] for name in sorted(devices)], job_of_series


def _counters_by_job(
    block: SampleBlock,
    labels: SiteLabels,
    settings: MonitoringSettings,
    job_of_series: Mapping[int, JobIdentity],
    left_out: Counter[str],
) -> tuple[dict[str, JobProgress], ProgressCounts]:
    """Return the progress of each job by the job's id, and what was seen of all progress series.

    Series that match no job or several are counted in `left_out`.
    """
    job_ids_by_key: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for k, job in job_of_series.items():
        job_ids_by_key[labels.progress_keys(block.device[k])].add(job.id)
    series_of: dict[str, list[SampleSeries]] = defaultdict(list)
    unjoined = []
    for each in block.progress:
        matched = matching_jobs(labels.progress_labels(each), job_ids_by_key)
        if len(matched) == 1:
            series_of[next(iter(matched))].append(each)
        else:
            unjoined.append(each)
            left_out["progress series of several jobs" if matched else "progress series of no job on a device"] += 1
    found = {
        job_id: progress_of_job(series, is_counter=settings.progress_is_counter, lag_s=settings.progress_range_s)
        for job_id, series in series_of.items()
    }
    joined = [each for series in series_of.values() for each in series]
    counters = {job_id: progress for job_id, progress in found.items() if progress is not None}
    return counters, count_progress(joined, unjoined)


def jobs_on_several_devices(devices: Sequence[DeviceSamples]) -> frozenset[str]:
    """Return the jobs that held several devices at the same time."""
    spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for device in devices:
        for stretch in device.stretches:
            for job_id in stretch.job_ids:
                spans[job_id].append((stretch.start_s, stretch.end_s, device.identity.id))
    gangs = set()
    for job_id, of_job in spans.items():
        latest_end_s, device_id = -np.inf, ""
        for start_s, end_s, on_device in sorted(of_job):
            if start_s < latest_end_s and on_device != device_id:
                gangs.add(job_id)
            if end_s > latest_end_s:
                latest_end_s, device_id = end_s, on_device
    return frozenset(gangs)


def _windows(
    device: DeviceSamples, stretch: Stretch, jobs: _Jobs, settings: MonitoringSettings
) -> Iterator[CompanyWindow]:
    """Yield the windows into which one stretch of constant company is cut."""
    # 1. Samples can lie up to one interval inside either edge: a time of min_window_s shows so much less.
    shortest_s = settings.min_window_s - (1.5 + JITTER) * stretch.interval_s
    certain = stretch.start_s, stretch.end_s - settings.exporter_delay_s
    if certain[1] - certain[0] < max(shortest_s, JITTER * stretch.interval_s):
        return
    # 2. Only time within one run of each job's counter: a gap or a reset may hide that the job was away.
    spans = [certain]
    for job_id in stretch.job_ids & jobs.counters.keys():
        spans = intersect(spans, jobs.runs[job_id])
    # 3. Cut at cells.
    shortest_s = max(settings.min_window_s / 2 - JITTER * stretch.interval_s, 0.0)
    for span in spans:
        for part in cut_at_cells(span, settings.cell_s, settings.min_window_s):
            if part[1] - part[0] >= shortest_s:
                yield _window(device, stretch, part, jobs)


def _window(device: DeviceSamples, stretch: Stretch, part: Interval, jobs: _Jobs) -> CompanyWindow:
    # 1. The time in which every job with a counter was stepping; a job that loads its data slows no other down.
    """Return a part of a stretch as a window, with the steps of each job or the reason why they are not known."""
    active = {job_id: jobs.counters[job_id].stepping_span(part) for job_id in stretch.job_ids & jobs.counters.keys()}
    stepping = [part]
    for span in active.values():
        stepping = intersect(stepping, [span]) if span is not None else stepping
    # 2. What the device's gauges say of each job.
    gauges = {job_id: gauges_of_job(device.gauges[job_id], part) for job_id in stretch.job_ids}
    gauges = gauges if len(gauges) == 1 else memory_in_company(gauges)
    # 3. The steps of each job.
    found = []
    for job_id in sorted(stretch.job_ids):
        measured = jobs.counters[job_id].measure(stepping[0]) if job_id in jobs.counters and stepping else None
        reason = None
        if stretch.job_ids & jobs.on_several_devices:
            reason = NotMeasured.SEVERAL_DEVICES
        elif job_id not in jobs.counters:
            reason = NotMeasured.NO_COUNTER
        elif active[job_id] is None:
            reason = NotMeasured.STOOD_STILL
        elif any(span is None for span in active.values()):
            reason = NotMeasured.NEIGHBOUR_STOOD_STILL
        elif measured is None:
            reason = NotMeasured.TOO_FEW_SAMPLES
        job = jobs.identity[job_id]
        measured = None if reason else measured
        found.append(JobInWindow(job=job, measured=measured, not_measured=reason, gauges=gauges.get(job_id, {})))
    return CompanyWindow(
        device=device.identity,
        start_s=part[0],
        end_s=part[1],
        jobs=tuple(found),
    )


def _shared_times(
    devices: Sequence[DeviceSamples], jobs: Mapping[str, JobIdentity], cell: Interval
) -> Iterator[SharedTime]:
    """Yield the time of each stretch within the cell; a stretch lasts about one sampling interval beyond its last
    sample."""
    for device in devices:
        for stretch in device.stretches:
            start_s, end_s = max(stretch.start_s, cell[0]), min(stretch.end_s + stretch.interval_s, cell[1])
            if end_s > start_s:
                here = tuple(jobs[job_id] for job_id in sorted(stretch.job_ids))
                yield SharedTime(device=device.identity, jobs=here, start_s=start_s, end_s=end_s)
