"""Means and intervals over blocks against published quantiles and against sampling; a disturbed block weighs little."""

import math
from itertools import pairwise

import numpy as np
import pytest

from interfere.profiling.schedule import (
    BLOCK_ERROR,
    T_975,
    BlockEstimate,
    has_converged,
    log_half_width,
    mean_slowdown,
    scale_factor,
)


def test_quantiles_of_the_published_table() -> None:
    # NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
    assert (T_975[0], T_975[4], T_975[9], T_975[29]) == (12.706, 2.571, 2.228, 2.042)
    assert all(before > after for before, after in pairwise(T_975))


def test_equal_blocks_are_averaged_and_a_disturbed_one_weighs_little() -> None:
    assert mean_slowdown([BlockEstimate(1.0, 0.02), BlockEstimate(1.21, 0.02)]) == pytest.approx(1.1)
    assert mean_slowdown([BlockEstimate(1.5, 0.01), BlockEstimate(3.0, 0.5)]) == pytest.approx(1.5, rel=0.01)
    assert math.isnan(mean_slowdown([]))


def test_the_interval_is_wide_where_blocks_are_disturbed_or_disagree() -> None:
    calm = log_half_width([BlockEstimate(1.5, 0.01)] * 2)
    assert 0.01 < calm < 0.03
    assert has_converged([[BlockEstimate(1.5, 0.01)] * 2])
    assert log_half_width([BlockEstimate(1.5, 0.3)] * 2) > 0.3
    assert log_half_width([BlockEstimate(1.5, 0.01), BlockEstimate(1.8, 0.01)]) > 3 * calm
    assert calm < log_half_width([BlockEstimate(1.5, 0.01)]) < math.inf, "one block has an interval too"
    assert log_half_width([]) == math.inf
    assert log_half_width([BlockEstimate(1.5, 0.01)] * 2, scale=3.0) > 2 * calm


@pytest.mark.parametrize("understated", [1.0, 3.0])
def test_intervals_cover_the_truth_also_where_blocks_understate_their_errors(understated: float) -> None:
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(400):
        errors = rng.uniform(0.005, 0.1, size=2)
        true_errors = understated * np.hypot(errors, BLOCK_ERROR)
        values = np.exp(math.log(1.7) + true_errors * rng.standard_normal(2))
        rows.append([BlockEstimate(float(value), float(error)) for value, error in zip(values, errors, strict=True)])
    scale = scale_factor(rows)
    assert scale == pytest.approx(understated, rel=0.15)
    covered = [abs(math.log(mean_slowdown(row) / 1.7)) <= log_half_width(row, scale) for row in rows]
    assert 0.92 < np.mean(covered) <= 0.99


def test_the_scale_is_one_at_least_and_of_few_rows_near_one() -> None:
    assert scale_factor([]) == 1.0
    assert scale_factor([[BlockEstimate(1.5, 0.01)] * 3] * 50) == 1.0
    assert 1.0 <= scale_factor([[BlockEstimate(1.5, 0.01), BlockEstimate(1.55, 0.01)]]) < 1.5
