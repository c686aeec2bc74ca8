"""Throughput of one inference model in MIG slices by slice, batch size and number of copies, and what one copy tells.

Further copies mean more work at once and a smaller share of the slice per copy: n copies of batch b do the work of a
batch n·b, and each copy has g/n of a slice of g compute units. Log latencies are interpolated between measured batches
and slices, and extrapolated by a power law outside: latency grows with the batch and falls with the share.

Copies in one slice are also a closed queueing network, with demands fitted to the latencies of one copy. A batch
occupies the host for h while its kernels run; it spends z off the slice (think time), and its kernels need the slice
for S: latency of one copy = max(h, z + S), with a smooth maximum. n copies are n customers of one processor-sharing
server with demand S and think time z. Mean value analysis (Reiser & Lavenberg 1980, "Mean-value analysis of closed
multichain queuing networks", JACM 27(2)) gives their latency, which is at least h. So further copies are free while
one copy leaves the slice idle, and n copies take n times as long if one copy fills the slice.

The demands are fitted to times of one copy, in a slice of g compute units with batch b:

    all batches and slices together:  z = z₁·b,  S = w₀ / g^LAUNCH_POWER + w₁·b / g^ITEM_POWER
    one batch in every slice:         S = w / g^BATCH_POWER

The first fit separates host time from slice time by the growth with the batch; the second fits each batch better.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from interfere.data.importers.parvagpu import Configuration, read_model

COPIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurements:
    """Throughput per copy in requests/s by configuration; 0 if the copies did not fit or were not run."""

    name: str
    throughput: Mapping[Configuration, float]

    def latency_s(self, configuration: Configuration) -> float:
        """Return the latency of a batch; infinite if the copies did not fit. Raises KeyError if it was not measured."""
        rate = self.throughput[configuration]
        return configuration.batch / rate if rate > 0 else float("inf")

    def of_one_copy(self) -> "ModelMeasurements":
        """Return these measurements restricted to configurations of one copy."""
        rows = {key: rate for key, rate in self.throughput.items() if key.copies == 1}
        return ModelMeasurements(name=self.name, throughput=rows)

    def one_copy_latencies_s(self) -> dict[tuple[int, int], float]:
        """Return the batch latency of one copy in seconds by (slice size, batch size), where the copy fits."""
        return {
            (key.slice_size, key.batch): key.batch / rate
            for key, rate in self.throughput.items()
            if key.copies == 1 and rate > 0
        }


def read_measurements(path: Path) -> tuple[ModelMeasurements, ...]:
    """Return one model per CSV file of a folder in ParvaGPU's columns. Raises TableError with file, row and column."""
    models = []
    for file in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        throughput = {configuration: rate for configuration, (_, rate) in read_model(file)[1].items()}
        models.append(ModelMeasurements(name=file.stem, throughput=throughput))
    return tuple(models)


def instances(slice_size: int) -> int:
    """Return the number of slices of one size on an A100: 7, 3, 2, 1, 1 by NVIDIA's MIG profiles."""
    return {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}[slice_size]


Floats = NDArray[np.float64]
OneCopyTimes = Mapping[tuple[int, int], float]
"""Latency of one copy, s, by (slice, batch)."""

# Kernels of a few blocks gain less from a larger slice than full kernels; one batch mixes both kinds.
LAUNCH_POWER, ITEM_POWER, BATCH_POWER = 0.6, 1.05, 0.9
SHARPNESS = 6.0  # of the smooth maximum (a^p + b^p)^(1/p)
# Of logarithms of times: beyond it a row counts as an outlier. A model of one batch has fewer rows to explain.
TIME_ERROR, TIME_ERROR_OF_BATCH = 0.08, 0.05


class BatchDemand(NamedTuple):
    """Service demands of one batch on its host and its slice, in seconds."""

    host_s: float  # h
    think_s: float  # z
    service_s: float  # S

    def log_slowdown(self, copies: int) -> float:
        """Return the logarithm of the latency of `copies` copies ÷ the latency of one copy."""
        waiting, latency_s = 0.0, []
        for present in range(1, copies + 1):
            response_s = self.service_s * (1 + waiting)
            waiting = present * response_s / (self.think_s + response_s)
            latency_s.append(float(_smooth_maximum(self.host_s, self.think_s + response_s)))
        return float(np.log(latency_s[-1] / latency_s[0]))


