"""Means over several recorded traces, with Student's interval: for sweeps over traces, which no command makes."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from interfere.sim.uncertainty import CONFIDENCE, MIN_TRACES, Interval, NoInterval, UncertainMean
from interfere.study.replays import ReplayResult


def change_over_traces(
    runs: Sequence[ReplayResult], references: Sequence[ReplayResult], population: str = "traces"
) -> UncertainMean | None:
    """Mean over traces of each trace's change of the mean completion time, as a share; None without common traces."""
    others = {(other.task.world, other.task.draw): other for other in references}
    pairs = [(run, others[key]) for run in runs if (key := (run.task.world, run.task.draw)) in others]
    if not pairs or any(run.score.dropped or other.score.dropped for run, other in pairs):
        return None
    shares = [run.score.mean_completion_s / other.score.mean_completion_s - 1 for run, other in pairs]
    return mean_over_traces([share for share in shares if not math.isnan(share)], population)


def mean_over_traces(traces: Sequence[float], population: str = "traces") -> UncertainMean:
    """Mean of one figure per trace: ± t · s / √k for k traces, taken as independent draws with normal errors."""
    values = np.asarray(traces, dtype=np.float64)
    mean = float(values.mean()) if len(values) else math.nan
    named = f"{len(values)} {population}"
    if len(values) < MIN_TRACES:
        unknown = Interval(low=math.nan, high=math.nan, population=f"mean over {named}", missing=NoInterval.FEW_DAYS)
        return UncertainMean(mean=mean, interval=unknown, spread=Interval(low=mean, high=mean, population=named))
    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return UncertainMean(
        mean=mean,
        interval=Interval(low=mean - half, high=mean + half, population=f"mean over {named}"),
        spread=Interval(low=float(low), high=float(high), population=named),
    )
