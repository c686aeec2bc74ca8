"""Slowdown of a job beside several others, composed from its slowdowns beside each of them.

With the excess x = Σ max(s[i, j] - 1, 0) over m neighbours j, of mean x̄ = x / m,

    s[i | j1 … jm] = 1 + x · (1 + GROWTH · min(m - 1, 3) · exp(-SATURATION · x̄))

Slowdowns add up, as of jobs that take turns; beside neighbours that each leave most of a device free the device fills
up with their number, so the excess grows faster than the sum at first. One neighbour gives the pair. Law: another
neighbour, or a larger slowdown beside one, never lowers the answer. The interval is that of the pairs, distances of
logarithms to the median added in quadrature, widened with every neighbour beyond the first.

Chosen on ParvaGPU's table of an A100 (Kim et al., SC 2024): two to five copies of 11 models, whole models held out.
Mean error in % at three, four and five copies (`tests/bench/test_groups.py`): product 15, 38, 74; sum 5.9, 10.6, 15.1;
this 5.4, 9.2, 13.9. The same table gives the widening; nothing there is about groups of different models. Such an
answer has the source COMPOSED. A group fits when the sum of all peaks does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interfere.predict.feasibility import fits_by_peak_sum
from interfere.records import JobProfile, Prediction, Source

Floats = NDArray[np.float64]

GROWTH, SATURATION = 0.40, 3.1  # least mean error at three to five copies, over all models of the table
MAX_FURTHER = 3  # neighbours beyond the first up to which the growth was measured; it grows no further
SIZE_ERROR = 0.13  # of the logarithm, for each neighbour beyond the first: half of the 5-95 % range of models held out


def group_slowdown(excess: ArrayLike, neighbours: ArrayLike) -> Floats:
    """float64[...]: slowdown beside m ≥ 1 `neighbours` whose slowdowns exceed 1 by `excess` in all."""
    total, m = np.asarray(excess, dtype=np.float64), np.asarray(neighbours, dtype=np.float64)
    growth = GROWTH * np.minimum(m - 1, MAX_FURTHER)
    return np.asarray(1.0 + total * (1.0 + growth * np.exp(-SATURATION * total / m)))


def composed_slowdown(slowdowns: Sequence[float]) -> float:
    """The slowdown of one job from those beside each of its neighbours, at least one."""
    if len(slowdowns) == 1:
        return slowdowns[0]
    return float(group_slowdown(pair_excess(slowdowns).sum(), len(slowdowns)))


def pair_excess(slowdown: ArrayLike) -> Floats:
    """float64[...]: what a neighbour adds to the excess; nothing where it would speed the job up."""
    return np.asarray(np.maximum(np.asarray(slowdown, dtype=np.float64) - 1.0, 0.0))


def group_log_distance(squared_distances: ArrayLike, neighbours: ArrayLike, scale: float = 1.0) -> Floats:
    """float64[...]: distance of the logarithm to the end of an interval, from the sum of squares of the pairs' own.

    `scale`: that distance of the quantile in question over that of the 5-95 % interval.
    """
    widening = scale * SIZE_ERROR * (np.asarray(neighbours, dtype=np.float64) - 1)
    return np.asarray(np.sqrt(np.asarray(squared_distances, dtype=np.float64) + widening**2))


def compose_groups(pairs: Prediction, sizes: Sequence[int], share: Floats) -> Prediction:
    """One answer per question, from the answers for the pairs of a victim with each of its neighbours.

    `sizes`: question k owns the next `sizes[k]` pairs. `share` float64[q]: peaks of the victim and all its neighbours ÷
    the device's memory. A question of one pair keeps that pair's answer; a question with a pair that abstains abstains
    for the same reason.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    neighbours = np.array(sizes)
    single = neighbours == 1

    def sum_by_question(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, start))

    median = group_slowdown(sum_by_question(pair_excess(pairs.median)), neighbours)
    below, above = (
        group_log_distance(sum_by_question(np.log(end / pairs.median) ** 2), neighbours)
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
