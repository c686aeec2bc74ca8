"""What a site's monitoring already knows: DCGM exporter metrics, as saved answers of Prometheus range queries.

Each job (a pod, or `--by` a label of jobs) gets a profile from the windows in which it held its device alone; windows
shared with one other job give slowdowns where a counter of training steps is in the same files. What DCGM reports is
about the device: in a shared window it is no fact of either job, and only counted.
Metrics and units: NVIDIA, dcgm-exporter `default-counters.csv` and DCGM's `dcgm_fields.h`.
"""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from interfere.data.importers.device_names import device_type_of
from interfere.data.importers.import_result import Fate, Imported, Notice, SourceFile, notices
from interfere.data.importers.monitoring.colocation_windows import Window, gangs, windows
from interfere.data.importers.monitoring.prometheus import Series, json_files, read_series
from interfere.data.importers.monitoring.step_counters import Progressed, pair_rows, progressed, step_time
from interfere.data.importers.strict_reading import json_fail, read_csv
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile
from interfere.records.checks import check, mode_violations

MIB = 2**20
# Metric → our field, its factor to SI or a share, and the highest value that may be.
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
# Prometheus renames labels that the scrape sets too: the plain `pod` is the exporter's own then.
EXPORTED = "exported_"
PEAK = "memory_peak_bytes"  # the highest sample counts, elsewhere the mean
# dcgm_structs.h: DCGM_INT64_BLANK, DCGM_INT32_BLANK and DCGM_FP64_BLANK, each followed by the codes of why.
BLANKS = ((9223372036854775792.0, math.inf), (2147483632.0, 2147483647.0), (140737488355328.0, 140737488355335.0))
FACTS = (
    "profiles from windows alone: means over samples, memory the highest of them",
    "the first and last sample of a window are left out: they reach back into another company",
    "two jobs on one device are seen only where the exporter labels each of them (dcgm-exporter: virtual GPUs)",
    "slowdown of a shared window = its time per step over the job's time per step alone; one pass a window",
)


