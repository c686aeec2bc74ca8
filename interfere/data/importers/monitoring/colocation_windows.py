"""Windows of time in which a fixed set of jobs held a device, cut at both edges.

Laws: within a window the same jobs hold the device at every sample; the first and the last sample of a stretch are in
no window, since the value of a sample covers time before it, when other jobs may have held the device; a gap in the
samples ends a stretch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

GAP = 2.5  # in sampling intervals: one missing sample is an irregularity of the scrape, two are a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationWindow:
    """Consecutive samples of one device at which the same jobs hold it."""

    device: str
    jobs: frozenset[str]
    times_s: tuple[float, ...]


def colocation_windows(device: str, jobs_at: Mapping[float, frozenset[str]]) -> tuple[ColocationWindow, ...]:
    """The windows of one device, in order of time, from the jobs that held it at each sample time.

    Stretches of fewer than 3 samples give no window.
    """
    times_s = sorted(jobs_at)
    if len(times_s) < 3:
        return ()
    max_interval_s = GAP * median(after - before for before, after in pairwise(times_s))
    stretches = [[times_s[0]]]
    for previous_s, now_s in pairwise(times_s):
        if jobs_at[now_s] != jobs_at[previous_s] or now_s - previous_s > max_interval_s:
            stretches.append([])
        stretches[-1].append(now_s)
    return tuple(
        ColocationWindow(device=device, jobs=jobs_at[stretch[0]], times_s=tuple(stretch[1:-1]))
        for stretch in stretches
        if len(stretch) > 2
    )


def multi_device_jobs(samples: Iterable[tuple[str, float, str]]) -> frozenset[str]:
    """The jobs that held several devices at one time, from samples of (device, time, job)."""
    device_of: dict[tuple[float, str], str] = {}
    jobs = set()
    for device, time_s, job in samples:
        if device_of.setdefault((time_s, job), device) != device:
            jobs.add(job)
    return frozenset(jobs)
