"""Answers for groups from those for their pairs."""

import numpy as np
import pytest

from interfere.predict.groups import DEFAULT_COMPOSITION, compose_groups, composed_slowdown, total_memory_share
from interfere.records import Prediction, Source
from tests.models import profile

PAIRS = Prediction(
    median=np.array([1.5, 1.2, 2.0, np.nan]),
    lower=np.array([1.4, 1.1, 1.0, np.nan]),
    upper=np.array([1.8, 1.3, 3.0, np.nan]),
    feasibility=np.array([0.7, 1.0, 1.0, 1.0]),
    source=(Source.MEASURED, Source.MODEL, Source.MODEL, Source.ABSTAINED),
    reason=("", "", "", "measure it first"),
)


def test_slowdowns_of_a_group_add_up_and_grow_while_neighbours_leave_the_device_free() -> None:
    made = compose_groups(PAIRS, [2, 1, 1], np.array([0.9, 0.9, 0.9]))
    assert 1 + 0.5 + 0.2 < made.median[0] < 1 + (0.5 + 0.2) * (1 + DEFAULT_COMPOSITION.growth)
    assert composed_slowdown([1.5, 1.2]) == made.median[0]
    assert made.source == (Source.COMPOSED, Source.MODEL, Source.ABSTAINED)


def test_an_interval_widens_with_its_pairs_and_with_the_size_of_the_group() -> None:
    made = compose_groups(PAIRS, [2, 1, 1], np.array([0.9, 0.9, 0.9]))
    apart = np.hypot(np.hypot(np.log(1.8 / 1.5), np.log(1.3 / 1.2)), DEFAULT_COMPOSITION.errors[0])
    assert made.upper[0] == pytest.approx(made.median[0] * np.exp(apart))
    assert made.lower[0] < made.median[0] < made.upper[0]


def test_a_pair_keeps_its_answer() -> None:
    made = compose_groups(PAIRS, [1, 1, 1, 1], np.full(4, 9.0))
    for name in ("median", "lower", "upper", "feasibility"):
        np.testing.assert_array_equal(getattr(made, name), getattr(PAIRS, name))
    assert (made.source, made.reason) == (PAIRS.source, PAIRS.reason)


def test_a_group_with_an_abstaining_pair_abstains_for_its_reason() -> None:
    made = compose_groups(PAIRS, [1, 3], np.array([0.5, 0.5]))
    assert np.isnan(made.median[1])
    assert (made.source[1], made.reason[1]) == (Source.ABSTAINED, "measure it first")


def test_a_group_fits_when_the_sum_of_its_peaks_does() -> None:
    jobs = [profile("train", memory_peak_bytes=4e9)] * 3
    assert total_memory_share(jobs, 10e9) == pytest.approx(1.2)
    assert np.isnan(total_memory_share([*jobs, None], 10e9))
    assert compose_groups(PAIRS, [3, 1], np.array([1.2, 0.5])).feasibility[0] == 0.0