@dataclass(slots=True)
class _Site:
    """Everything read, by device, time and job."""

    prefix: str  # of the labels that name jobs, on DCGM's metrics
    workload: dict[str, str] = field(default_factory=dict)  # of each job
    device_type: dict[str, str] = field(default_factory=dict)  # of each device
    card: dict[str, str] = field(default_factory=dict)  # its model name
    present: dict[str, dict[float, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    values: dict[tuple[str, float, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    steps: dict[str, Series] = field(default_factory=dict)  # counter of each job
    blank: int = 0
    idle: int = 0
    other: int = 0


def import_dcgm(
    path: Path,
    *,
    by: str = "pod",
    step_metric: str = "",
    rates: Path | None = None,
    device_type: str = "",
    mode: str = "timeslice",
) -> Imported:
    """Profiles, and pairs where steps are known. Raises TableError that names file and key, InvalidInputError."""
    if step_metric and rates:
        raise InvalidInputError(
            "step times come from a counter or from a file", value=f"{step_metric}, {rates}", remedy="give one of them"
        )
    read = [read_series(one) for one in json_files(path)]
    check(mode_violations(mode))
    every = [series for found, _ in read for series in found]
    exported = any(name == EXPORTED + by for one in every if one.name in METRICS for name, _ in one.labels)
    site = _Site(prefix=EXPORTED if exported else "")
    for series in every:
        if step_metric and series.name == step_metric:
            _add_steps(site, series, by)
        elif series.name in METRICS:
            _add_gauge(site, series, by, device_type)
        else:
            site.other += 1
    if step_metric and not site.steps:
        raise InvalidInputError("no series of the step metric", value=step_metric, remedy="query it over the same time")
    if not site.values:
        raise TableError(
            f"{path.name}: no DCGM metric of any job",
            value=f"metrics such as {next(iter(METRICS))}, label {by!r}",
            remedy="query DCGM_FI_* over a time with jobs; name the label of jobs with --by",
        )
    given = read_csv(rates, ("workload", "step_time_s")) if rates else None
    known = {row.text("workload"): row.number("step_time_s", low=1e-9) for row in given.rows} if given else {}
    return _imported(site, mode, known, tuple(source for _, source in read) + ((given.source,) if given else ()))


def _job_of(site: _Site, series: Series, by: str, prefix: str) -> str:
    """The job of a series: its pod, else its label `by`; empty where it has none."""
    workload = series.label(prefix + by)
    job = "/".join(filter(None, (series.label(f"{prefix}namespace"), series.label(f"{prefix}pod")))) or workload
    if not workload:
        return ""
    if site.workload.setdefault(job, workload) != workload:
        json_fail(
            series.path, (*series.keys, "metric", by), f"another one for {job}", workload, "query one label a job"
        )
    return job


def _add_steps(site: _Site, series: Series, by: str) -> None:
    exported = EXPORTED if series.label(EXPORTED + by) else ""
    job = _job_of(site, series, by, exported)
    if not job:
        json_fail(series.path, (*series.keys, "metric", by), "missing", "", "label the counter with its job")
    if job in site.steps:
        json_fail(series.path, series.keys, f"a second counter of {job}", series.name, "query one counter a job")
    site.steps[job] = series


def _add_gauge(site: _Site, series: Series, by: str, device_type: str) -> None:
    device = "/".join(filter(None, (series.label("UUID"), series.label("GPU_I_ID"))))
    if not series.label("UUID"):
        json_fail(series.path, (*series.keys, "metric", "UUID"), "missing", "", "keep the exporter's labels")
    model = series.label("modelName")
    kind = device_type or device_type_of(model)
    if not kind:
        json_fail(series.path, (*series.keys, "metric", "modelName"), "missing", "", "name it: --device a100")
    site.card[device] = model
    # A slice of a card is another device type than the card.
    site.device_type[device] = "-".join(filter(None, (kind, series.label("GPU_I_PROFILE"))))
    name, factor, high = METRICS[series.name]
    job = _job_of(site, series, by, site.prefix)
    for k, (time_s, raw) in enumerate(series.samples):
        if math.isnan(raw) or any(low <= raw <= top for low, top in BLANKS):
            site.blank += 1
            continue
        value = raw * factor
        if not 0 <= value <= high * 1.01:  # profiling counters are estimates and may pass 1 by a little
            json_fail(series.path, (*series.keys, "values", str(k), "1"), "out of range", raw, "check the exporter")
        if not job:
            site.idle += 1
            continue
        site.present[device][time_s].add(job)
        held = site.values[device, time_s, job]
        if held.setdefault(name, min(value, high)) != min(value, high):
            what = f"another value of {series.name} for the same device, job and time"
            json_fail(series.path, (*series.keys, "values", str(k), "1"), what, raw, "give each sample once")


def _imported(site: _Site, mode: str, given_s: dict[str, float], files: tuple[SourceFile, ...]) -> Imported:
    held = [(device, t, job) for device, times in site.present.items() for t, jobs in times.items() for job in jobs]
    several = gangs(held)
    found = [
        window
        for device, times in site.present.items()
        for window in windows(device, {t: frozenset(jobs) for t, jobs in times.items()})
    ]
    single = [window for window in found if not window.company & several]
    alone = [window for window in single if len(window.company) == 1]
    jobs, paced = _profiles(site, alone, given_s)
    if not jobs:
        raise TableError(
            f"{files[0].path.name}: no job ever held a device alone for three samples",
            value=f"{len(held)} samples of {len(site.workload)} jobs",
            remedy="query a longer time, or a finer step",
        )
    times_s = {(job.workload, job.device_type): job.step_time_s for job in jobs}
    shared = [window for window in single if len(window.company) == 2]
    passes, lost = _slowdowns(site, shared, times_s)
    pairs = pair_rows(
        passes,
        mode=mode,
        campaign=files[0].campaign,
        names={site.device_type[device]: card for device, card in site.card.items()},
        at_s=max(t for _, t, _ in held),
    )
    company = Counter(" + ".join(sorted(site.workload[job] for job in w.company)) for w in shared for _ in w.times_s)
    cut = len({(device, t) for device, t, _ in held}) - sum(len(window.times_s) for window in found)
    unpaced = sum(math.isnan(job.step_time_s) for job in jobs)
    return Imported(
        kind="dcgm",
        files=files,
        facts=(*FACTS, f"sharing mode: {mode}, as named in the command; step times: {paced}"),
        jobs=jobs,
        pairs=pairs,
        notices=notices(
            Notice(
                fate=Fate.FLAGGED,
                what="profiles without a step time",
                count=unpaced,
                why="no counter of steps (--step-metric) and no --rates: what monitoring knows, and no more",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="samples of two jobs on one device",
                count=company.total(),
                why="; ".join(f"{names}: {count}" for names, count in company.most_common(20)),
            ),
            Notice(
                fate=Fate.DROPPED,
                what="sides of shared windows without a slowdown",
                count=lost,
                why="a job was never seen alone, or its counter is missing, stood still or restarted",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="samples of three jobs or more on one device",
                count=sum(len(w.times_s) for w in single if len(w.company) > 2),
                why="a row is about a pair",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="samples beside or of a job on several devices",
                count=sum(len(w.times_s) for w in found if w.company & several),
                why="its steps are not those of one device: " + ", ".join(sorted(several)[:10]),
            ),
            Notice(
                fate=Fate.DROPPED,
                what="samples at the edge of a window, or in one of under three",
                count=cut,
                why="they reach back into another company",
            ),
            Notice(fate=Fate.DROPPED, what="values without a job", count=site.idle, why="the device was idle"),
            Notice(fate=Fate.DROPPED, what="blank values", count=site.blank, why="NaN, or DCGM's code for no value"),
            Notice(fate=Fate.DROPPED, what="series of other metrics", count=site.other, why="no fact of a profile"),
        ),
    )


def _profiles(site: _Site, alone: list[Window], given_s: dict[str, float]) -> tuple[tuple[JobProfile, ...], str]:
    """Profiles of all that was seen alone, and where their step times are from."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    steps: dict[tuple[str, str], list[Progressed]] = defaultdict(list)
    for window in alone:
        (job,) = window.company
        key = (site.workload[job], site.device_type[window.device])
        fields = samples.setdefault(key, defaultdict(list))
        for time_s in window.times_s:
            for name, value in site.values[window.device, time_s, job].items():
                fields[name].append(value)
        if job in site.steps and (one := progressed(site.steps[job], window)):
            steps[key].append(one)
    jobs = []
    for (workload, kind), fields in samples.items():
        step_s, sd_s = step_time(steps[workload, kind])
        facts: dict[str, Any] = {name: max(v) if name == PEAK else fmean(v) for name, v in fields.items()}
        facts |= {"step_time_s": given_s.get(workload, step_s), "step_time_sd_s": sd_s}
        jobs.append(JobProfile(workload=workload, device_type=kind, source="dcgm", **facts))
    return tuple(jobs), "a file of rates" if given_s else "a counter" if site.steps else "none"


def _slowdowns(
    site: _Site, shared: list[Window], alone_s: dict[tuple[str, str], float]
) -> tuple[dict[tuple[str, str, str], list[float]], int]:
    """Slowdowns by (victim, neighbour, device type), one a window and side; how many sides gave none."""
    passes: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    lost = 0
    for window in shared:
        kind = site.device_type[window.device]
        jobs = sorted(window.company)
        names = [site.workload[job] for job in jobs]
        found = []
        for job, name in zip(jobs, names, strict=True):
            one = progressed(site.steps[job], window) if job in site.steps else None
            found.append(one.step_time_s / alone_s.get((name, kind), NAN) if one else NAN)
        profiled = all((name, kind) in alone_s for name in names)
        # Both sides of a self pair stand side by side in one row: one without the other would shift them.
        whole = names[0] != names[1] or not any(map(math.isnan, found))
        for side, slowdown in enumerate(found):
            if math.isnan(slowdown) or not profiled or not whole:
                lost += 1
            else:
                passes[names[side], names[1 - side], kind].append(slowdown)
    return passes, lost
