"""Quantiles of held-out residuals."""

import numpy as np
import pytest

from training.intervals import LEVELS, cross_coverage, residual_grid


def test_the_grid_is_the_quantiles_in_ascending_order() -> None:
    grid = residual_grid(np.linspace(-1, 1, 201))
    assert grid.tolist() == pytest.approx([2 * level - 1 for level in LEVELS])
    assert list(LEVELS) == sorted(LEVELS)
    assert {0.05, 0.5, 0.95} <= set(LEVELS)


def test_coverage_uses_the_other_folds_only() -> None:
    rng = np.random.default_rng(0)
    residual, fold = rng.normal(size=2000), np.repeat([0, 1], 1000)
    assert cross_coverage(residual, fold) == pytest.approx(0.9, abs=0.03)
    residual[fold == 1] += 100  # the second fold lies outside of what the first one taught, and the other way round
    assert cross_coverage(residual, fold) == 0
    assert np.isnan(cross_coverage(residual, np.zeros(2000)))
