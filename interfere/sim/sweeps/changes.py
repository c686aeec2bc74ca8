"""What a scheduler changes against a reference on the same traces, with the interval of the mean and the spread.

Over the recorded days of one trace (batches of days), or over several traces (Student's t): two populations, each named
where its figures are shown. Completion times are compared job by job: both replays have the same jobs.
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.sim.ratio_interval import RELATIVE_CHANGE, DaySums
from interfere.sim.sweeps.tasks import SweepResult
from interfere.sim.uncertainty import UncertainMean, mean_over_days, mean_over_traces


def change_over_days(results: Sequence[SweepResult], references: Sequence[SweepResult]) -> UncertainMean | None:
    """Change of the mean completion time of all jobs of these worlds, as a share: of the recorded days; the spread is
    over whole traces where days were redrawn. None where there is nothing to compare or a job was dropped."""
    pairs = _paired(results, references)
    recorded = [(result, other) for result, other in pairs if not result.task.draw]
    if not recorded:
        return None
    worlds = [
        DaySums(numerator=np.array(result.completion_s_by_day), denominator=np.array(other.completion_s_by_day))
        for result, other in recorded
    ]
    redrawn = any(result.task.draw for result, _ in pairs)
    return mean_over_days(worlds, RELATIVE_CHANGE, traces=_shares(pairs) if redrawn else (), subtract=1.0)


def change_over_traces(
    results: Sequence[SweepResult], references: Sequence[SweepResult], population: str = "traces"
) -> UncertainMean | None:
    """Mean over traces of each trace's change of the mean completion time, as a share. None as above."""
    pairs = _paired(results, references)
    return mean_over_traces(_shares(pairs), population) if pairs else None


def _paired(results: Sequence[SweepResult], references: Sequence[SweepResult]) -> list[tuple[SweepResult, SweepResult]]:
    """Results and references on the same trace; none where a job was dropped."""
    by_trace = {(other.task.world, other.task.draw): other for other in references}
    pairs = [
        (result, other)
        for result in results
        if (other := by_trace.get((result.task.world, result.task.draw))) is not None
    ]
    return [] if any(result.dropped or other.dropped for result, other in pairs) else pairs


def _shares(pairs: Sequence[tuple[SweepResult, SweepResult]]) -> list[float]:
    shares = [result.mean_completion_s / other.mean_completion_s - 1 for result, other in pairs]
    return [share for share in shares if not math.isnan(share)]
