"""Intervals and means computed by hand, and the stopping rule."""

import math

import numpy as np
import pytest

from interfere.profiling.intervals import T_975, geometric_mean, has_converged, log_half_width


def test_intervals_by_hand() -> None:
    # log 1, log e²: mean 1, sd √2, half-width 12.706 · √2 / √2.
    assert log_half_width([1.0, math.e**2]) == pytest.approx(12.706)
    assert log_half_width([1.0, math.e, math.e**2]) == pytest.approx(4.303 / math.sqrt(3))
    assert log_half_width([1.3]) == math.inf
    assert log_half_width([1.1, 1.2] * 20) == pytest.approx(1.96 * np.std(np.log([1.1, 1.2] * 20), ddof=1) / 40**0.5)
    assert list(T_975) == sorted(T_975, reverse=True)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_a_pair_has_converged_when_both_sides_are() -> None:
    assert has_converged([[1.5, 1.501, 1.499], [2.0, 2.001, 2.0]])
    assert not has_converged([[1.5, 1.501, 1.499], [2.0, 2.5, 2.0]])
    assert not has_converged([[1.5]])
