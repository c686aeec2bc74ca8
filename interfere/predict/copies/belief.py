"""What is believed of the latencies of several copies of a model of which only one copy was measured.

What further copies bring is more work at once, and a smaller share of the slice for each. So the slowdown of n copies
of batch b in a slice of g is explained by what one copy does elsewhere:

    n,  g,  throughput(g, b) ÷ the most at any batch,  latency(g, n·b) ÷ latency(g, b),
    latency(g/n, b) ÷ latency(g, b),  latency(g/2, b) ÷ latency(g, b),  latency(g, b) ÷ the least of any slice

as logarithms, interpolated between measured batches and slices; beyond them latency grows with the batch and falls with
the share. A Gaussian process over the other models of a table maps them to the logarithm of the slowdown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.errors import TableError
from interfere.predict.copies.gaussian_process import AveragedProcess, fit_process
from interfere.predict.copies.measurements import COPIES, Configuration, ModelMeasurements

Floats = NDArray[np.float64]
_SEVERAL = COPIES[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesBelief:
    """Joint normal logarithms of the latencies of c configurations of one model and batch; certain where measured."""

    configurations: tuple[Configuration, ...]
    mean: Floats  # float64[c], of log seconds
    covariance: Floats  # float64[c, c]; 0 where measured
    does_not_fit: frozenset[Configuration] = frozenset()  # measured so

    @property
    def median_s(self) -> Floats:
        """float64[c]: median latencies."""
        return np.exp(self.mean)

    def given(self, configuration: Configuration, latency_s: float) -> "CopiesBelief":
        """The belief after one more configuration was measured; an infinite latency says that it does not fit."""
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
        """float64[c, count] of equally likely latencies."""
        unknown = np.flatnonzero(np.diag(self.covariance) > 0)
        logs = np.repeat(self.mean[:, None], count, axis=1)
        if len(unknown):
            covariance = self.covariance[np.ix_(unknown, unknown)] + 1e-10 * np.eye(len(unknown))
            logs[unknown] += np.linalg.cholesky(covariance) @ rng.standard_normal((len(unknown), count))
        return np.exp(logs)


class CopiesModel:
    """Latencies of several copies of a model from those of one, learned from other models."""

    def __init__(self, models: Sequence[ModelMeasurements]) -> None:
        """Fit to the rows of several copies of these models. Raises TableError where there are none."""
        rows: list[Floats] = []
        values: list[float] = []
        for model in models:
            alone = model.one_copy_latencies_s()
            for key, rate in model.throughput.items():
                if key.copies > 1 and rate > 0 and (key.slice_size, key.batch) in alone:
                    rows.append(_features(alone, key))
                    values.append(float(np.log(key.batch / rate / alone[key.slice_size, key.batch])))
        if not rows:
            raise TableError(
                "no measurement of several copies beside one of one copy",
                value=f"{len(models)} other models",
                remedy="give a folder of ParvaGPU's CSV files of other models (interfere data fetch parvagpu)",
            )
        self._process: AveragedProcess = fit_process(np.array(rows), np.array(values))

    def belief(self, model: ModelMeasurements, batch: int) -> CopiesBelief:
        """What is believed of one to five copies in every slice in which one copy of the batch was measured."""
        alone = model.one_copy_latencies_s()
        slices = sorted(size for size, each in alone if each == batch)
        if not slices:
            remedy = "measure one copy of that batch in the slices that could be taken"
            raise TableError("no row of one copy", value=f"{model.name}, batch {batch}", remedy=remedy)
        several = [Configuration(size, batch, n) for size in slices for n in _SEVERAL]
        mean, covariance = self._process.predict(np.array([_features(alone, key) for key in several]))
        one = [Configuration(size, batch, 1) for size in slices]
        joint = np.zeros((len(one) + len(several),) * 2)
        joint[len(one) :, len(one) :] = covariance
        solo = np.log([alone[size, batch] for size in slices])
        return CopiesBelief(
            configurations=(*one, *several),
            mean=np.concatenate([solo, mean + np.log([alone[key.slice_size, batch] for key in several])]),
            covariance=joint,
        )


def _features(alone: Mapping[tuple[int, int], float], key: Configuration) -> Floats:
    """float64[7] of several copies, from the latencies of one copy by (slice, batch)."""
    size, batch, copies = key
    here = np.log(alone[size, batch])
    batches = sorted((b, time_s) for (g, b), time_s in alone.items() if g == size)
    shares = sorted((g, time_s) for (g, b), time_s in alone.items() if b == batch)
    most = max(b / time_s for b, time_s in batches)
    return np.array(
        [
            np.log(copies),
            np.log(size),
            np.log(batch) - here - np.log(most),
            _log_time(batches, copies * batch, beyond=1.0) - here,
            _log_time(shares, size / copies, beyond=-1.0) - here,
            _log_time(shares, size / 2, beyond=-1.0) - here,
            here - np.log(min(time_s for _, time_s in shares)),
        ]
    )


def _log_time(times: Sequence[tuple[int, float]], at: float, *, beyond: float) -> float:
    """Logarithm of a time between measured ones; outside of them it changes with the power `beyond` of the size."""
    sizes, logs = np.log([size for size, _ in times]), np.log([time_s for _, time_s in times])
    inside = float(np.clip(np.log(at), sizes[0], sizes[-1]))
    return float(np.interp(inside, sizes, logs)) + beyond * (float(np.log(at)) - inside)
