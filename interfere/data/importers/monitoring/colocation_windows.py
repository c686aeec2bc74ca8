"""Who held which device when: windows of constant company, cut at both edges.

Laws: within a window the same jobs hold the device at every sample; the first and the last sample of a stretch are in
no window, since what they report reaches back into another company; a gap in the samples ends a stretch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

GAP = 2.5  # sampling intervals: one missing sample is a hiccup of the scrape, two are a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Samples of one device in the same company."""

    device: str
    company: frozenset[str]
    times_s: tuple[float, ...]


def windows(device: str, present: Mapping[float, frozenset[str]]) -> tuple[Window, ...]:
    """The windows of one device from who held it at each sample, in order of time; stretches under 3 samples vanish."""
    times = sorted(present)
    if len(times) < 3:
        return ()
    limit_s = GAP * median(after - before for before, after in pairwise(times))
    stretches = [[times[0]]]
    for before, now in pairwise(times):
        if present[now] != present[before] or now - before > limit_s:
            stretches.append([])
        stretches[-1].append(now)
    return tuple(
        Window(device=device, company=present[stretch[0]], times_s=tuple(stretch[1:-1]))
        for stretch in stretches
        if len(stretch) > 2
    )


def gangs(held: Iterable[tuple[str, float, str]]) -> frozenset[str]:
    """Jobs that held several devices at one time, of (device, time, job)."""
    first: dict[tuple[float, str], str] = {}
    several = set()
    for device, time_s, job in held:
        if first.setdefault((time_s, job), device) != device:
            several.add(job)
    return frozenset(several)
