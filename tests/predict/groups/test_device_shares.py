"""What profiles on smaller slices say of a job in a part of its device."""

import numpy as np
import pytest

from interfere.predict.groups import copy_shares, slowdowns_in_shares, smaller_slices
from interfere.records import JobProfile

SLICES = {"a100-80gb-1g.10gb": 4e-3, "a100-80gb-2g.20gb": 2e-3, "a100-80gb-4g.40gb": 1.6e-3}


def on(device_type: str, step_time_s: float = 0.0, workload: str = "net") -> JobProfile:
    return JobProfile(workload=workload, device_type=device_type, step_time_s=step_time_s or SLICES[device_type])


def find(workload: str, device_type: str) -> JobProfile | None:
    return on(device_type) if workload == "net" and device_type in SLICES else None


def test_smaller_slices_of_the_same_gpu() -> None:
    assert dict(smaller_slices("a100-80gb-4g.40gb")) == pytest.approx(
        {"a100-80gb-1g.10gb": 0.25, "a100-80gb-2g.20gb": 0.5, "a100-80gb-3g.40gb": 0.75}
    )
    assert dict(smaller_slices("a100"))["a100-1g.5gb"] == pytest.approx(14 / 108)
    assert smaller_slices("a100-80gb-1g.10gb") == smaller_slices("cpu-core") == smaller_slices("v100") == ()


def test_rates_are_interpolated_between_slices_and_proportional_below_the_smallest() -> None:
    told = slowdowns_in_shares(on("a100-80gb-4g.40gb"), lambda kind: find("net", kind))
    rate = 1 / 1.6e-3
    in_a_third = 250 + (500 - 250) * (1 / 3 - 0.25) / 0.25
    np.testing.assert_allclose(told[1:], [rate / 500, rate / in_a_third, rate / 250, rate / (250 * 0.2 / 0.25)])
    assert np.isnan(told[0])


def test_without_a_smaller_slice_nothing_is_known() -> None:
    assert np.isnan(slowdowns_in_shares(on("a100-80gb-1g.10gb"), lambda kind: find("net", kind))).all()
    assert np.isnan(slowdowns_in_shares(on("a100-80gb-4g.40gb"), lambda _: None)).all()
    assert np.isnan(slowdowns_in_shares(on("cpu-core", 1.0), lambda kind: find("net", kind))).all()


def test_a_job_faster_in_a_smaller_slice_is_not_sped_up_by_copies() -> None:
    told = slowdowns_in_shares(on("a100-80gb-4g.40gb", 5e-3), lambda kind: find("net", kind))
    assert (told[1:] >= 1.0).all()


def test_copies_are_counted_by_workload() -> None:
    victim, other = on("a100-80gb-4g.40gb"), on("a100-80gb-4g.40gb", 1e-3, "other")
    told = copy_shares([[victim, victim, victim], [victim, other, victim], [victim, other, other], [None]], find)
    assert told is not None
    assert told.alone.tolist() == [True, False, False, False]
    expected = slowdowns_in_shares(victim, lambda kind: find("net", kind))
    np.testing.assert_array_equal(told.slowdown, [expected[2], expected[1], np.nan, np.nan])
    assert copy_shares([[other, other]], find) is None
