"""Advice on the MIG slice and the number of copies of a model, and on the most useful next measurement.

A configuration is good if it meets the latency target and has at least (1 - TOLERANCE) of the highest throughput of
all configurations that meet the target. Among the configurations with a miss probability of at most the caller's risk,
the advice is the configuration with the highest probability of being good. If every configuration exceeds the risk, the
advice is the configuration with the lowest miss probability.

The belief about a model of which one copy alone was measured is the mean of three Gaussian processes with different
inputs from `copies/measurements.py` (views), since none is the best for every model. Each process is fitted to the
other models of a table and predicts the log slowdown minus the log slowdown of a queueing network. The differences
between the three predictions are part of the covariance.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from interfere.data.importers.parvagpu import Configuration
from interfere.errors import InvalidInputError, TableError
from interfere.predict.copies.measurements import COPIES, Fact, ModelMeasurements, facts_of, instances
from interfere.predict.field.spaces import root_of

Floats = NDArray[np.float64]
_SEVERAL = COPIES[1:]
FITTED_ROWS = 300  # rows for the kernel parameters; with more rows the parameters overfit single models
_SEED = 0  # of the random choice of `FITTED_ROWS` rows
_VARIANCES, _LENGTHS = (np.exp(-12.0), np.exp(9.0)), (np.exp(-2.5), np.exp(4.6))  # bounds, in standard units
_RATIOS = (
    Fact.COPIES,
    Fact.SLICE,
    Fact.THROUGHPUT,
    Fact.SAME_WORK,
    Fact.SLICE_SHARE,
    Fact.HALF_SLICE,
    Fact.FASTEST,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The input columns of one Gaussian process, and the queueing network's slowdown that it corrects."""

    facts: tuple[Fact, ...]
    expected: Fact


