"""Stretches of time in which a fixed set of jobs holds a device, and jobs that hold several devices at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interfere.monitoring.company_windows import Stretch, stretches
from interfere.monitoring.reading import DeviceSamples, jobs_on_several_devices
from interfere.monitoring.site_labels import DeviceIdentity

A, B = frozenset({"a"}), frozenset({"b"})


def found(present: dict[float, frozenset[str]]) -> tuple[Stretch, ...]:
    """The stretches of a device on which these jobs were seen at these times."""
    jobs = sorted(frozenset().union(*present.values()))
    times_s = {job: [np.array(sorted(t for t, here in present.items() if job in here))] for job in jobs}
    return stretches(times_s, [], same_scrape=0.0)


def test_stretches_end_where_the_company_changes() -> None:
    present = dict.fromkeys(map(float, range(5)), A) | dict.fromkeys(map(float, range(5, 9)), A | B)
    first, second = found(present)
    assert (first.job_ids, first.times_s.tolist()) == (A, [0.0, 1.0, 2.0, 3.0, 4.0])
    assert (second.job_ids, second.times_s.tolist()) == (A | B, [5.0, 6.0, 7.0, 8.0])


def test_a_gap_ends_a_stretch_and_one_missing_sample_does_not() -> None:
    hiccup = dict.fromkeys((0.0, 1.0, 2.0, 4.0, 5.0), A)
    assert len(found(hiccup)) == 1
    gap = dict.fromkeys((0.0, 1.0, 2.0, 6.0, 7.0, 8.0), A)
    assert [stretch.times_s.tolist() for stretch in found(gap)] == [[0.0, 1.0, 2.0], [6.0, 7.0, 8.0]]


@given(st.dictionaries(st.integers(0, 60).map(float), st.sampled_from([A, B, A | B]), max_size=40))
def test_every_stretch_has_one_set_of_jobs_and_no_sample_is_in_two(present: dict[float, frozenset[str]]) -> None:
    every = found(present)
    times = [time_s for stretch in every for time_s in stretch.times_s.tolist()]
    assert len(times) == len(set(times))
    assert all(present[time_s] == stretch.job_ids for stretch in every for time_s in stretch.times_s.tolist())


def test_a_job_on_two_devices_at_once_is_on_several_and_one_that_moves_is_not() -> None:
    def device(name: str, *held: tuple[str, float, float]) -> DeviceSamples:
        parts = (Stretch(job_ids=frozenset({job}), times_s=np.array(times), interval_s=1.0) for job, *times in held)
        return DeviceSamples(identity=DeviceIdentity(id=name, type="a100", product=""), stretches=tuple(parts))

    devices = [device("gpu0", ("a", 0.0, 1.0), ("b", 2.0, 3.0)), device("gpu1", ("a", 0.0, 1.0), ("b", 4.0, 5.0))]
    assert jobs_on_several_devices(devices) == {"a"}
