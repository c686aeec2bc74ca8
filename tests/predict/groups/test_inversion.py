"""Laws of reading the slowdowns of pairs from that of a group."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.predict.groups import DEFAULT_COMPOSITION, common_log_error, composed_slowdown, excess_shares

SLOWDOWNS = st.lists(st.floats(0.8, 5.0), min_size=2, max_size=8)


@given(SLOWDOWNS, st.floats(0.6, 20.0))
def test_the_pairs_moved_by_their_common_error_compose_the_observed_slowdown(
    slowdowns: list[float], observed: float
) -> None:
    error = common_log_error(slowdowns, observed, DEFAULT_COMPOSITION)
    moved = composed_slowdown([slowdown * math.exp(error) for slowdown in slowdowns])
    assert moved == pytest.approx(max(observed, 1.0), rel=1e-6)
    present = composed_slowdown(slowdowns)
    assert min(present, observed) - 1e-9 <= moved <= max(present, observed) + 1e-9


@given(SLOWDOWNS, st.randoms(use_true_random=False))
def test_the_order_of_neighbours_does_not_matter(slowdowns: list[float], random: object) -> None:
    shuffled = list(slowdowns)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    error, other = (common_log_error(each, 2.0, DEFAULT_COMPOSITION) for each in (slowdowns, shuffled))
    assert error == pytest.approx(other, abs=1e-9)


def test_a_neighbour_answers_by_its_share_of_the_excess() -> None:
    shares = excess_shares([2.0, 1.25, 1.0])
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] == pytest.approx(4 * shares[1], rel=0.05)
    assert 0 < shares[2] < 0.02
    assert excess_shares([0.9, 0.9]).tolist() == [0.5, 0.5]
