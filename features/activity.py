"""How a job uses its device over time: step time, busy share, and the lengths of its busy and idle stretches.

On a GPU the stretches are kernel times and the gaps between kernels; on one CPU core they are bursts and pauses.
"""

import math

from interfere.features.numeric import log_s, mean, quantile, ratio
from interfere.records import JobProfile

LONG_GAP_S = 100e-6  # a gap of this length has room for a kernel of another job

COLUMNS = (
    "log_step_time_s",
    "step_time_cv",
    "busy_frac",
    "log_busy_mean_s",
    "log_busy_p10_s",
    "log_busy_p50_s",
    "log_busy_p90_s",
    "log_busy_p99_s",
    "log_idle_mean_s",
    "log_idle_p50_s",
    "log_idle_p90_s",
    "log_idle_p99_s",
    "long_gap_frac",
    "log_stretches_per_s",
)


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Return how a job uses its device over time, in the order of `COLUMNS`; NaN where it has no timeline."""
    busy, idle = sorted(profile.busy_s), sorted(profile.idle_s)
    span_s = math.fsum(busy) + math.fsum(idle)
    busy_frac = profile.busy_frac
    if math.isnan(busy_frac) and span_s > 0:
        busy_frac = math.fsum(busy) / span_s
    long_gaps_s = math.fsum(gap_s for gap_s in idle if gap_s > LONG_GAP_S)
    return (
        log_s(profile.step_time_s),
        ratio(profile.step_time_sd_s, profile.step_time_s),
        busy_frac,
        log_s(mean(busy)),
        *(log_s(quantile(busy, q)) for q in (0.1, 0.5, 0.9, 0.99)),
        log_s(mean(idle)),
        *(log_s(quantile(idle, q)) for q in (0.5, 0.9, 0.99)),
        ratio(long_gaps_s, span_s),
        -log_s(ratio(span_s, float(len(busy)))),
    )
