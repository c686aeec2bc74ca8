"""Windows of time in which a fixed set of jobs holds a device."""

from hypothesis import given
from hypothesis import strategies as st

from interfere.data.importers.monitoring.site_samples import colocation_windows, multi_device_jobs

A, B = frozenset({"a"}), frozenset({"b"})


def test_windows_lose_both_edges() -> None:
    present = dict.fromkeys(map(float, range(5)), A) | dict.fromkeys(map(float, range(5, 9)), A | B)
    first, second = colocation_windows("gpu", present)
    assert (first.jobs, first.times_s) == (A, (1.0, 2.0, 3.0))
    assert (second.jobs, second.times_s) == (A | B, (6.0, 7.0))


def test_a_gap_ends_a_stretch_and_one_missing_sample_does_not() -> None:
    hiccup = dict.fromkeys((0.0, 1.0, 2.0, 4.0, 5.0), A)
    assert len(colocation_windows("gpu", hiccup)) == 1
    gap = dict.fromkeys((0.0, 1.0, 2.0, 6.0, 7.0, 8.0), A)
    assert [window.times_s for window in colocation_windows("gpu", gap)] == [(1.0,), (7.0,)]


@given(st.dictionaries(st.integers(0, 60).map(float), st.sampled_from([A, B, A | B]), max_size=40))
def test_every_window_has_one_set_of_jobs_and_no_sample_is_in_two(present: dict[float, frozenset[str]]) -> None:
    found = colocation_windows("gpu", present)
    times = [time_s for window in found for time_s in window.times_s]
    assert len(times) == len(set(times))
    assert all(present[time_s] == window.jobs for window in found for time_s in window.times_s)


def test_a_job_on_two_devices_at_once_is_a_gang_and_one_that_moves_is_not() -> None:
    held = [("gpu0", 0.0, "a"), ("gpu1", 0.0, "a"), ("gpu0", 0.0, "b"), ("gpu1", 1.0, "b")]
    assert multi_device_jobs(held) == {"a"}
