"""The samples of a site's DCGM metrics and step counters, by device, time and job; windows of constant company in them.

Windows are stretches of time in which a fixed set of jobs held a device. Laws: within a window the same jobs hold the
device at every sample; the first and the last sample of a stretch are in no window, since the value of a sample covers
time before it, when other jobs may have held the device; a gap in the samples ends a stretch.

Workloads are named after pods, without what Kubernetes appends, which differs from run to run. A Deployment's pod is
NAME-HASH-RANDOM, a Job's NAME-RANDOM, a CronJob's NAME-TIME-RANDOM, a StatefulSet's NAME-ORDINAL, a training operator's
NAME-worker-ORDINAL. Hashes and random parts are written in an alphabet without vowels and without 0, 1 and 3
(Kubernetes, apimachinery `util/rand`). Of ordinals without a role one digit is taken off, so that resnet-18 and
resnet-50 stay two workloads.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.monitoring.prometheus import TimeSeries
from interfere.data.importers.strict_reading import fail_at_key

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
# dcgm_structs.h: DCGM_INT64_BLANK, DCGM_INT32_BLANK and DCGM_FP64_BLANK, each followed by the codes of its reasons.
BLANK_RANGES = (
    (9223372036854775792.0, math.inf),
    (2147483632.0, 2147483647.0),
    (140737488355328.0, 140737488355335.0),
)


@dataclass(slots=True)
class SiteSamples:
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


def sort_samples(all_series: Sequence[TimeSeries], by: str, step_metric: str, device_type: str) -> SiteSamples:
    """Sort the samples of all time series by device, time and job.

    `by` is the label that names the workload, or BY_WORKLOAD for the pod's name without what Kubernetes appended.
    `device_type` is that of all devices; "" reads it from the labels. Raises TableError, which names file and key.
    """
    exported_label = EXPORTED_PREFIX + _label(by)
    has_exported = any(
        name == exported_label for series in all_series if series.name in METRICS for name, _ in series.labels
    )
    samples = SiteSamples(label_prefix=EXPORTED_PREFIX if has_exported else "")
    for series in all_series:
        if step_metric and series.name == step_metric:
            _add_step_counter(samples, series, by)
        elif series.name in METRICS:
            _add_gauge(samples, series, by, device_type)
        else:
            samples.other_series += 1
    return samples


def _label(by: str) -> str:
    return "pod" if by == BY_WORKLOAD else by


def _job_of(samples: SiteSamples, series: TimeSeries, by: str, prefix: str) -> str:
    """Return the job of a series: its pod, else the value of its label `by`; empty where the series has no such
    label."""
    workload = series.label(prefix + _label(by))
    workload = workload_of_pod(workload) if by == BY_WORKLOAD else workload
    job = "/".join(filter(None, (series.label(f"{prefix}namespace"), series.label(f"{prefix}pod")))) or workload
    if not workload:
        return ""
    if samples.workload.setdefault(job, workload) != workload:
        fail_at_key(
            series.path, (*series.keys, "metric", by), f"another value for {job}", workload, "query one label per job"
        )
    return job


def _add_step_counter(samples: SiteSamples, series: TimeSeries, by: str) -> None:
    prefix = EXPORTED_PREFIX if series.label(EXPORTED_PREFIX + _label(by)) else ""
    job = _job_of(samples, series, by, prefix)
    if not job:
        fail_at_key(series.path, (*series.keys, "metric", by), "missing", "", "label the counter with its job")
    if job in samples.step_counters:
        fail_at_key(series.path, series.keys, f"a second counter of {job}", series.name, "query one counter per job")
    samples.step_counters[job] = series


def _add_gauge(samples: SiteSamples, series: TimeSeries, by: str, given_device_type: str) -> None:
    """Add the samples of one DCGM metric of one device."""
    # 1. Identify the device and its type.
    device = "/".join(filter(None, (series.label("UUID"), series.label("GPU_I_ID"))))
    if not series.label("UUID"):
        fail_at_key(series.path, (*series.keys, "metric", "UUID"), "missing", "", "keep the exporter's labels")
    product = series.label("modelName")
    device_type = given_device_type or device_type_of_product(product)
    if not device_type:
        fail_at_key(series.path, (*series.keys, "metric", "modelName"), "missing", "", "name it: --device-type a100")
    samples.product[device] = product
    # A MIG instance is another device type than the whole GPU.
    samples.device_type[device] = "-".join(filter(None, (device_type, series.label("GPU_I_PROFILE"))))
    # 2. Which value at which time, for which job.
    name, factor, maximum = METRICS[series.name]
    job = _job_of(samples, series, by, samples.label_prefix)
    for k, (time_s, raw) in enumerate(series.samples):
        if math.isnan(raw) or any(low <= raw <= high for low, high in BLANK_RANGES):
            samples.blank_values += 1
            continue
        value = raw * factor
        place = (*series.keys, "values", str(k), "1")
        if not 0 <= value <= maximum * 1.01:  # profiling counters are estimates and may exceed 1 a little
            fail_at_key(series.path, place, "out of range", raw, "check the exporter")
        if not job:
            samples.idle_values += 1
            continue
        samples.jobs_at[device][time_s].add(job)
        sample = samples.values[device, time_s, job]
        if sample.setdefault(name, min(value, maximum)) != min(value, maximum):
            problem = f"another value of {series.name} for the same device, job and time"
            fail_at_key(series.path, place, problem, raw, "give each sample once")


# --- names of workloads ----------------------------------------------------------------------------------------------


BY_WORKLOAD = "workload"  # in place of a label: the pod's name without what Kubernetes appended
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_HASH_AND_RANDOM = re.compile(rf"-(?:{_SAFE}{{6,10}}|(?=[a-f]*\d)[0-9a-f]{{6,10}}|\d{{8,10}})-{_SAFE}{{5}}$")
_RANDOM = re.compile(rf"-{_SAFE}{{5}}$")
_TIME_STAMP = re.compile(r"-\d{8,}$")
_ROLE_AND_ORDINAL = re.compile(r"-(?:worker|master|launcher|chief|ps|head|leader)(?:-\d+)?$")
_ORDINAL = re.compile(r"-\d$")


def workload_of_pod(pod: str) -> str:
    """The name of a pod without hashes, random parts, time stamps, ordinals and roles.

    >>> pods = ("bert-7d9f8b6c5d-x2k4q", "bert-train-lq8zn", "db-0", "resnet-50", "llm-worker-11")
    >>> [workload_of_pod(pod) for pod in pods]
    ['bert', 'bert-train', 'db', 'resnet-50', 'llm']
    """
    name = _HASH_AND_RANDOM.sub("", pod)
    if name == pod:
        for appended in (_RANDOM, _TIME_STAMP, _ROLE_AND_ORDINAL, _ORDINAL):
            name = appended.sub("", name)
    return name or pod


# --- windows of constant company -------------------------------------------------------------------------------------


GAP = 2.5  # in sampling intervals: one missing sample is an irregularity of the scrape, two are a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledWindow:
    """Consecutive samples of one device at which the same jobs hold it."""

    device: str
    jobs: frozenset[str]
    times_s: tuple[float, ...]


def colocation_windows(device: str, jobs_at: Mapping[float, frozenset[str]]) -> tuple[SampledWindow, ...]:
    """The windows of one device, in order of time, from the jobs that held it at each sample time.

    Stretches of fewer than 3 samples give no window.
    """
    times_s = sorted(jobs_at)
    if len(times_s) < 3:
        return ()
    max_interval_s = GAP * median(after - before for before, after in pairwise(times_s))
    stretches = [[times_s[0]]]
    for previous_s, now_s in pairwise(times_s):
        if jobs_at[now_s] != jobs_at[previous_s] or now_s - previous_s > max_interval_s:
            stretches.append([])
        stretches[-1].append(now_s)
    return tuple(
        SampledWindow(device=device, jobs=jobs_at[stretch[0]], times_s=tuple(stretch[1:-1]))
        for stretch in stretches
        if len(stretch) > 2
    )


def multi_device_jobs(samples: Iterable[tuple[str, float, str]]) -> frozenset[str]:
    """Return the jobs that held several devices at the same time, from samples of (device, time, job)."""
    device_of: dict[tuple[float, str], str] = {}
    jobs = set()
    for device, time_s, job in samples:
        if device_of.setdefault((time_s, job), device) != device:
            jobs.add(job)
    return frozenset(jobs)
