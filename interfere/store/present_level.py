"""The present level of a slowdown that windows report: the newest of them that agree with one another.

Windows of another campaign than the newest, of an earlier level, and outliers are left out.
"""

import math
from dataclasses import dataclass, field

import numpy as np

LEVEL_WINDOWS = 9  # newest windows whose median is the present level
LEVEL_DEVIATIONS, MIN_LEVEL_DISTANCE = 4.0, 0.1  # of a window that still belongs to it: robust deviations; log slowdown
MAX_OTHER_LEVEL = 3  # consecutive windows off on one side: what is older belongs to another level


@dataclass(slots=True)
class WindowSlowdowns:
    """What the windows of one job in one company report, oldest first."""

    log_slowdowns: list[float] = field(default_factory=list)
    contradicting: list[bool] = field(default_factory=list)  # told to be outliers when they came
    campaigns: list[str] = field(default_factory=list)
    newest_s: float = 0.0


def present_level(passes: WindowSlowdowns) -> list[float]:
    """Slowdowns of the newest windows that agree with one another; none where only one window speaks, an outlier."""
    newest_campaign = passes.campaigns[-1]
    of_campaign = [k for k, campaign in enumerate(passes.campaigns) if campaign == newest_campaign]
    logs = np.array([passes.log_slowdowns[k] for k in of_campaign])
    # 1. The present level, and how far its windows usually lie from it.
    newest = logs[-LEVEL_WINDOWS:]
    trusted = ~np.array([passes.contradicting[k] for k in of_campaign])[-LEVEL_WINDOWS:]
    if 2 * trusted.sum() >= len(newest):
        newest = newest[trusted]
    level = float(np.median(newest))
    deviation = 1.4826 * float(np.median(np.abs(newest - level)))
    distance = max(LEVEL_DEVIATIONS * deviation, MIN_LEVEL_DISTANCE)
    # 2. Go back from the newest window until several in a row lie off on one side.
    kept: list[int] = []
    off: list[float] = []
    for k in range(len(logs) - 1, -1, -1):
        difference = float(logs[k]) - level
        if abs(difference) <= distance:
            kept.append(k)
            off = []
            continue
        off = [*off, difference] if off and off[-1] * difference > 0 else [difference]
        if len(off) >= MAX_OTHER_LEVEL:
            break
    # 3. A single window that contradicted what was believed proves nothing.
    if len(kept) == 1 and passes.contradicting[of_campaign[kept[0]]]:
        return []
    return [math.exp(logs[k]) for k in reversed(kept)]
