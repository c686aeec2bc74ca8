"""Advice on the MIG slice and the number of copies of a model, and on the most useful next measurement.

A configuration is good if it meets the latency target and has at least (1 - TOLERANCE) of the highest throughput of
all configurations that meet the target. Among the configurations with a miss probability of at most the caller's risk,
the advice is the configuration with the highest probability of being good. If every configuration exceeds the risk, the
advice is the configuration with the lowest miss probability.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.predict.copies.belief import CopiesBelief, CopiesModel
from interfere.predict.copies.measurements import Configuration, ModelMeasurements, instances

Floats = NDArray[np.float64]
TOLERANCE = 0.05
RISK = 0.05  # default of the highest accepted probability of missing the latency target
SCENARIOS = 1_000  # samples; the standard error of a probability is below 1.6 %
_SEED = 0
_Z90 = NormalDist().inv_cdf(0.95)  # standard deviations from the median to either end of a 90 % interval


class ThroughputOf(StrEnum):
    """Whether the throughput of one MIG slice or of the whole GPU is maximised."""

    SLICE = "slice"  # of all copies in one slice
    GPU = "gpu"  # of a GPU that is divided into as many such slices as it has


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationOutlook:
    """The predicted latency and throughput of one configuration; lower and upper are the ends of a 90 % interval."""

    configuration: Configuration
    latency_s: float  # median; infinite where it was measured not to fit
    lower_s: float
    upper_s: float
    slowdown: float  # median latency ÷ that of one copy in the same slice
    good_probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesAdvice:
    """The advised configuration, its probabilities, and the configuration that is most useful to measure next."""

    configuration: Configuration
    throughput: float  # requests/s, median
    latency_s: float  # median
    miss_probability: float  # that the latency target is not kept
    good_probability: float
    measure: Configuration | None  # None if every configuration that may be good was measured
    outlooks: tuple[ConfigurationOutlook, ...]  # of every configuration, one copy included


def advise_copies(
    belief: CopiesBelief,
    target_s: float,
    throughput_of: ThroughputOf = ThroughputOf.SLICE,
    *,
    risk: float = RISK,
) -> CopiesAdvice:
    """Return the advice for a latency target of one batch.

    `risk`: highest accepted probability that the target is missed. If no configuration can meet the target, the
    configuration with the lowest latency is advised.
    """
    latencies = belief.scenarios_s(SCENARIOS, np.random.default_rng(_SEED))
    for configuration in belief.does_not_fit:
        latencies[belief.configurations.index(configuration)] = np.inf
    work = np.array([_requests(each, throughput_of) for each in belief.configurations])[:, None]
    throughput = np.where(latencies <= target_s, work / latencies, 0.0)
    good = (throughput > 0) & (throughput >= (1 - TOLERANCE) * throughput.max(axis=0))
    probability, miss = good.mean(axis=1), (latencies > target_s).mean(axis=1)
    # In this order: as little over the risk as possible, good with the highest probability, the least latency.
    k = int(np.lexsort((np.median(latencies, axis=1), -probability, np.maximum(miss, risk)))[0])
    chosen, latency_s = belief.configurations[k], float(np.median(latencies[k]))
    return CopiesAdvice(
        configuration=chosen,
        throughput=float(work[k, 0]) / latency_s,
        latency_s=latency_s,
        miss_probability=float(miss[k]),
        good_probability=float(probability[k]),
        measure=_most_useful(belief, probability),
        outlooks=_outlooks(belief, probability),
    )


def advise_measured_model(
    model: ModelMeasurements,
    others: Sequence[ModelMeasurements],
    *,
    batch: int,
    target_s: float,
    throughput_of: ThroughputOf = ThroughputOf.SLICE,
    risk: float = RISK,
) -> CopiesAdvice:
    """Return the advice for a model from its measurements of one copy, and of several copies if there are any.

    `others`: models to learn from; a model with the name of `model` is left out. Raises TableError where rows
    are missing, InvalidInputError for a latency target that is no time or a risk that is no probability.
    """
    if not 0.0 < target_s < math.inf:
        raise InvalidInputError("latency target: must be above 0 and finite", value=target_s, remedy="give seconds")
    if not 0.0 <= risk <= 1.0:
        raise InvalidInputError("risk: must be a probability", value=risk, remedy="give a number from 0 to 1")
    belief = CopiesModel([each for each in others if each.name != model.name]).belief(model, batch)
    for configuration in model.throughput:
        if configuration.copies > 1 and configuration in belief.configurations:
            belief = belief.given(configuration, model.latency_s(configuration))
    return advise_copies(belief, target_s, throughput_of, risk=risk)


def _outlooks(belief: CopiesBelief, good: Floats) -> tuple[ConfigurationOutlook, ...]:
    """Return the outlook of every configuration; `good` float64[c]: the probability that the configuration is good."""
    median_s, reach = belief.median_s, np.exp(_Z90 * np.sqrt(np.diag(belief.covariance)))
    median_s = np.where([each in belief.does_not_fit for each in belief.configurations], np.inf, median_s)
    one_copy_s = {
        each.slice_size: time_s
        for each, time_s in zip(belief.configurations, median_s.tolist(), strict=True)
        if each.copies == 1
    }
    return tuple(
        ConfigurationOutlook(
            configuration=each,
            latency_s=float(median_s[k]),
            lower_s=float(median_s[k] / reach[k]),
            upper_s=float(median_s[k] * reach[k]),
            slowdown=float(median_s[k]) / one_copy_s[each.slice_size],
            good_probability=float(good[k]),
        )
        for k, each in enumerate(belief.configurations)
    )


def _requests(configuration: Configuration, throughput_of: ThroughputOf) -> int:
    """Return the number of requests that complete in one batch latency."""
    of_slice = configuration.copies * configuration.batch
    return of_slice * (instances(configuration.slice_size) if throughput_of is ThroughputOf.GPU else 1)


def _most_useful(belief: CopiesBelief, probability: Floats) -> Configuration | None:
    """Return the unmeasured configuration that is good with the highest probability; None where none may be good."""
    unknown = [
        k
        for k, each in enumerate(belief.configurations)
        if belief.covariance[k, k] > 0 and each not in belief.does_not_fit and probability[k] > 0
    ]
    return belief.configurations[max(unknown, key=lambda k: probability[k])] if unknown else None
