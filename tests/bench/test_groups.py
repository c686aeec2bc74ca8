"""How well the slowdown of three to five copies is composed from that of two: ParvaGPU, whole models held out."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from interfere.predict.groups import GROWTH, SATURATION, SIZE_ERROR, group_log_distance, group_slowdown
from tests.bench.parvagpu import CopiesTable, load_copies

pytestmark = pytest.mark.bench
Floats = NDArray[np.float64]
Candidate = Callable[[CopiesTable, NDArray[np.bool_], int], Floats]
"""(table, cases to fit on, copies) -> predicted slowdown of every case, from its slowdown of two copies."""
SIZES = (3, 4, 5)
MAX_ERROR = (5.0, 8.0, 12.0)  # % at three, four and five copies, where the rows with one copy are used
COVERAGE = (0.85, 0.95)


def test_compositions_of_groups() -> None:
    table = load_copies()
    candidates: dict[str, Candidate] = {
        "product": lambda table, _, n: table.slowdown[:, 1] ** (n - 1),
        "sum 1 + Σ(s - 1)": lambda table, _, n: 1 + (n - 1) * (table.slowdown[:, 1] - 1),
        "capacity n·s/2": lambda table, _, n: np.maximum(1.0, n * table.slowdown[:, 1] / 2),
        "growing sum, served": lambda table, fit, n: growing_sum(table.slowdown[:, 1], n, *fit_growth(table, fit)),
        "sum, corrected from rows with one copy": corrected_sum,
        "rows with one copy alone": from_one_copy,
    }
    errors = {}
    for name, candidate in candidates.items():
        predicted = held_out(table, candidate)
        errors[name] = [100 * mean_error(table, predicted, n) for n in SIZES]
        print(f"{name:40}" + "".join(f"{error:7.1f} %" for error in errors[name]))
        if name == "growing sum, served":
            coverages = [coverage(table, predicted, n) for n in SIZES]
            print(f"{'  coverage of its interval':40}" + "".join(f"{100 * share:7.1f} %" for share in coverages))
            assert COVERAGE[0] <= float(np.mean(coverages)) <= COVERAGE[1]
    assert all(e <= limit for e, limit in zip(errors["sum, corrected from rows with one copy"], MAX_ERROR, strict=True))
    assert all(
        ours < other for ours, other in zip(errors["growing sum, served"], errors["sum 1 + Σ(s - 1)"], strict=True)
    )
    everything = np.ones(len(table.model), dtype=bool)
    fitted = fit_growth(table, everything)
    assert fitted == pytest.approx((GROWTH, SATURATION), rel=0.05)


def held_out(table: CopiesTable, candidate: Candidate) -> dict[int, Floats]:
    """The predictions for each model by what was fitted on all others."""
    model = np.array(table.model)
    predicted = {n: np.full(len(model), np.nan) for n in SIZES}
    for name in np.unique(model):
        for n in SIZES:
            predicted[n][model == name] = candidate(table, model != name, n)[model == name]
    return predicted


def mean_error(table: CopiesTable, predicted: dict[int, Floats], n: int) -> float:
    """Mean absolute error of the slowdown, relative, over the cases measured at two and n copies."""
    known = np.isfinite(table.slowdown[:, 1]) & np.isfinite(table.slowdown[:, n - 1])
    return float(np.mean(np.abs(predicted[n][known] / table.slowdown[known, n - 1] - 1)))


def coverage(table: CopiesTable, predicted: dict[int, Floats], n: int) -> float:
    """Share of cases within the widened interval, with the slowdown of two copies taken as exact."""
    known = np.isfinite(table.slowdown[:, 1]) & np.isfinite(table.slowdown[:, n - 1])
    error = np.abs(np.log(predicted[n][known] / table.slowdown[known, n - 1]))
    return float(np.mean(error <= group_log_distance(0.0, n - 1)))


# --- candidates -------------------------------------------------------------------------------------------------------


def growing_sum(slowdown: Floats, n: int, growth: float, saturation: float) -> Floats:
    excess = np.maximum(slowdown - 1, 0)
    return 1 + (n - 1) * excess * (1 + growth * (n - 2) * np.exp(-saturation * excess))


def fit_growth(table: CopiesTable, fit: NDArray[np.bool_]) -> tuple[float, float]:
    def loss(parameters: Floats) -> float:
        total = 0.0
        for n in SIZES:
            known = fit & np.isfinite(table.slowdown[:, 1]) & np.isfinite(table.slowdown[:, n - 1])
            predicted = growing_sum(table.slowdown[known, 1], n, *np.abs(parameters))
            total += float(np.mean(np.abs(predicted / table.slowdown[known, n - 1] - 1)))
        return total

    best = np.abs(minimize(loss, [0.3, 3.0], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-5}).x)
    return float(best[0]), float(best[1])


def corrected_sum(table: CopiesTable, fit: NDArray[np.bool_], n: int) -> Floats:
    """The sum, times a Gaussian process on the pair's slowdown and on what one copy does with more work or less share.

    More work and a smaller share of the device are what further copies bring.
    """
    total = np.log(1 + (n - 1) * np.maximum(table.slowdown[:, 1] - 1, 0))
    inputs = np.column_stack([np.log(np.maximum(table.slowdown[:, 1], 1)), table.features(n)[:, :6]])
    return np.asarray(np.exp(total + _fitted(inputs, np.log(table.slowdown[:, n - 1]) - total, fit)))


def from_one_copy(table: CopiesTable, fit: NDArray[np.bool_], n: int) -> Floats:
    """From the share of the slice that each of n copies has; the slowdown of two copies is not used."""
    share = table.features(n)[:, 1]
    return np.asarray(np.exp(share + _fitted(table.features(n), np.log(table.slowdown[:, n - 1]) - share, fit)))


def _fitted(inputs: Floats, target: Floats, fit: NDArray[np.bool_]) -> Floats:
    at = fit & np.isfinite(target) & np.isfinite(inputs).all(axis=1)
    process = GaussianProcessRegressor(ConstantKernel(0.05) * RBF(np.ones(1)) + WhiteKernel(0.01))
    process.fit(inputs[at], target[at])
    known = np.isfinite(inputs).all(axis=1)
    answer = np.full(len(target), np.nan)
    answer[known] = process.predict(inputs[known])
    return answer


def test_the_served_composition_is_the_fitted_one() -> None:
    slowdown = np.array([1.0, 1.1, 1.5, 2.0])
    for n in SIZES:
        ours = group_slowdown((n - 1) * (slowdown - 1), n - 1)
        np.testing.assert_allclose(ours, growing_sum(slowdown, n, GROWTH, SATURATION))
    assert SIZE_ERROR > 0
