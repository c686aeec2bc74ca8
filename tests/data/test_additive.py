"""The additive fit against tables made by hand."""

import math
from dataclasses import replace

import pytest

from interfere.data.additive import fit_additive, fit_of, replicate_sd
from tests.data.sample import PAIR, TABLE

NAMES = ["a", "a", "b", "b"], ["a", "b", "a", "b"]


def test_effects_are_told_apart_and_sum_to_zero() -> None:
    # victim a −1, b +1; neighbour a −0.5, b +0.5; mean 3.
    fit = fit_additive(*NAMES, [1.5, 2.5, 3.5, 4.5])
    assert fit.mean == pytest.approx(3.0)
    assert dict(fit.victims) == pytest.approx({"a": -1.0, "b": 1.0})
    assert dict(fit.neighbours) == pytest.approx({"a": -0.5, "b": 0.5})
    assert fit.residuals == pytest.approx((0, 0, 0, 0))
    assert fit.r2 == pytest.approx(1.0)


def test_a_missing_row_leaves_the_effects_where_they_were() -> None:
    fit = fit_additive(["a", "a", "b"], ["a", "b", "a"], [1.5, 2.5, 3.5])
    assert fit.mean == pytest.approx(3.0)
    assert dict(fit.victims) == pytest.approx({"a": -1.0, "b": 1.0})


def test_residuals_are_the_interaction() -> None:
    fit = fit_additive(*NAMES, [1.0, -1.0, -1.0, 1.0])
    assert fit.residuals == pytest.approx((1, -1, -1, 1))
    assert fit.mean == pytest.approx(0.0)


def test_nothing_and_one_row() -> None:
    empty = fit_additive([], [], [])
    assert math.isnan(empty.r2)
    assert empty.residuals == ()
    one = fit_additive(["a"], ["b"], [0.4])
    assert math.isnan(one.r2)
    assert one.mean == pytest.approx(0.4)


def test_only_ok_rows_are_fitted() -> None:
    assert len(fit_of(TABLE).residuals) == 3


def test_replicates_are_pooled_within_rows() -> None:
    e = math.e
    # Rows (1, e²) and (1, 1): squares 2 and 0 about their means, two degrees of freedom.
    rows = [replace(PAIR, passes=(1.0, e**2)), replace(PAIR, passes=(1.0, 1.0))]
    assert replicate_sd(rows) == pytest.approx(1.0)
    assert math.isnan(replicate_sd([replace(PAIR, passes=(1.5,))]))
