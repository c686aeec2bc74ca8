"""Imports profiler exports, one profile a file: each format reads launches, and this module makes profiles of them.

A kernel's identity is (name, grid, block), and whatever else tells launches apart in a format. Profilers that record
when each kernel ran (the PyTorch profiler, Nsight Systems) know what those that time kernels one by one do not: the
gaps. Kernels of several streams may overlap: a stretch is busy while at least one of them runs. Where neither the file
nor the user gives a step time, the sum of the kernels of a step stands in for it.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, flagged, repaired
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile, KernelStat

MAX_NAME = 256  # characters of a name in a record; demangled templates are longer
MAX_STRETCHES = 200  # of each kind in a record: a sample of the timeline, as the profiler of our own workloads keeps
SUM_NOTE = (
    "step_time_s is the sum of the kernels of a step where no --step-time-s was given: gaps and launch overhead are "
    "not in it, kernels on several streams count twice"
)
TIMED_NOTE = (
    "one file is one job; an identity is (name, grid, block); gap_s is the time until the next launch on the device"
)
PROFILED_STEP_NOTE = (
    "the step time is that of a run under the profiler, which slows a job down: give --step-time-s of a run without it"
)
TRACE_SUFFIX = re.compile(r"(\.pt\.trace)?\.json(\.gz)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A kernel launch as a profiler recorded it; NaN is unknown. The times of a file are of one clock."""

    name: str
    duration_s: float
    start_s: float = NAN
    end_s: float = NAN
    gap_s: float = NAN  # until the next launch on the device
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    bytes: float = NAN
    sm_used: float = NAN
    occupancy_frac: float = NAN
    compute_frac: float = NAN
    memory_frac: float = NAN
    compute_bound: float = NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFile:
    """The content of a profiler export: kernel launches, device and marked steps."""

    source: SourceFile
    launches: tuple[KernelLaunch, ...]
    device_type: str = ""  # "" where the file names none
    device_count: int = 1  # GPUs with events; the launches are of the first GPU
    step_spans_s: tuple[tuple[float, float], ...] = ()  # when the steps that the file marks began and ended
    notices: tuple[Notice, ...] = ()  # {launches} in a subject is the number of launches of all files


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFormat:
    """A format of profiler exports.

    `read` takes a file and the text of the NVTX range that marks a step (or ""), and returns the content of the file.
    """

    name: str  # of its import command, and the source of its profiles
    read: Callable[[Path, str], KernelFile]
    patterns: tuple[str, ...]  # of its files in a folder
    is_timed: bool  # launches have start and end
    unmarked: str = ""  # files that mark no steps, and what marks them
    notes: tuple[str, ...]  # what the format means, with {steps} and {device_type}
    device_type: str = ""  # where neither the user nor the file names one


FORMATS = {  # module of this package, and the attribute that holds the KernelFormat
    "nsight": "csv_exports:NSIGHT",
    "orion": "csv_exports:ORION",
    "nsys": "nsight_systems:NSIGHT_SYSTEMS",
    "torch-profiler": "torch_profiler:TORCH_PROFILER",
}


def find_format(name: str) -> KernelFormat:
    """Return the format with a name in `FORMATS`; only the module of that format is imported."""
    module, _, attribute = FORMATS[name].partition(":")
    found: KernelFormat = getattr(import_module(f"{__package__}.{module}"), attribute)
    return found


