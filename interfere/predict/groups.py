"""Slowdown of a job beside several others, composed as the product of its slowdowns beside each of them.

    log s[i | j1 … jk] = Σ log s[i, j],   interval: distances to the median added in quadrature

Nobody measured these groups, so such an answer has the source COMPOSED. A group fits when the sum of all peaks does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.feasibility import fits_by_peak_sum
from interfere.records import JobProfile, Prediction, Source

Floats = NDArray[np.float64]


def compose_groups(pairs: Prediction, sizes: Sequence[int], share: Floats) -> Prediction:
    """One answer per question, from the answers for the pairs of a victim with each of its neighbours.

    `sizes`: question k owns the next `sizes[k]` pairs. `share` float64[q]: peaks of the victim and all its neighbours ÷
    the device's memory. A question of one pair keeps that pair's answer; a question with a pair that abstains abstains
    for the same reason.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    single = np.array(sizes) == 1

    def sum_by_question(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, start))

    log_pairs = np.log(pairs.median)
    log_median = sum_by_question(log_pairs)
    below, above = (np.sqrt(sum_by_question((np.log(end) - log_pairs) ** 2)) for end in (pairs.lower, pairs.upper))
    abstaining = [
        next((k for k in range(first, first + size) if pairs.source[k] == Source.ABSTAINED), None)
        for first, size in zip(start.tolist(), sizes, strict=True)
    ]
    return Prediction(
        median=np.where(single, pairs.median[start], np.exp(log_median)),
        lower=np.where(single, pairs.lower[start], np.exp(log_median - below)),
        upper=np.where(single, pairs.upper[start], np.exp(log_median + above)),
        feasibility=np.where(single, pairs.feasibility[start], fits_by_peak_sum(share)),
        source=tuple(
            pairs.source[first] if is_pair else Source.COMPOSED if abstains is None else Source.ABSTAINED
            for first, is_pair, abstains in zip(start.tolist(), single.tolist(), abstaining, strict=True)
        ),
        reason=tuple("" if abstains is None else pairs.reason[abstains] for abstains in abstaining),
    )


def total_memory_share(jobs: Sequence[JobProfile | None], device_memory_bytes: float) -> float:
    """Sum of the jobs' peaks ÷ the device's memory; NaN where one of them is unknown."""
    peaks = [float("nan") if job is None else job.expected_peak_bytes for job in jobs]
    return sum(peaks) / device_memory_bytes