class ModelDemands(NamedTuple):
    """Parameters of the service demands of any batch size on any slice size, in seconds."""

    host_s: float  # h
    transfer_s: float  # z₁
    launch_s: float  # w₀
    item_s: float  # w₁

    def of(self, size: int, batch: int) -> BatchDemand:
        """Return the seconds that a batch of requests needs of the host, the transfer and a MIG slice of this size."""
        service_s = self.launch_s / size**LAUNCH_POWER + self.item_s * batch / size**ITEM_POWER
        return BatchDemand(self.host_s, self.transfer_s * batch, service_s)


def demands_of_model(times: OneCopyTimes) -> ModelDemands:
    """Return the demands fitted to all latencies of one copy (at least one), with a prior on every parameter."""
    size, batch = np.array(list(times), dtype=np.float64).T
    log_time = np.log(list(times.values()))
    fullest = max(times, key=lambda key: (-key[0], key[1]))  # the smallest slice is the surest to be busy
    log_item = float(np.log(times[fullest] / fullest[1] * fullest[0] ** ITEM_POWER))
    prior = np.array([log_time.min(), log_item - 2.5, log_item, log_item])  # a transfer takes 8 % of the work

    def log_latency(demands: Floats) -> Floats:
        host_s, transfer_s, launch_s, item_s = demands
        on_slice = launch_s / size**LAUNCH_POWER + item_s * batch / size**ITEM_POWER
        return np.log(_smooth_maximum(host_s, transfer_s * batch + on_slice))

    return ModelDemands(*_fit(log_latency, log_time, prior, np.array([0.5, 1.0, 0.5, 0.3]), TIME_ERROR))


class FixedBatchDemands(NamedTuple):
    """Parameters of the service demands of one batch size on any slice size, in seconds."""

    host_s: float  # h
    think_s: float  # z
    work_s: float  # w

    def of(self, size: int) -> BatchDemand:
        """Return the seconds that a batch of requests needs of the host, of waiting and of a MIG slice of this size."""
        return BatchDemand(self.host_s, self.think_s, self.work_s / size**BATCH_POWER)


def demands_of_batch(times: OneCopyTimes, batch: int) -> FixedBatchDemands:
    """Return the demands fitted to the latencies of one batch size in every measured slice (at least one)."""
    of_batch = sorted((g, time_s) for (g, b), time_s in times.items() if b == batch)
    slices, log_time = np.array([g for g, _ in of_batch], dtype=np.float64), np.log([t for _, t in of_batch])
    prior = np.array([log_time[-1] - 0.1, log_time[-1] - 1.5, log_time[0] - 0.5])

    def log_latency(demands: Floats) -> Floats:
        host_s, think_s, work_s = demands
        return np.log(_smooth_maximum(host_s, think_s + work_s / slices**BATCH_POWER))

    return FixedBatchDemands(*_fit(log_latency, log_time, prior, np.array([0.7, 1.0, 0.5]), TIME_ERROR_OF_BATCH))


def _fit(
    log_latency: Callable[[Floats], Floats], log_time: Floats, log_prior: Floats, spread: Floats, error: float
) -> list[float]:
    """Return the demands with the least error of log latencies, under a soft L1 loss and a log-normal prior."""

    def residuals(log_demands: Floats) -> Floats:
        of_times = (log_latency(np.exp(log_demands)) - log_time) / error
        return np.concatenate([of_times, (log_demands - log_prior) / spread])

    return [float(each) for each in np.exp(least_squares(residuals, log_prior, loss="soft_l1").x)]


def _smooth_maximum(first: ArrayLike, second: ArrayLike) -> Floats:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return np.asarray((a**SHARPNESS + b**SHARPNESS) ** (1 / SHARPNESS))


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
