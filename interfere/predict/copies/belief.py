"""Posterior of the latencies of several copies of a model for which only one copy was measured.

The mean of three Gaussian processes with different inputs from `one_copy_facts` (views), since none is the best for
every model. Each process is fitted to the other models of a table and predicts the log slowdown minus the log slowdown
of a queueing network. The differences between the three predictions are part of the covariance.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from interfere.errors import TableError
from interfere.predict.copies.measurements import COPIES, Configuration, ModelMeasurements
from interfere.predict.copies.one_copy_facts import Fact, facts_of
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
