"""Windows of constant co-location from job runs and step marks, with ids that a restart makes again. Pure functions.

A run is cut where a co-located job comes or goes, and at whole multiples of `report_every_s`. Slurm's times are whole
seconds, so a second at either end of every window is left out. Steps are counted between the first and the last mark
inside, and only while the co-located job marks steps too, if it ever does: a job that still loads its data slows no
other job down.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.progress import Mark
from interfere.records import Progress
from interfere.serving.adapters.slurm.occupancy import JobOnGpu, Occupancy
from interfere.serving.adapters.slurm.records import GpuAddress
from interfere.serving.adapters.slurm.settings import SlurmSettings

GUARD_S = 1.0  # start_time and end_time are cut to whole seconds
SETTLE_S = 3.0  # marks are written once a second, and a shared folder shows them a moment later


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationWindow:
    """A part of one run in which the co-located jobs did not change."""

    stay: JobOnGpu
    start_s: float
    end_s: float
    company: tuple[JobOnGpu, ...]


def colocation_windows(gpu_use: Occupancy, settings: SlurmSettings, now_s: float) -> tuple[ColocationWindow, ...]:
    """All windows that are complete, not too old, and whose co-located jobs are known."""
    gpus_of = Counter(stay.job.id for stay in gpu_use.stays)
    runs_on: dict[GpuAddress, list[JobOnGpu]] = {}
    for stay in gpu_use.stays:
        runs_on.setdefault(stay.address, []).append(stay)
    windows: list[ColocationWindow] = []
    for stay in gpu_use.stays:
        if stay.job.workload and gpus_of[stay.job.id] == 1:
            others = [run for run in runs_on[stay.address] if run.job.id != stay.job.id]
            windows += _windows_of_run(stay, others, gpu_use.unclear, settings, now_s)
    return tuple(windows)


def _windows_of_run(
    stay: JobOnGpu,
    others: Sequence[JobOnGpu],
    unclear: Sequence[tuple[str, float, float]],
    settings: SlurmSettings,
    now_s: float,
) -> Iterator[ColocationWindow]:
    end_s, every_s, oldest_s = min(stay.end_s, now_s), settings.report_every_s, now_s - settings.lookback_s
    unknown_spans = [(a, b) for node, a, b in unclear if node == stay.address.node]
    changes = [t for run in others for t in (run.start_s, run.end_s)] + [t for span in unknown_spans for t in span]
    grid = range(math.ceil(max(stay.start_s, oldest_s) / every_s), math.floor(end_s / every_s) + 1)
    cuts = {stay.start_s, end_s, *(k * every_s for k in grid), *changes}
    for start, end in pairwise(sorted(t for t in cuts if stay.start_s <= t <= end_s)):
        still_open = end == now_s and stay.end_s > now_s
        if still_open or end > now_s - SETTLE_S or start < oldest_s:
            continue
        colocated = tuple(run for run in others if run.start_s < end and run.end_s > start)
        is_unknown = any(a < end and b > start for a, b in unknown_spans)
        is_unknown = is_unknown or not all(run.job.workload for run in colocated)
        if not is_unknown and len(colocated) <= 1:
            yield ColocationWindow(stay=stay, start_s=start + GUARD_S, end_s=end - GUARD_S, company=colocated)


def window_id(window: ColocationWindow, settings: SlurmSettings) -> str:
    """Id of the observation that the window becomes."""
    job = window.stay.job
    return f"slurm/{settings.cluster}/{job.id}.{job.restarts}/{window.start_s:.0f}"


def progress(
    window: ColocationWindow, marks: Sequence[Mark], company_marks: Sequence[Mark], settings: SlurmSettings
) -> Progress | None:
    """Progress of the job in the window; None where it has too few marks."""
    rule, begin_s, end_s = settings.device(window.stay.address), window.start_s, window.end_s
    if company_marks:
        times_s = [mark.unix_s for mark in company_marks if begin_s <= mark.unix_s <= end_s]
        begin_s, end_s = (times_s[0], times_s[-1]) if times_s else (math.inf, -math.inf)
    best: tuple[float, Mark, Mark] | None = None
    spans: dict[str, list[Mark]] = {}
    for mark in marks:
        if begin_s <= mark.unix_s <= end_s:
            spans.setdefault(mark.writer, []).append(mark)
    for span in spans.values():  # processes of one job step together: the writer with the most steps represents it
        steps = span[-1].steps - span[0].steps
        if steps > 0 and (best is None or steps > best[0]):
            best = (steps, span[0], span[-1])
    if best is None or rule is None or best[2].unix_s - best[1].unix_s < settings.least_window_s:
        return None
    job = window.stay.job
    try:
        return Progress(
            observation_id=window_id(window, settings),
            job_id=job.id,
            workload=job.workload,
            device_type=rule.type,
            start_s=best[1].unix_s,
            end_s=best[2].unix_s,
            company=tuple(run.job.workload for run in window.company),
            steps=best[0],
            device_id=str(window.stay.address),
            mode=rule.mode,
        )
    except InvalidInputError:
        return None


def progress_of_windows(
    windows: Sequence[ColocationWindow], marks_of: Callable[[JobOnGpu], Sequence[Mark]], settings: SlurmSettings
) -> tuple[Progress, ...]:
    """Progress of every window that has enough marks."""
    observations = [
        progress(window, marks_of(window.stay), [mark for run in window.company for mark in marks_of(run)], settings)
        for window in windows
    ]
    return tuple(observation for observation in observations if observation is not None)
