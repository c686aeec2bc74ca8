"""Step times and slowdowns from counters of training steps, read over co-location windows.

`step_time = Σ time / Σ steps` over the windows in which a job held a device alone; the slowdown of a shared window is
its time per step over that.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

from interfere.data.importers.monitoring.colocation_windows import ColocationWindow
from interfere.data.importers.monitoring.prometheus import TimeSeries
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProgress:
    """The steps that one job did in one window, and the time they took."""

    time_s: float
    steps: float

    @property
    def step_time_s(self) -> float:
        """Mean time of one step."""
        return self.time_s / self.steps


def progress_in_window(counter: TimeSeries, window: ColocationWindow) -> WindowProgress | None:
    """The progress of a counter in a window; None where it has under two samples there, restarted, or stood still."""
    samples = [
        (time_s, value)
        for time_s, value in counter.samples
        if window.times_s[0] <= time_s <= window.times_s[-1] and not math.isnan(value)
    ]
    if len(samples) < 2 or any(after < before for (_, before), (_, after) in pairwise(samples)):
        return None
    steps = samples[-1][1] - samples[0][1]
    return WindowProgress(time_s=samples[-1][0] - samples[0][0], steps=steps) if steps > 0 else None


def mean_step_time(windows: Sequence[WindowProgress]) -> tuple[float, float]:
    """The time of one step over all windows, and its standard deviation between windows; NaN where unknown."""
    if not windows:
        return NAN, NAN
    mean_s = math.fsum(window.time_s for window in windows) / math.fsum(window.steps for window in windows)
    return mean_s, stdev([window.step_time_s for window in windows]) if len(windows) > 1 else NAN


def pair_measurements(
    passes: Mapping[tuple[str, str, str], Sequence[float]],
    *,
    mode: SharingMode,
    campaign: str,
    product_of: Mapping[str, str],
    measured_at_s: float,
) -> tuple[PairMeasurement, ...]:
    """One row per (victim, neighbour, device type) from the slowdowns of its windows.

    `product_of` gives the product name of a device type. A slowdown outside the range of a record marks its row as
    unstable; no row is dropped.
    """
    rows = []
    for (victim, neighbour, device_type), slowdowns in passes.items():
        slowdown = math.prod(slowdowns) ** (1 / len(slowdowns))
        in_range = MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN
        rows.append(
            PairMeasurement(
                victim=victim,
                neighbour=neighbour,
                device_type=device_type,
                mode=mode,
                slowdown=slowdown if in_range else NAN,
                passes=tuple(slowdowns),
                status=PairStatus.OK if in_range else PairStatus.UNSTABLE,
                reason="" if in_range else f"slowdown {slowdown:g}: the counter or the time alone is of another run",
                source="dcgm",
                campaign=campaign,
                device_name=product_of.get(device_type, ""),
                measured_at_s=measured_at_s,
            )
        )
    return tuple(rows)
