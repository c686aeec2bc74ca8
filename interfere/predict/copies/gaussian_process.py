"""Gaussian-process regression with a Matérn 5/2 kernel and a length scale for each column.

    k(x, x') = SIGNAL (1 + √5 r + 5 r²/3) exp(-√5 r) + NOISE [x = x'],    r² = Σ ((x_k - x'_k) / LENGTH_k)²

Rasmussen & Williams 2006, equations 4.17, 2.23, 2.24 and 5.9. Columns and values are standardised. The parameters
maximise the marginal likelihood of `FITTED_ROWS` rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]

FITTED_ROWS = 300  # more rows, which are less alike than the rows of one model, fit the noise of single models
_JITTER = 1e-10
_SEED = 0  # of the choice of those rows
_START = (1.0, 0.05)  # variances of signal and noise
_VARIANCE_BOUNDS, _LENGTH_BOUNDS = (-12.0, 9.0), (-2.5, 4.6)  # of their logarithms


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """A fitted process: the posterior of noisy values at new rows, in standard units."""

    rows: Floats  # float64[m, f]
    factor: Floats  # float64[m, m], lower Cholesky factor of the covariance
    weights: Floats  # float64[m]
    log_parameters: Floats  # float64[2 + f]: of the variances of signal and noise, and of the lengths

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean float64[p] and covariance float64[p, p] of the values at new rows, noise included."""
        (signal, noise), lengths = _unpacked(self.log_parameters)
        reduced = solve_triangular(self.factor, signal * _matern(rows, self.rows, lengths)[0].T, lower=True)
        covariance = signal * _matern(rows, rows, lengths)[0] + noise * np.eye(len(rows)) - reduced.T @ reduced
        return signal * _matern(rows, self.rows, lengths)[0] @ self.weights, covariance


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardisedProcess:
    """A process on columns and values in their own units."""

    process: GaussianProcess
    centre: Floats  # float64[f]
    scale: Floats  # float64[f]
    value_centre: float
    value_scale: float

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean float64[p] and covariance float64[p, p] of the values at float64[p, f] rows, noise included."""
        mean, covariance = self.process.predict((rows - self.centre) / self.scale)
        return self.value_centre + self.value_scale * mean, self.value_scale**2 * covariance


def fit_process(rows: Floats, values: Floats) -> StandardisedProcess:
    """Fit float64[m] values at float64[m, f] rows."""
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-12)
    value_centre, value_scale = float(values.mean()), max(float(values.std()), 1e-12)
    return StandardisedProcess(
        process=_fit((rows - centre) / scale, (values - value_centre) / value_scale),
        centre=centre,
        scale=scale,
        value_centre=value_centre,
        value_scale=value_scale,
    )


def _fit(x: Floats, y: Floats) -> GaussianProcess:
    """A process on all rows, its parameters fitted to some of them."""
    chosen = np.random.default_rng(_SEED).permutation(len(x))[:FITTED_ROWS]
    start = np.concatenate([np.log(_START), np.full(x.shape[1], np.log(2.0))])
    bounds: Sequence[tuple[float, float]] = [*[_VARIANCE_BOUNDS] * len(_START), *[_LENGTH_BOUNDS] * x.shape[1]]
    data = (x[chosen], y[chosen])
    found = minimize(_negative_likelihood, start, args=data, jac=True, method="L-BFGS-B", bounds=bounds)
    (signal, noise), lengths = _unpacked(found.x)
    covariance = signal * _matern(x, x, lengths)[0] + (noise + _JITTER) * np.eye(len(x))
    factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    return GaussianProcess(
        rows=x, factor=factor, weights=np.asarray(cho_solve((factor, True), y)), log_parameters=np.asarray(found.x)
    )


def _unpacked(log_parameters: Floats) -> tuple[Floats, Floats]:
    """The variances float64[2] and the lengths float64[f]."""
    parameters = np.exp(log_parameters)
    return parameters[: len(_START)], parameters[len(_START) :]


def _matern(first: Floats, second: Floats, lengths: Floats) -> tuple[Floats, Floats, Floats]:
    """The correlation float64[p, q], √5 r, and the squared differences float64[f, p, q] in units of the lengths."""
    squared = ((first[:, None, :] - second[None, :, :]) / lengths).transpose(2, 0, 1) ** 2
    distance = np.sqrt(5 * squared.sum(axis=0))
    return (1 + distance + distance**2 / 3) * np.exp(-distance), distance, squared


def _negative_likelihood(log_parameters: Floats, x: Floats, y: Floats) -> tuple[float, Floats]:
    """Minus the logarithm of the marginal likelihood, and its gradient."""
    (signal, noise), lengths = _unpacked(log_parameters)
    correlation, distance, squared = _matern(x, x, lengths)
    try:
        factor = np.linalg.cholesky(signal * correlation + (noise + _JITTER) * np.eye(len(x)))
    except np.linalg.LinAlgError:
        return 1e25, np.zeros_like(log_parameters)
    weights = cho_solve((factor, True), y)
    value = 0.5 * y @ weights + np.log(np.diag(factor)).sum()
    slope = np.outer(weights, weights) - cho_solve((factor, True), np.eye(len(x)))
    by_length = slope * signal * 5 / 3 * (1 + distance) * np.exp(-distance)
    gradient = [
        signal * np.sum(slope * correlation),
        noise * np.trace(slope),
        *(np.sum(by_length * each) for each in squared),
    ]
    return float(value), -0.5 * np.array(gradient)
