"""Stays and step marks become windows of constant company, each with an id that a restart makes again; pure.

A stay is cut where somebody comes or goes, and at whole multiples of `report_every_s`. Slurm's times are whole seconds,
so a second at either end of every window is left out. Steps are counted between the first and the last mark inside, and
only while the company marks steps too, where it ever does: who still loads its data slows nobody down.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.progress import Mark
from interfere.records import Progress
from serving.adapters.slurm.occupancy import Occupancy, Stay
from serving.adapters.slurm.records import GpuAddress
from serving.adapters.slurm.settings import SlurmSettings

GUARD_S = 1.0  # start_time and end_time are cut to whole seconds
SETTLE_S = 3.0  # marks are written once a second, and a shared folder shows them a moment later


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One stay in one company."""

    stay: Stay
    start_s: float
    end_s: float
    company: tuple[Stay, ...]


def windows(seen: Occupancy, settings: SlurmSettings, now_s: float) -> tuple[Window, ...]:
    """All that are over, not too old, and whose company is known."""
    gpus_of = Counter(stay.job.id for stay in seen.stays)
    on: dict[GpuAddress, list[Stay]] = {}
    for stay in seen.stays:
        on.setdefault(stay.address, []).append(stay)
    found: list[Window] = []
    for stay in seen.stays:
        if stay.job.workload and gpus_of[stay.job.id] == 1:
            others = [one for one in on[stay.address] if one.job.id != stay.job.id]
            found += _of_stay(stay, others, seen.unclear, settings, now_s)
    return tuple(found)


def _of_stay(
    stay: Stay,
    others: Sequence[Stay],
    unclear: Sequence[tuple[str, float, float]],
    settings: SlurmSettings,
    now_s: float,
) -> Iterator[Window]:
    end_s, every_s, oldest_s = min(stay.end_s, now_s), settings.report_every_s, now_s - settings.lookback_s
    hidden = [(a, b) for node, a, b in unclear if node == stay.address.node]
    moments = [t for one in others for t in (one.start_s, one.end_s)] + [t for span in hidden for t in span]
    grid = range(math.ceil(max(stay.start_s, oldest_s) / every_s), math.floor(end_s / every_s) + 1)
    cuts = {stay.start_s, end_s, *(k * every_s for k in grid), *moments}
    for start, end in pairwise(sorted(t for t in cuts if stay.start_s <= t <= end_s)):
        still_open = end == now_s and stay.end_s > now_s
        if still_open or end > now_s - SETTLE_S or start < oldest_s:
            continue
        here = tuple(one for one in others if one.start_s < end and one.end_s > start)
        unknown = any(a < end and b > start for a, b in hidden) or not all(one.job.workload for one in here)
        if not unknown and len(here) <= 1:
            yield Window(stay=stay, start_s=start + GUARD_S, end_s=end - GUARD_S, company=here)


def window_id(window: Window, settings: SlurmSettings) -> str:
    """Of the observation that it becomes."""
    job = window.stay.job
    return f"slurm/{settings.cluster}/{job.id}.{job.restarts}/{window.start_s:.0f}"


def progress(
    window: Window, marks: Sequence[Mark], company_marks: Sequence[Mark], settings: SlurmSettings
) -> Progress | None:
    """What the job did in the window; None where too little of it was marked."""
    rule, begin_s, end_s = settings.device(window.stay.address), window.start_s, window.end_s
    if company_marks:
        theirs = [mark.unix_s for mark in company_marks if begin_s <= mark.unix_s <= end_s]
        begin_s, end_s = (theirs[0], theirs[-1]) if theirs else (math.inf, -math.inf)
    best: tuple[float, Mark, Mark] | None = None
    spans: dict[str, list[Mark]] = {}
    for mark in marks:
        if begin_s <= mark.unix_s <= end_s:
            spans.setdefault(mark.writer, []).append(mark)
    for span in spans.values():  # processes of one job walk in step: the busiest writer speaks for it
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
            company=tuple(one.job.workload for one in window.company),
            steps=best[0],
            device_id=str(window.stay.address),
            mode=rule.mode,
        )
    except InvalidInputError:
        return None


def of_windows(
    found: Sequence[Window], marks_of: Callable[[Stay], Sequence[Mark]], settings: SlurmSettings
) -> tuple[Progress, ...]:
    """Every window that has enough marks."""
    read = [
        progress(window, marks_of(window.stay), [m for one in window.company for m in marks_of(one)], settings)
        for window in found
    ]
    return tuple(one for one in read if one is not None)
