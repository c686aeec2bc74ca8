"""Launches of a profiler export, gathered into a kernel table: one row per identity, with its mean, spread and count.

Identity = (name, grid, block), and what else tells launches apart in a format. The time of a step is the sum of its
kernels only where nobody measured the step: gaps and overlap are not in such a file.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile, KernelStat

MAX_NAME = 256  # of a record; demangled templates are longer
SUM_FACT = (
    "step_time_s is the sum of the kernels of a step where no --step-time-s was given: gaps and launch overhead are "
    "not in it, kernels on several streams count twice"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch as a profiler saw it; NaN is unknown."""

    name: str
    duration_s: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    bytes: float = NAN
    sm_used: float = NAN
    occupancy_frac: float = NAN
    compute_frac: float = NAN
    memory_frac: float = NAN
    compute_bound: float = NAN


def csv_files(path: Path) -> tuple[Path, ...]:
    """The file, or every CSV file of the folder. Raises TableError where there is none."""
    found = tuple(sorted(path.glob("*.csv"))) if path.is_dir() else (path,)
    if not found:
        raise TableError("the folder has no CSV file", value=path, remedy="give a file, or a folder with *.csv")
    return found


def check_single(files: tuple[Path, ...], name: str, step_time_s: float) -> None:
    """A name or a step time belongs to one file."""
    if len(files) > 1 and (name or not math.isnan(step_time_s)):
        raise InvalidInputError(
            "--name and --step-time-s are about one file",
            value=f"{len(files)} files",
            remedy="import the files one by one",
        )


def kernel_table(launches: Sequence[Launch], *, steps: int = 1) -> tuple[KernelStat, ...]:
    """One KernelStat per identity, in order of first launch; `steps` is how many steps the launches cover."""
    groups: dict[tuple[object, ...], list[Launch]] = {}
    for one in launches:
        known = tuple(None if math.isnan(v) else v for v in (one.sm_used, one.compute_bound))
        groups.setdefault((one.name, one.grid, one.block, *known), []).append(one)
    return tuple(_stat(group, steps) for group in groups.values())


def _stat(group: list[Launch], steps: int) -> KernelStat:
    durations = [one.duration_s for one in group]
    first = group[0]
    return KernelStat(
        name=short_name(first.name),
        mean_s=fmean(durations),
        sd_s=stdev(durations) if len(durations) > 1 else NAN,
        count=len(group) / steps,
        grid=first.grid,
        block=first.block,
        bytes=_mean([one.bytes for one in group]),
        sm_used=first.sm_used,
        occupancy_frac=_mean([one.occupancy_frac for one in group]),
        compute_frac=_mean([one.compute_frac for one in group]),
        memory_frac=_mean([one.memory_frac for one in group]),
        compute_bound=first.compute_bound,
    )


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def short_name(name: str) -> str:
    """`name`, or where a record cannot hold it its start and a digest of all of it."""
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: MAX_NAME - len(digest) - 1]}#{digest}"


def kernel_profile(
    launches: Sequence[Launch], *, workload: str, device_type: str, source: str, steps: int, step_time_s: float
) -> JobProfile:
    """The profile of one export. Without a measured `step_time_s` (NaN) the sum of the kernels of a step stands in."""
    total_s = math.fsum(one.duration_s for one in launches) / steps
    measured = not math.isnan(step_time_s)
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=step_time_s if measured else total_s,
        source=source,
        # Kernels of several streams overlap: their sum may pass the time of the step, and is no busy share then.
        busy_frac=total_s / step_time_s if measured and total_s <= step_time_s else NAN,
        kernels=kernel_table(launches, steps=steps),
    )
