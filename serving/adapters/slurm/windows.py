"""Stays and step marks become windows of constant company, each with an id that a restart makes again; pure.

A stay is cut where somebody comes or goes, and at whole multiples of `report_every_s`. Slurm's times are whole seconds,
so a second at either end of every window is left out. Steps are counted between the first and the last mark inside.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.progress import Mark
from interfere.records import Progress
from serving.adapters.slurm.occupancy import Occupancy, Stay
from serving.adapters.slurm.settings import SlurmSettings

GUARD_S = 1.0  # start_time and end_time are cut to whole seconds
SETTLE_S = 3.0  # marks are written once a second, and a shared folder shows them a moment later


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One stay in one company."""

    stay: Stay
    start_s: float
    end_s: float
    company: tuple[str, ...]  # workloads


def windows(seen: Occupancy, settings: SlurmSettings, now_s: float) -> tuple[Window, ...]:
    """All that are over, not too old, and whose company is known."""
    found: list[Window] = []
    for stay in seen.stays:
        if not stay.job.workload or sum(other.job.id == stay.job.id for other in seen.stays) > 1:
            continue
        others = [o for o in seen.stays if o.address == stay.address and o.job.id != stay.job.id]
        end_s = min(stay.end_s, now_s)
        cuts = {stay.start_s, end_s}
        cuts |= {t for o in others for t in (o.start_s, o.end_s) if stay.start_s < t < end_s}
        cuts |= {t for _, a, b in seen.unclear for t in (a, b) if stay.start_s < t < end_s}
        first = math.ceil(max(stay.start_s, now_s - settings.lookback_s) / settings.report_every_s)
        last = math.floor(end_s / settings.report_every_s)
        cuts |= {k * settings.report_every_s for k in range(first, last + 1)}
        edges = sorted(t for t in cuts if stay.start_s <= t <= end_s)
        for start, end in pairwise(edges):
            still_open = end == now_s and stay.end_s > now_s
            if still_open or end > now_s - SETTLE_S or start < now_s - settings.lookback_s:
                continue
            here = [o for o in others if o.start_s < end and o.end_s > start]
            hidden = any(node == stay.address.node and a < end and b > start for node, a, b in seen.unclear)
            if hidden or len(here) > 1 or not all(o.job.workload for o in here):
                continue
            found.append(
                Window(
                    stay=stay, start_s=start + GUARD_S, end_s=end - GUARD_S,
                    company=tuple(o.job.workload for o in here),
                )
            )  # fmt: skip
    return tuple(found)


def progress(window: Window, marks: Sequence[Mark], settings: SlurmSettings) -> Progress | None:
    """What the job did in the window; None where too little of it was marked."""
    rule = settings.device(window.stay.address)
    best: tuple[float, Mark, Mark] | None = None
    spans: dict[str, list[Mark]] = {}
    for mark in marks:
        if window.start_s <= mark.unix_s <= window.end_s:
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
            observation_id=f"slurm/{settings.cluster}/{job.id}.{job.restarts}/{window.start_s:.0f}",
            job_id=job.id, workload=job.workload, device_type=rule.type, start_s=best[1].unix_s, end_s=best[2].unix_s,
            company=window.company, steps=best[0], device_id=str(window.stay.address), mode=rule.mode,
        )  # fmt: skip
    except InvalidInputError:
        return None


def of_windows(
    found: Sequence[Window], marks_of: Callable[[Stay], Sequence[Mark]], settings: SlurmSettings
) -> tuple[Progress, ...]:
    """Every window that has enough marks."""
    read = [progress(window, marks_of(window.stay), settings) for window in found]
    return tuple(one for one in read if one is not None)