def import_kernels(
    format_name: str,
    path: Path,
    *,
    device_type: str = "",
    name: str = "",
    steps: int = 1,
    step_range: str = "",
    step_time_s: float = NAN,
) -> ImportResult:
    """Import the profile of a file, or of each file of a folder, in a format of `FORMATS`.

    `steps` is the number of steps of a file that marks none, `step_range` the text of the NVTX range of a step. Raises
    TableError, which names file and place, and InvalidInputError where an option of one file is given for several.
    """
    kernel_format = find_format(format_name)
    paths = tuple(sorted(each for pattern in kernel_format.patterns for each in path.glob(pattern)))
    paths = paths if path.is_dir() else (path,)
    if not paths:
        wanted = " or ".join(kernel_format.patterns)
        raise TableError(f"no {wanted} in the folder", value=path, remedy="give a file, or a folder with such files")
    if len(paths) > 1 and (name or not math.isnan(step_time_s)):
        raise InvalidInputError(
            "--name and --step-time-s are about one file",
            value=f"{len(paths)} files",
            remedy="import the files one by one",
        )
    files = [kernel_format.read(each, step_range) for each in paths]
    device_type = device_type or kernel_format.device_type
    make = _profile_of_timeline if kernel_format.is_timed else _profile_of_sum
    jobs = [
        make(
            file,
            JobProfile(
                workload=name or _workload(file.source.path),
                device_type=device_type or _device_type(file),
                step_time_s=step_time_s,
                source=kernel_format.name,
            ),
            steps,
        )
        for file in files
    ]
    return ImportResult(
        source_format=kernel_format.name,
        files=tuple(file.source for file in files),
        format_notes=tuple(note.format(steps=steps, device_type=device_type) for note in kernel_format.notes),
        jobs=tuple(jobs),
        notices=tuple(_notices(kernel_format, files, steps, is_measured=not math.isnan(step_time_s))),
    )


def _workload(path: Path) -> str:
    name = TRACE_SUFFIX.sub("", path.name)
    return path.stem if name == path.name else name


def _device_type(file: KernelFile) -> str:
    if not file.device_type:
        raise TableError(
            f"{file.source.path.name}: the file does not name its GPU",
            value=file.source.path,
            remedy="name the device type: --device-type a100-80gb",
        )
    return file.device_type


def _notices(
    kernel_format: KernelFormat, files: Sequence[KernelFile], steps: int, *, is_measured: bool
) -> list[Notice]:
    """Return notices on content of the files that is not imported as recorded, with counts summed over files."""
    counts: Counter[tuple[Treatment, str, str]] = Counter()
    total = str(sum(len(file.launches) for file in files))
    for notice in (notice for file in files for notice in file.notices):
        counts[notice.treatment, notice.subject.replace("{launches}", total), notice.reason] += notice.count
    unmeasured, why = "profiles whose step time is the sum of their kernels", "the format has no step time"
    if kernel_format.is_timed:
        unmeasured, why = "profiles whose step time comes from the profiled run", PROFILED_STEP_NOTE
    unmarked, _, remedy = kernel_format.unmarked.partition(": ")
    long_names = sum(len(launch.name) > MAX_NAME for file in files for launch in file.launches)
    return [
        flagged(0 if is_measured else len(files), unmeasured, why),
        *(
            Notice(treatment=treatment, subject=subject, count=count, reason=reason)
            for (treatment, subject, reason), count in counts.items()
        ),
        flagged(
            sum(kernel_format.is_timed and not file.step_spans_s for file in files),
            unmarked,
            f"taken as {steps} steps from the first launch to the last: {remedy}",
        ),
        flagged(
            sum(file.device_count > 1 for file in files),
            "files with events of several GPUs",
            "a profile is about one device: only the events of the first one count",
        ),
        repaired(
            long_names,
            "launches with a name that is too long",
            f"cut to {MAX_NAME} characters, the last of them a digest of the whole name",
        ),
    ]


# --- profiles ---------------------------------------------------------------------------------------------------------


def _profile_of_sum(file: KernelFile, blank: JobProfile, steps: int) -> JobProfile:
    """Return the profile of launches whose durations are known but not their times."""
    kernel_sum_s = math.fsum(launch.duration_s for launch in file.launches) / steps
    is_measured = not math.isnan(blank.step_time_s)
    return replace(
        blank,
        step_time_s=blank.step_time_s if is_measured else kernel_sum_s,
        # Kernels of several streams overlap: a sum above the step time is no busy share.
        busy_frac=kernel_sum_s / blank.step_time_s if is_measured and kernel_sum_s <= blank.step_time_s else NAN,
        kernels=build_kernel_table(file.launches, steps=steps),
    )