VIEWS = (
    _View(facts=(*_RATIOS, Fact.QUEUE_OF_MODEL), expected=Fact.QUEUE_OF_MODEL),
    _View(  # without other batch sizes, for which some tables hold wrong times
        facts=(
            Fact.COPIES,
            Fact.SLICE,
            Fact.SLICE_SHARE,
            Fact.HALF_SLICE,
            Fact.FASTEST,
            Fact.QUEUE_OF_BATCH,
            Fact.LATENCY,
        ),
        expected=Fact.QUEUE_OF_BATCH,
    ),
    _View(facts=(*_RATIOS, Fact.QUEUE_OF_BATCH, Fact.QUEUE_OF_MODEL), expected=Fact.QUEUE_OF_BATCH),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesBelief:
    """Joint normal distribution of the log latencies of c configurations of one model and batch size."""

    configurations: tuple[Configuration, ...]
    mean: Floats  # float64[c], of log seconds
    covariance: Floats  # float64[c, c]; 0 where measured
    does_not_fit: frozenset[Configuration] = frozenset()  # configurations measured not to fit in memory

    @property
    def median_s(self) -> Floats:
        """Return float64[c]: the median latencies in seconds."""
        return np.exp(self.mean)

    def given(self, configuration: Configuration, latency_s: float) -> "CopiesBelief":
        """Return the posterior after a measurement; an infinite latency means that the configuration does not fit."""
        if np.isinf(latency_s):
            return replace(self, does_not_fit=self.does_not_fit | {configuration})
        k = self.configurations.index(configuration)
        variance = self.covariance[k, k]
        if variance <= 0:
            return self
        gain = self.covariance[:, k] / variance
        covariance = self.covariance - np.outer(gain, self.covariance[k])
        covariance[k], covariance[:, k] = 0.0, 0.0
        mean = self.mean + gain * (np.log(latency_s) - self.mean[k])
        return replace(self, mean=mean, covariance=covariance)

    def scenarios_s(self, count: int, rng: np.random.Generator) -> Floats:
        """Return float64[c, count]: sampled latencies in seconds, one column per sample."""
        unknown = np.flatnonzero(np.diag(self.covariance) > 0)
        logs = np.repeat(self.mean[:, None], count, axis=1)
        if len(unknown):
            covariance = self.covariance[np.ix_(unknown, unknown)] + 1e-10 * np.eye(len(unknown))
            logs[unknown] += root_of(covariance) @ rng.standard_normal((len(unknown), count))
        return np.exp(logs)


class CopiesModel:
    """Predicts the latencies of several copies of a model from the latencies of one copy; fitted to other models."""

    def __init__(self, models: Sequence[ModelMeasurements]) -> None:
        """Fit the processes to the rows of these models with several copies. Raises TableError without such rows."""
        rows: list[Floats] = []
        values: list[float] = []
        for model in models:
            alone = model.one_copy_latencies_s()
            known = [
                key
                for key, rate in model.throughput.items()
                if key.copies > 1 and rate > 0 and (key.slice_size, key.batch) in alone
            ]
            for key, row in zip(known, facts_of(alone, known), strict=True):
                rows.append(row)
                slowdown = model.latency_s(key) / alone[key.slice_size, key.batch]
                values.append(float(np.log(slowdown)))
        if not rows:
            raise TableError(
                "no measurement of several copies beside one of one copy",
                value=f"{len(models)} other models",
                remedy="give a folder of ParvaGPU's CSV files of other models (interfere data fetch parvagpu)",
            )
        facts, log_slowdown = np.array(rows), np.array(values)
        self._processes: tuple[Pipeline, ...] = tuple(
            fit_process(facts[:, view.facts], log_slowdown - facts[:, view.expected]) for view in VIEWS
        )

    def belief(self, model: ModelMeasurements, batch: int) -> CopiesBelief:
        """Return the believed latencies of one to five copies in each MIG slice where one copy of this batch ran."""
        alone = model.one_copy_latencies_s()
        slices = sorted(size for size, each in alone if each == batch)
        if not slices:
            remedy = "measure one copy of that batch in the slices that could be taken"
            raise TableError("no row of one copy", value=f"{model.name}, batch {batch}", remedy=remedy)
        several = [Configuration(size, batch, n) for size in slices for n in _SEVERAL]
        log_slowdown, covariance = self._predict(facts_of(alone, several))
        one = [Configuration(size, batch, 1) for size in slices]
        joint = np.zeros((len(one) + len(several),) * 2)
        joint[len(one) :, len(one) :] = covariance
        solo = np.log([alone[size, batch] for size in slices])
        return CopiesBelief(
            configurations=(*one, *several),
            mean=np.concatenate([solo, log_slowdown + np.log([alone[key.slice_size, batch] for key in several])]),
            covariance=joint,
        )

    def _predict(self, facts: Floats) -> tuple[Floats, Floats]:
        """Return mean float64[c] and covariance float64[c, c] of log slowdowns: an equal mixture of the processes."""
        means, covariances = [], []
        for view, process in zip(VIEWS, self._processes, strict=True):
            mean, covariance = process.predict(facts[:, view.facts], return_cov=True)
            means.append(mean + facts[:, view.expected])
            covariances.append(covariance)
        between = np.cov(np.array(means).T, bias=True)
        return np.mean(means, axis=0), np.mean(covariances, axis=0) + between


def fit_process(rows: Floats, values: Floats) -> Pipeline:
    """Return a Gaussian process fitted to float64[m] values at float64[m, f] rows, both standardised.

    Its kernel is Matérn 5/2 with a length for each column, and noise (Rasmussen & Williams 2006, equation 4.17). The
    kernel's parameters maximise the marginal likelihood of `FITTED_ROWS` rows; the prediction uses all rows, and its
    covariance includes the noise.
    """
    columns = rows.shape[1]
    matern = Matern(np.full(columns, 2.0), [_LENGTHS] * columns, nu=2.5)
    kernel = ConstantKernel(1.0, _VARIANCES) * matern + WhiteKernel(0.05, _VARIANCES)
    scaler = StandardScaler().fit(rows)
    chosen = np.random.default_rng(_SEED).permutation(len(rows))[:FITTED_ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the length of an uninformative column ends at its bound
        found = GaussianProcessRegressor(kernel, normalize_y=True).fit(scaler.transform(rows[chosen]), values[chosen])
    process = GaussianProcessRegressor(found.kernel_, optimizer=None, normalize_y=True)
    return make_pipeline(scaler, process.fit(scaler.transform(rows), values))


TOLERANCE = 0.05
RISK = 0.05  # default of the highest accepted probability of missing the latency target
SCENARIOS = 1_000  # samples; the standard error of a probability is below 1.6 %
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
