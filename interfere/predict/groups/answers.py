"""Answers for groups from the answers for their pairs. Such an answer has the source COMPOSED.

A group fits when the sum of all peaks does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.feasibility import fits_by_peak_sum
from interfere.predict.groups.composition import DEFAULT_COMPOSITION, CopyShares, GroupComposition, pair_excess
from interfere.records import JobProfile, Prediction, Source

Floats = NDArray[np.float64]


def compose_groups(
    pairs: Prediction,
    sizes: Sequence[int],
    share: Floats,
    composition: GroupComposition = DEFAULT_COMPOSITION,
    copies: CopyShares | None = None,
) -> Prediction:
    """One answer per question, from the answers for the pairs of a victim with each of its neighbours.

    `sizes`: question k owns the next `sizes[k]` pairs. `share` float64[q]: peaks of the victim and all its neighbours ÷
    the device's memory. `copies`: what is known of the q victims beside copies of themselves. A question of one pair
    keeps that pair's answer; a question with a pair that abstains abstains for the same reason.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    neighbours = np.array(sizes)
    single = neighbours == 1

    def sum_by_question(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, start))

    median = composition.slowdown(sum_by_question(pair_excess(pairs.median)), neighbours, copies)
    below, above = (
        composition.log_distance(sum_by_question(np.log(end / pairs.median) ** 2), neighbours, copies=copies)
        for end in (pairs.lower, pairs.upper)
    )
    abstaining = [
        next((k for k in range(first, first + size) if pairs.source[k] == Source.ABSTAINED), None)
        for first, size in zip(start.tolist(), sizes, strict=True)
    ]
    return Prediction(
        median=np.where(single, pairs.median[start], median),
        lower=np.where(single, pairs.lower[start], median * np.exp(-below)),
        upper=np.where(single, pairs.upper[start], median * np.exp(above)),
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
