"""Composes predictions for groups from the predictions for their pairs; the result has the source COMPOSED.

A group fits in memory when the sum of all memory peaks fits.
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
    """Return one prediction per group, composed from the predictions for the victim's pairs with each neighbour.

    `sizes`: group k owns the next `sizes[k]` pairs. `share` float64[q]: summed peaks of the victim and its neighbours ÷
    the device's memory. `copies`: known slowdowns of the q victims beside copies of themselves. A group of one pair
    keeps the pair's prediction; a group with a pair that abstains abstains for the same reason.
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
    """Return the sum of the jobs' memory peaks ÷ the device's memory; NaN if a peak or the memory is unknown."""
    peaks = [float("nan") if job is None else job.expected_peak_bytes for job in jobs]
    return sum(peaks) / device_memory_bytes
