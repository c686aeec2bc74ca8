"""A job beside several others: the product of its slowdowns beside each of them alone.

    log s[i | j1 … jk] = Σ log s[i, j],   interval: distances to the median added in quadrature

Nobody measured these groups, so such an answer is flagged as composed. It fits when the sum of all peaks does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.feasibility import fits_by_sum
from interfere.records import JobProfile, Prediction, Source

Floats = NDArray[np.float64]


def composed(pairs: Prediction, sizes: Sequence[int], share: Floats) -> Prediction:
    """One answer a question: question k owns the next `sizes[k]` pairs.

    `share`: peaks of the victim and all its neighbours ÷ the device's memory, float64[q]. A question of one pair keeps
    that pair's answer; one with a pair that abstains abstains for its reason.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    single = np.array(sizes) == 1

    def summed(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, start))

    middle = np.log(pairs.median)
    median = summed(middle)
    below, above = (np.sqrt(summed((np.log(end) - middle) ** 2)) for end in (pairs.lower, pairs.upper))
    silent = [
        next((k for k in range(first, first + size) if pairs.source[k] == Source.ABSTAINED), None)
        for first, size in zip(start.tolist(), sizes, strict=True)
    ]
    return Prediction(
        median=np.where(single, pairs.median[start], np.exp(median)),
        lower=np.where(single, pairs.lower[start], np.exp(median - below)),
        upper=np.where(single, pairs.upper[start], np.exp(median + above)),
        feasibility=np.where(single, pairs.feasibility[start], fits_by_sum(share)),
        source=tuple(
            pairs.source[first] if alone else Source.COMPOSED if why is None else Source.ABSTAINED
            for first, alone, why in zip(start.tolist(), single.tolist(), silent, strict=True)
        ),
        reason=tuple("" if why is None else pairs.reason[why] for why in silent),
    )


def memory_share(jobs: Sequence[JobProfile | None], device_memory_bytes: float) -> float:
    """Sum of the peaks ÷ the device's memory; NaN where one is unknown."""
    peaks = [float("nan") if job is None else job.expected_peak_bytes for job in jobs]
    return sum(peaks) / device_memory_bytes
