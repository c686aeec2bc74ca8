"""Laws of composing the slowdown of a job beside several from its slowdowns beside each."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.predict.groups import (
    DEFAULT_COMPOSITION,
    CopyShares,
    GroupComposition,
    composed_slowdown,
    composition_from_json,
    pair_excess,
)

COMPOSITIONS = st.builds(
    GroupComposition, growth=st.floats(0.0, 1.5), saturation=st.floats(2.0, 8.0), share_weight=st.floats(0.0, 1.0)
)
SLOWDOWNS = st.floats(0.7, 6.0)


def test_the_composition_adds_up_and_grows_beside_light_neighbours() -> None:
    assert composed_slowdown([1.5]) == 1.5
    light, busy = 1.1, 2.0  # beside each of four busy others half of the device is left: five take turns
    assert composed_slowdown([busy] * 4) == pytest.approx(5.0, rel=0.06)
    assert composed_slowdown([light] * 4) > 1 + 4 * 0.1 * 1.5


@given(COMPOSITIONS, st.lists(SLOWDOWNS, min_size=1, max_size=11), SLOWDOWNS)
def test_another_neighbour_or_a_larger_slowdown_never_lowers_the_answer(
    composition: GroupComposition, beside: list[float], other: float
) -> None:
    before = composed_slowdown([1.0, *beside], composition)
    assert before >= 1.0
    assert composed_slowdown([1.0, *beside, other], composition) >= before * (1 - 1e-12)
    assert composed_slowdown([1.0, beside[0] + other, *beside[1:]], composition) >= before * (1 - 1e-12)


@given(
    COMPOSITIONS,
    st.lists(st.tuples(SLOWDOWNS, st.booleans()), min_size=2, max_size=6),
    st.tuples(SLOWDOWNS, st.booleans()),
    st.lists(st.floats(1.0, 2.0), min_size=7, max_size=7),
)
def test_nor_does_it_where_the_job_is_known_in_shares_of_the_device(
    composition: GroupComposition, beside: list[tuple[float, bool]], other: tuple[float, bool], steps: list[float]
) -> None:
    in_shares = np.cumprod(steps)  # slowdown of the job in 1 / 2, 1 / 3 … of the device

    def composed(neighbours: list[tuple[float, bool]]) -> float:
        copies = sum(is_copy for _, is_copy in neighbours)
        known = CopyShares(np.array(in_shares[copies - 1] if copies else np.nan), np.array(copies == len(neighbours)))
        return composed_slowdown([slowdown for slowdown, _ in neighbours], composition, known)

    before = composed(beside)
    assert composed([*beside, other]) >= before * (1 - 1e-12)
    larger = [(beside[0][0] + other[0], beside[0][1]), *beside[1:]]
    assert composed(larger) >= before * (1 - 1e-12)


def test_copies_are_answered_between_the_sum_and_their_share_of_the_device() -> None:
    known = CopyShares(np.array([1.9, 1.0, np.nan]), np.array([True, True, False]))
    excess = pair_excess(np.array([1.05, 1.05, 1.05])) * 2
    told = DEFAULT_COMPOSITION.slowdown(excess, 2, known)
    np.testing.assert_allclose(told[:2], [(1.1 + 1.9) / 2, 1.1])
    assert told[2] == DEFAULT_COMPOSITION.slowdown(excess, 2)[2]


def test_the_interval_widens_with_the_number_of_neighbours_and_stays_that_of_a_pair() -> None:
    widths = DEFAULT_COMPOSITION.log_distance(np.full(4, 0.01), np.arange(1, 5))
    assert widths[0] == pytest.approx(0.1)
    assert (np.diff(widths) > 0).all()
    narrower = DEFAULT_COMPOSITION.log_distance(0.01, 3, copies=CopyShares(np.array(2.0), np.array(True)))
    assert widths[0] < float(narrower) < widths[2]


def test_a_composition_survives_a_model_folder() -> None:
    composition = GroupComposition(growth=0.7, errors=(0.1, 0.2, 0.3))
    document = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(composition).items()}
    assert composition_from_json(document) == composition
    with pytest.raises(TypeError):
        composition_from_json({"unheard_of": 1.0})
    for broken in ({"growth": float("nan")}, {"growth": -0.1}, {"share_weight": 1.5}, {"errors": [0.1, -0.2, 0.3]}):
        with pytest.raises(ValueError, match="out of range"):
            composition_from_json(broken)
