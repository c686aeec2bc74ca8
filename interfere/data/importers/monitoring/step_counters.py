"""Steps that a counter saw in windows of constant company: time per step alone, slowdown in company.

`step_time = Σ time / Σ steps` over a job's windows alone; slowdown of a shared window = its time per step over that.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

from interfere.data.importers.monitoring.colocation_windows import Window
from interfere.data.importers.monitoring.prometheus import Series
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, PairMeasurement, PairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """What one job did in one window."""

    time_s: float
    steps: float

    @property
    def step_time_s(self) -> float:
        """Mean time of one step."""
        return self.time_s / self.steps


def progressed(counter: Series, window: Window) -> Progressed | None:
    """None where the counter has under two samples in the window, restarted, or stood still."""
    inside = [
        (time_s, value)
        for time_s, value in counter.samples
        if window.times_s[0] <= time_s <= window.times_s[-1] and not math.isnan(value)
    ]
    if len(inside) < 2 or any(after < before for (_, before), (_, after) in pairwise(inside)):
        return None
    steps = inside[-1][1] - inside[0][1]
    return Progressed(time_s=inside[-1][0] - inside[0][0], steps=steps) if steps > 0 else None


def step_time(windows: Sequence[Progressed]) -> tuple[float, float]:
    """Time of one step over all windows, and its standard deviation between them; NaN where unknown."""
    if not windows:
        return NAN, NAN
    mean_s = math.fsum(w.time_s for w in windows) / math.fsum(w.steps for w in windows)
    return mean_s, stdev([w.step_time_s for w in windows]) if len(windows) > 1 else NAN


def pair_rows(
    passes: Mapping[tuple[str, str, str], Sequence[float]],
    *,
    mode: str,
    campaign: str,
    names: Mapping[str, str],
    at_s: float,
) -> tuple[PairMeasurement, ...]:
    """One row per (victim, neighbour, device type); what no clock can mean is unstable, never dropped."""
    rows = []
    for (victim, neighbour, device_type), found in passes.items():
        slowdown = math.prod(found) ** (1 / len(found))
        sound = MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN
        rows.append(
            PairMeasurement(
                victim=victim,
                neighbour=neighbour,
                device_type=device_type,
                mode=mode,
                slowdown=slowdown if sound else NAN,
                passes=tuple(found),
                status=PairStatus.OK if sound else PairStatus.UNSTABLE,
                reason="" if sound else f"slowdown {slowdown:g}: the counter or the time alone is of another run",
                source="dcgm",
                campaign=campaign,
                device_name=names.get(device_type, ""),
                measured_at_s=at_s,
            )
        )
    return tuple(rows)
