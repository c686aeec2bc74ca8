"""The additive fit against tables made by hand."""

import math
from dataclasses import replace

import pytest

from interfere.data.additive_fit import JobEffect, fit_additive, fit_table, replicate_sd
from tests.data.sample_table import PAIR, TABLE

NAMES = ["a", "a", "b", "b"], ["a", "b", "a", "b"]


def levels(effects: tuple[JobEffect, ...]) -> dict[str, float]:
    return {effect.name: effect.log_slowdown for effect in effects}


def test_victim_and_neighbour_effects_are_separated() -> None:
    # mean 3, victims a −1 and b +1, neighbours a −0.5 and b +0.5.
    fit = fit_additive(*NAMES, [1.5, 2.5, 3.5, 4.5])
    assert levels(fit.victim_effects) == pytest.approx({"a": 2.0, "b": 4.0})
    assert levels(fit.neighbour_effects) == pytest.approx({"a": 2.5, "b": 3.5})
    assert fit.residuals == pytest.approx((0, 0, 0, 0))
    assert (fit.r2, fit.group_count) == (pytest.approx(1.0), 1)


def test_a_missing_row_does_not_change_the_effects() -> None:
    fit = fit_additive(["a", "a", "b"], ["a", "b", "a"], [1.5, 2.5, 3.5])
    assert levels(fit.victim_effects) == pytest.approx({"a": 2.0, "b": 4.0})
    assert levels(fit.neighbour_effects) == pytest.approx({"a": 2.5, "b": 3.5})


def test_groups_that_no_row_connects_are_fitted_apart() -> None:
    # The same table twice, the second 10 higher and one row larger: nothing of it may leak into the first.
    apart = fit_additive(
        ["a", "a", "b", "b", "c", "c", "d", "d", "d"],
        ["a", "b", "a", "b", "x", "y", "x", "y", "z"],
        [1.5, 2.5, 3.5, 4.5, 11.5, 12.5, 13.5, 14.5, 15.5],
    )
    assert apart.group_count == 2
    assert {effect.name: effect.group for effect in apart.victim_effects} == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert levels(apart.victim_effects) == pytest.approx({"a": 2.0, "b": 4.0, "c": 12.5, "d": 14.5})
    assert apart.residuals == pytest.approx([0] * 9, abs=1e-9)


def test_a_chain_of_rows_is_one_group() -> None:
    assert fit_additive(["a", "b", "b", "c"], ["x", "x", "y", "y"], [0.1, 0.2, 0.3, 0.4]).group_count == 1


def test_residuals_are_the_interaction() -> None:
    fit = fit_additive(*NAMES, [1.0, -1.0, -1.0, 1.0])
    assert fit.residuals == pytest.approx((1, -1, -1, 1))
    assert levels(fit.victim_effects) == pytest.approx({"a": 0.0, "b": 0.0})


def test_fits_of_no_row_and_of_one_row() -> None:
    empty = fit_additive([], [], [])
    assert math.isnan(empty.r2)
    assert (empty.residuals, empty.group_count) == ((), 0)
    one = fit_additive(["a"], ["b"], [0.4])
    assert math.isnan(one.r2)
    assert levels(one.victim_effects) == pytest.approx({"a": 0.4})
    assert levels(one.neighbour_effects) == pytest.approx({"b": 0.4})


def test_only_ok_rows_are_fitted() -> None:
    assert len(fit_table(TABLE).residuals) == 3


def test_replicates_are_pooled_within_rows() -> None:
    e = math.e
    # Rows (1, e²) and (1, 1): squares 2 and 0 about their means, two degrees of freedom.
    rows = [replace(PAIR, passes=(1.0, e**2)), replace(PAIR, passes=(1.0, 1.0))]
    assert replicate_sd(rows) == pytest.approx(1.0)
    assert math.isnan(replicate_sd([replace(PAIR, passes=(1.5,))]))
