"""Truth from a table: clipped, filled, silent, and counted."""

import math

import numpy as np
import pytest

from interfere.data.tables import Table
from interfere.errors import InvalidInputError
from interfere.records import JobProfile, PairMeasurement, PairStatus
from interfere.sim.beliefs import mean_beliefs, noisy_beliefs, true_beliefs
from interfere.sim.truth import TableTruth, truth_of


def table(*rows: tuple[str, str, float], device_type: str = "v100") -> Table:
    """Rows of (victim, neighbour, slowdown); NaN for a pair that does not fit."""
    names = sorted({name for row in rows for name in row[:2]})
    return Table(
        name="t",
        jobs=tuple(JobProfile(workload=name, device_type=device_type, step_time_s=0.1) for name in names),
        pairs=tuple(
            PairMeasurement(
                victim=v,
                neighbour=n,
                device_type=device_type,
                mode="mps",
                slowdown=s,
                status=PairStatus.INFEASIBLE if math.isnan(s) else PairStatus.OK,
                reason="too large" if math.isnan(s) else "",
            )
            for v, n, s in rows
        ),
    )


BOTH = (("a", "a", 1.5), ("a", "b", 1.2), ("b", "a", 0.9))


def test_clipped_and_unmeasured() -> None:
    found = truth_of(table(*BOTH))
    assert found.workloads == ("a", "b")
    np.testing.assert_array_equal(found.table, [[1.5, 1.2], [1.0, np.nan]])
    assert (found.clipped, found.filled, found.unmeasured) == (1, 0, 1)
    assert "1 clipped at 1" in found.note()
    truth = TableTruth([found])
    assert truth.slowdown("b", ("a",), "v100") == 1.0
    assert math.isnan(truth.slowdown("b", ("a",), "k80"))


def test_one_side_is_not_enough() -> None:
    found = truth_of(table(("a", "b", 1.2), ("a", "a", 1.1)))
    assert np.isnan(found.table).tolist() == [[False, True], [True, True]]
    assert found.unmeasured == 3


def test_an_infeasible_pair_is_not_unmeasured() -> None:
    found = truth_of(table(("a", "a", 4.0), ("a", "b", math.nan), ("b", "a", 2.0), ("b", "b", 1.0)))
    assert np.isnan(found.table).tolist() == [[False, True], [True, False]]
    assert found.unmeasured == 0


def test_one_device_type_must_be_named() -> None:
    two = table(*BOTH)
    other = table(*BOTH, device_type="k80")
    both = Table(name="two", jobs=(*two.jobs, *other.jobs), pairs=(*two.pairs, *other.pairs))
    with pytest.raises(InvalidInputError, match="one device type and mode") as raised:
        truth_of(both)
    assert "k80, mps; v100, mps" in str(raised.value)
    with pytest.raises(InvalidInputError, match="no row"):
        truth_of(both, device_type="p100")
    assert truth_of(both, device_type="k80", mode="mps").device_type == "k80"


def test_beliefs() -> None:
    truth = truth_of(table(*BOTH))
    assert np.array_equal(true_beliefs(truth).slowdown, truth.table, equal_nan=True)
    mean = mean_beliefs(truth).slowdown
    assert np.nanmin(mean) == np.nanmax(mean) == pytest.approx((1.5 * 1.2 * 1.0) ** (1 / 3))
    assert np.isnan(mean[1, 1])
    one, again = noisy_beliefs(truth, 0.2, 1).slowdown, noisy_beliefs(truth, 0.2, 1).slowdown
    other = noisy_beliefs(truth, 0.2, 2).slowdown
    assert np.array_equal(one, again, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)
    assert np.nanmin(one) >= 1
    assert np.array_equal(noisy_beliefs(truth, 0.0, 1).slowdown, truth.table, equal_nan=True)
    assert set(true_beliefs(truth).profiles) == {("a", "v100"), ("b", "v100")}
    assert true_beliefs(truth).knows("k80", "mps")
