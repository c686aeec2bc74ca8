"""Features of several copies in a slice, computed from the latencies of one copy at other batches and slices.

Further copies mean more work at once and a smaller share of the slice per copy: n copies of batch b do the work of a
batch n·b, and each copy has g/n of a slice of g compute units. Log latencies are interpolated between measured batches
and slices, and extrapolated by a power law outside: latency grows with the batch and falls with the share.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from interfere.predict.copies.measurements import Configuration
from interfere.predict.copies.queueing import OneCopyTimes, demands_of_batch, demands_of_model

Floats = NDArray[np.float64]


class Fact(IntEnum):
    """Columns of `facts_of`; all are logarithms. T(g, b): latency of one copy."""

    COPIES = 0
    SLICE = 1
    THROUGHPUT = 2  # throughput of one copy ÷ the highest throughput of one copy at any batch
    SAME_WORK = 3  # T(g, n·b) ÷ T(g, b)
    SLICE_SHARE = 4  # T(g/n, b) ÷ T(g, b)
    HALF_SLICE = 5  # T(g/2, b) ÷ T(g, b)
    FASTEST = 6  # T(g, b) ÷ the lowest latency of batch b in any slice
    LATENCY = 7  # T(g, b)
    QUEUE_OF_MODEL = 8  # slowdown in a queueing network whose demands explain all batches
    QUEUE_OF_BATCH = 9  # slowdown in a queueing network with demands fitted to this batch alone


def facts_of(times: OneCopyTimes, several: Sequence[Configuration]) -> Floats:
    """Return float64[c, 10]: the facts of configurations of several copies; one copy of each must be measured."""
    if not several:
        return np.zeros((0, len(Fact)))
    model = demands_of_model(times)
    of_batch = {batch: demands_of_batch(times, batch) for batch in {key.batch for key in several}}
    return np.array(
        [
            [
                *_ratios(times, key),
                model.of(key.slice_size, key.batch).log_slowdown(key.copies),
                of_batch[key.batch].of(key.slice_size).log_slowdown(key.copies),
            ]
            for key in several
        ]
    )


def _ratios(times: OneCopyTimes, key: Configuration) -> list[float]:
    """Return the columns of `Fact` up to `LATENCY` for one configuration."""
    size, batch, copies = key
    here = float(np.log(times[size, batch]))
    batches = sorted((b, time_s) for (g, b), time_s in times.items() if g == size)
    shares = sorted((g, time_s) for (g, b), time_s in times.items() if b == batch)
    most = max(b / time_s for b, time_s in batches)
    return [
        float(np.log(copies)),
        float(np.log(size)),
        float(np.log(batch) - here - np.log(most)),
        _log_time(batches, copies * batch, beyond=1.0) - here,
        _log_time(shares, size / copies, beyond=-1.0) - here,
        _log_time(shares, size / 2, beyond=-1.0) - here,
        float(here - np.log(min(time_s for _, time_s in shares))),
        here,
    ]


def _log_time(times: Sequence[tuple[int, float]], at: float, *, beyond: float) -> float:
    """Return the log time at size `at`, interpolated; outside the measured sizes time ∝ size to the power `beyond`."""
    sizes, logs = np.log([size for size, _ in times]), np.log([time_s for _, time_s in times])
    inside = float(np.clip(np.log(at), sizes[0], sizes[-1]))
    return float(np.interp(inside, sizes, logs)) + beyond * (float(np.log(at)) - inside)
