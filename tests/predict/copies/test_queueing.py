"""Copies as customers of a queueing network: its limits, and demands recovered from times that it made."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.predict.copies.measurements import BatchDemand, ModelDemands, demands_of_batch, demands_of_model

times_s = st.floats(1e-5, 1.0)
SLICES, BATCHES = (1, 2, 3, 4, 7), (1, 4, 16, 64)


def test_copies_cost_nothing_beside_an_idle_slice_and_their_number_on_a_busy_one() -> None:
    assert np.exp(BatchDemand(1.0, 1e-5, 1e-4).log_slowdown(5)) == pytest.approx(1.0, abs=0.01)
    assert np.exp(BatchDemand(1e-5, 1e-7, 1e-2).log_slowdown(5)) == pytest.approx(5.0, rel=0.01)


def test_time_off_the_slice_overlaps_with_the_work_of_the_others() -> None:
    """Think time equal to the service demand: two customers of one server, 1.25 by mean value analysis."""
    assert np.exp(BatchDemand(1e-9, 0.01, 0.01).log_slowdown(2)) == pytest.approx(1.25, rel=1e-3)


@settings(max_examples=50, deadline=None)
@given(times_s, times_s, times_s)
def test_another_copy_never_helps_and_costs_at_most_one_turn(host_s: float, think_s: float, service_s: float) -> None:
    slowdowns = np.exp([BatchDemand(host_s, think_s, service_s).log_slowdown(n) for n in range(1, 6)])
    assert slowdowns[0] == 1.0
    assert (np.diff(slowdowns) >= -1e-12).all()
    assert (slowdowns <= np.arange(1, 6) + 1e-9).all()


def test_demands_are_recovered_from_the_times_that_they_make_and_an_outlier_changes_little() -> None:
    truth = ModelDemands(host_s=0.005, transfer_s=0.0003, launch_s=0.003, item_s=0.002)

    def latency_s(size: int, batch: int) -> float:
        host_s, think_s, service_s = truth.of(size, batch)
        return float((host_s**6 + (think_s + service_s) ** 6) ** (1 / 6))

    times = {(size, batch): latency_s(size, batch) for size in SLICES for batch in BATCHES}
    found = demands_of_model(times)
    spoilt = demands_of_model(times | {(3, 64): times[3, 64] / 2})
    for size, batch in times:
        expected = truth.of(size, batch).log_slowdown(5)
        assert found.of(size, batch).log_slowdown(5) == pytest.approx(expected, abs=0.05)
        assert spoilt.of(size, batch).log_slowdown(5) == pytest.approx(expected, abs=0.2)
        assert demands_of_batch(times, batch).of(size).log_slowdown(5) == pytest.approx(expected, abs=0.4)


def test_a_single_time_is_enough() -> None:
    times = {(2, 8): 0.02}
    for demand in (demands_of_model(times).of(2, 8), demands_of_batch(times, 8).of(2)):
        assert 1.0 < np.exp(demand.log_slowdown(5)) <= 5.0
