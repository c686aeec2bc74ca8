"""Which jobs were on a device at the same time: stretches of constant company, and how they are cut into windows.

Laws: between the first and the last sample of a stretch every sample shows the same jobs, and none is missing. Which
windows a stretch gives does not depend on where reading began, as long as reading began early enough before it
(`read_span`); so the same window has the same start whenever it is read again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from interfere.monitoring.job_progress import Interval
from interfere.monitoring.samples import GAP, Floats, sampling_interval_s

SAME_SCRAPE = 0.5  # of a sampling interval: samples of one device that are closer belong to one scrape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretch:
    """A time in which every sample of a device shows the same jobs."""

    job_ids: frozenset[str]
    times_s: Floats  # of its samples
    interval_s: float  # between two samples, usually

    @property
    def start_s(self) -> float:
        """The time of the first sample."""
        return float(self.times_s[0])

    @property
    def end_s(self) -> float:
        """The time of the last sample."""
        return float(self.times_s[-1])


def stretches(
    job_times_s: Mapping[str, Sequence[Floats]], idle_times_s: Sequence[Floats], *, same_scrape: float = SAME_SCRAPE
) -> tuple[Stretch, ...]:
    """Return the stretches of one device with at least one job, in order of time.

    `job_times_s` holds the sample times of each job's series on the device, `idle_times_s` those of series without a
    job. `same_scrape` is the share of a sampling interval within which samples belong to one scrape; at 0 only samples
    of equal time do, as the answer of a range query has them.
    """
    every = [times_s for series in job_times_s.values() for times_s in series] + list(idle_times_s)
    grid, interval_s = _scrape_times(every, same_scrape)
    if len(grid) < 2:
        return ()
    job_ids = sorted(job_times_s)
    present = np.array([_present(job_times_s[job_id], grid, same_scrape * interval_s) for job_id in job_ids])
    if not len(present):
        return ()
    changes = (present[:, 1:] != present[:, :-1]).any(axis=0) | (np.diff(grid) > GAP * interval_s)
    firsts = np.append(0, np.flatnonzero(changes) + 1)
    lasts = np.append(np.flatnonzero(changes), len(grid) - 1)
    found = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        here = frozenset(job_id for job_id, is_here in zip(job_ids, present[:, first], strict=True) if is_here)
        if here:
            found.append(Stretch(job_ids=here, times_s=grid[first : last + 1], interval_s=interval_s))
    return tuple(found)


def _scrape_times(every: Sequence[Floats], same_scrape: float) -> tuple[Floats, float]:
    """Return the times at which any series sampled a device, and the usual interval between two samples."""
    longest = max(every, key=len, default=np.zeros(0))
    interval_s = sampling_interval_s(longest)
    if math.isnan(interval_s):
        return np.zeros(0), math.nan
    times_s = np.unique(np.concatenate(every))
    return times_s[np.append(True, np.diff(times_s) > same_scrape * interval_s)], interval_s


def _present(series: Sequence[Floats], grid: Floats, tolerance_s: float) -> np.ndarray:
    """Return bool[n]: whether a job has a sample within `tolerance_s` of each of n times."""
    times_s = np.unique(np.concatenate(series))
    after = np.clip(np.searchsorted(times_s, grid), 0, len(times_s) - 1)
    before = np.clip(after - 1, 0, None)
    nearest_s = np.minimum(np.abs(times_s[after] - grid), np.abs(times_s[before] - grid))
    return np.asarray(nearest_s <= tolerance_s)


def read_span(cell: Interval, min_window_s: float) -> Interval:
    """Return the time span to read for the windows that end in a cell: the cell before it, the cell, and margins around
    both."""
    margin_s = 2 * min_window_s
    return cell[0] - (cell[1] - cell[0]) - 2 * margin_s, cell[1] + margin_s


def cut_at_cells(window: Interval, cell_s: float, min_window_s: float) -> list[Interval]:
    """Split a window at the whole multiples of `cell_s`. A cut that would leave less than `min_window_s` is not
    made.
    """
    first, last = math.ceil(window[0] / cell_s), math.floor(window[1] / cell_s)
    cuts = [
        k * cell_s
        for k in range(first, last + 1)
        if k * cell_s - window[0] >= min_window_s and window[1] - k * cell_s >= min_window_s
    ]
    edges = [window[0], *cuts, window[1]]
    return list(pairwise(edges))
