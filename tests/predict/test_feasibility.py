"""Laws of the probability that two jobs fit in memory together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interfere.predict.feasibility import Feasibility, fits_by_peak_sum

MODEL = Feasibility(level=1.0, slope=-8.0, effect=np.array([0.0, 2.0, -3.0]))


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.integers(0, 2), st.integers(0, 2))
def test_more_memory_never_fits_better_and_roles_do_not_matter(less: float, more: float, i: int, j: int) -> None:
    share = np.array(sorted((less, more)))
    first, second = np.array([i, i]), np.array([j, j])
    chance = MODEL.probability(share, first, second)
    assert chance[0] >= chance[1]
    np.testing.assert_array_equal(chance, MODEL.probability(share, second, first))


def test_unknown_memory_gives_no_probability() -> None:
    zero = np.array([0])
    assert np.isnan(MODEL.probability(np.array([np.nan]), zero, zero))
    assert fits_by_peak_sum(np.array([0.5, 1.0, 1.01, np.nan])).tolist()[:3] == [1.0, 1.0, 0.0]
    assert MODEL.probability(np.array([0.0]), zero, zero) == 1.0
