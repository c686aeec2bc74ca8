"""Aggregates the kernel launches of a profiler export into a kernel table: mean, spread and count per kernel identity.

Identity = (name, grid, block), and whatever else tells launches apart in a format. Where the step time was not
measured, the sum of the kernels of a step stands in for it: such a file holds neither gaps nor overlap.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN, JobProfile, KernelStat

MAX_NAME = 256  # characters of a name in a record; demangled templates are longer
SUM_NOTE = (
    "step_time_s is the sum of the kernels of a step where no --step-time-s was given: gaps and launch overhead are "
    "not in it, kernels on several streams count twice"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One kernel launch as a profiler recorded it; NaN is unknown."""

    name: str
    duration_s: float
    gap_s: float = NAN  # until the next launch on the device
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
    files = tuple(sorted(path.glob("*.csv"))) if path.is_dir() else (path,)
    if not files:
        raise TableError("the folder has no CSV file", value=path, remedy="give a file, or a folder with *.csv")
    return files


def check_single_file_options(files: tuple[Path, ...], name: str, step_time_s: float) -> None:
    """Raise InvalidInputError where a name or a step time is given for more than one file."""
    if len(files) > 1 and (name or not math.isnan(step_time_s)):
        raise InvalidInputError(
            "--name and --step-time-s are about one file",
            value=f"{len(files)} files",
            remedy="import the files one by one",
        )


def build_kernel_table(launches: Sequence[KernelLaunch], *, steps: int = 1) -> tuple[KernelStat, ...]:
    """One KernelStat per identity, in order of first launch; `steps` is the number of steps that the launches cover."""
    groups: dict[tuple[object, ...], list[KernelLaunch]] = {}
    for launch in launches:
        known = tuple(None if math.isnan(value) else value for value in (launch.sm_used, launch.compute_bound))
        groups.setdefault((launch.name, launch.grid, launch.block, *known), []).append(launch)
    return tuple(_kernel_stat(group, steps) for group in groups.values())


def _kernel_stat(launches: list[KernelLaunch], steps: int) -> KernelStat:
    durations_s = [launch.duration_s for launch in launches]
    first = launches[0]
    return KernelStat(
        name=bounded_name(first.name),
        mean_s=fmean(durations_s),
        gap_s=_mean_of_known([launch.gap_s for launch in launches]),
        sd_s=stdev(durations_s) if len(durations_s) > 1 else NAN,
        count=len(launches) / steps,
        grid=first.grid,
        block=first.block,
        bytes=_mean_of_known([launch.bytes for launch in launches]),
        sm_used=first.sm_used,
        occupancy_frac=_mean_of_known([launch.occupancy_frac for launch in launches]),
        compute_frac=_mean_of_known([launch.compute_frac for launch in launches]),
        memory_frac=_mean_of_known([launch.memory_frac for launch in launches]),
        compute_bound=first.compute_bound,
    )


def _mean_of_known(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def bounded_name(name: str) -> str:
    """`name`, or, where it is too long for a record, its beginning and a digest of the whole."""
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: MAX_NAME - len(digest) - 1]}#{digest}"


def profile_from_launches(
    launches: Sequence[KernelLaunch], *, workload: str, device_type: str, source: str, steps: int, step_time_s: float
) -> JobProfile:
    """The profile of one export. Where `step_time_s` is NaN, the sum of the kernels of a step stands in for it."""
    kernel_sum_s = math.fsum(launch.duration_s for launch in launches) / steps
    measured = not math.isnan(step_time_s)
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=step_time_s if measured else kernel_sum_s,
        source=source,
        # Kernels of several streams overlap: a sum above the step time is no busy share.
        busy_frac=kernel_sum_s / step_time_s if measured and kernel_sum_s <= step_time_s else NAN,
        kernels=build_kernel_table(launches, steps=steps),
    )