def _profile_of_timeline(file: KernelFile, blank: JobProfile, steps: int) -> JobProfile:
    """Return the profile of timed launches. Launches before the first marked step and after the last do not count.

    `steps` is the number of steps where none is marked. Without a given step time, the marked steps determine it, or
    else the span of all launches divided by `steps`.
    """
    # 1. Cut to the marked steps.
    launches, spans_s = file.launches, file.step_spans_s
    if spans_s:
        begin, end = spans_s[0][0], max(stop for _, stop in spans_s)
        launches = tuple(each for each in launches if begin <= each.start_s < end)
        steps = len(spans_s)
    ordered = sorted(launches, key=lambda each: each.start_s)
    # 2. Busy and idle stretches of the device.
    busy_s, idle_s = _stretches(ordered)
    total_s = sum(busy_s) + sum(idle_s)
    step_time_s = blank.step_time_s
    if math.isnan(step_time_s):
        step_time_s = median(stop - start for start, stop in spans_s) if spans_s else total_s / steps
    # 3. The kernel table, with the gap after each launch.
    with_gaps = [replace(each, gap_s=max(0.0, after.start_s - each.end_s)) for each, after in pairwise(ordered)]
    with_gaps += ordered[-1:]
    span_s = spans_s[-1][1] - spans_s[0][0] if spans_s else total_s
    return replace(
        blank,
        step_time_s=step_time_s,
        busy_frac=min(1.0, sum(busy_s) / span_s) if span_s > 0 else NAN,
        busy_s=tuple(busy_s[:MAX_STRETCHES]),
        idle_s=tuple(idle_s[:MAX_STRETCHES]),
        kernels=build_kernel_table(with_gaps, steps=steps),
    )


def _stretches(ordered: Sequence[KernelLaunch]) -> tuple[list[float], list[float]]:
    """Return the seconds of each stretch in which any launch ran, and of the idle time after each stretch.

    The idle time after the last stretch is 0.
    """
    busy_s: list[float] = []
    idle_s: list[float] = []
    begin = until = ordered[0].start_s if ordered else 0.0
    for each in ordered:
        if each.start_s > until:
            busy_s.append(until - begin)
            idle_s.append(each.start_s - until)
            begin = each.start_s
        until = max(until, each.end_s)
    return ([*busy_s, until - begin], [*idle_s, 0.0]) if ordered else ([], [])


def build_kernel_table(launches: Sequence[KernelLaunch], *, steps: int = 1) -> tuple[KernelStat, ...]:
    """Return one KernelStat per kernel identity (name, grid, block), in order of first launch.

    `steps` is the number of steps that the launches cover.
    """
    groups: dict[tuple[object, ...], list[KernelLaunch]] = {}
    for launch in launches:
        known = tuple(None if math.isnan(value) else value for value in (launch.sm_used, launch.compute_bound))
        groups.setdefault((launch.name, launch.grid, launch.block, *known), []).append(launch)
    return tuple(_kernel_stat(group, steps) for group in groups.values())


def _kernel_stat(launches: list[KernelLaunch], steps: int) -> KernelStat:
    durations_s = [launch.duration_s for launch in launches]
    first = launches[0]
    measured = ("gap_s", "bytes", "occupancy_frac", "compute_frac", "memory_frac")
    means = {name: _mean_of_known([getattr(launch, name) for launch in launches]) for name in measured}
    return KernelStat(
        name=bounded_name(first.name),
        mean_s=fmean(durations_s),
        sd_s=stdev(durations_s) if len(durations_s) > 1 else NAN,
        count=len(launches) / steps,
        grid=first.grid,
        block=first.block,
        sm_used=first.sm_used,
        compute_bound=first.compute_bound,
        **means,
    )


def _mean_of_known(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def bounded_name(name: str) -> str:
    """Return a name that fits a record: a longer name is replaced by its beginning and a digest of the whole name."""
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: MAX_NAME - len(digest) - 1]}#{digest}"
