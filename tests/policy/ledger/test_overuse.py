"""Laws of grant overuse: the set of windows decides, not their order or number; one spike is no overuse."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.ledger.overuse import GrantOveruse, find_overuse, find_overuses, jobs_to_end
from interfere.policy.rules.text import render
from interfere.records import NAN, Device, Grant, Job, Limits, MemoryUsage
from tests.policy.grant_cases import latest_first

GIB = 2.0**30
JOB = Job(id="j", workload="w")
DEVICE = Device(id="d", type="t", memory_bytes=80 * GIB, granule_bytes=GIB, residents=(JOB,))
GRANT = Grant(job_id="j", workload="w", device_ids=("d",), bytes=8 * GIB, since_s=0.0)
laws = settings(max_examples=200, deadline=None)


def window(start_s: float, end_s: float, gib: float, **given_: str) -> MemoryUsage:
    names = {"job_id": "j", "workload": "w", "device_type": "t", "device_id": "d"} | given_
    return MemoryUsage(observation_id="o", bytes=gib * GIB, start_s=start_s, end_s=end_s, **names)


def judged(*windows: MemoryUsage, grant: Grant = GRANT, later_s: float = 0.0, **limits: float) -> GrantOveruse | None:
    now_s = later_s + max((one.end_s for one in windows), default=0.0)
    return find_overuse(JOB, DEVICE, grant, latest_first(windows), Limits.of(**limits), now_s)


@pytest.mark.parametrize(("later_s", "past"), [(0.0, True), (120.0, True), (120.1, False)])
def test_a_job_that_is_no_longer_measured_overuses_nothing(later_s: float, past: bool) -> None:
    seen = window(0, 60, 9), window(60, 130, 9)
    assert (judged(*seen, later_s=later_s) is not None) == past


windows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10), st.sampled_from([7.0, 8.0, 8.5, 9.0])).map(
        lambda one: window(10.0 * one[0], 10.0 * (one[0] + one[1]), one[2])
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("seen", "covered_s"),
    [
        ([(0, 60, 9), (60, 130, 9)], 130.0),
        ([(0, 60, 9), (60, 119, 9)], None),  # not for long enough
        ([(0, 300, 9)], None),  # one window says one moment
        ([(0, 100, 9), (90, 190, 9), (95, 200, 9)], None),  # all of them may say the same moment
        ([(0, 60, 9), (60, 61, 8), (61, 150, 9), (150, 180, 9)], None),  # one dip starts anew
        ([(0, 60, 9), (60, 61, 8), (61, 150, 9), (150, 181, 9)], 120.0),
        ([(0, 60, 9), (60, 130, 9), (130, 131, 8)], None),  # it is below now
        ([(0, 60, 9), (60, 130, 9), (100, 130, 8)], None),  # below in the same moment
        ([(60, 130, 9), (100, 130, 8), (140, 300, 9)], None),  # and one window after it
        ([(0, 60, 9), (200, 260, 9)], 120.0),  # seconds that nobody watched do not count, nor break the run
        ([(0, 60, 9), (200, 259, 9)], None),
        ([(0, 60, 9), (0, 60, 9), (0, 60, 9)], None),  # the same again
        ([(0, 60, 9), (30, 90, 9), (60, 130, 9)], 130.0),  # overlaps count once
    ],
)
def test_overuse_is_being_over_the_grant_for_long_enough(
    seen: list[tuple[float, float, float]], covered_s: float | None
) -> None:
    found = judged(*(window(*one) for one in seen))
    assert (found.covered_s if found else None) == covered_s


def test_overuse_reads_in_gib_and_seconds() -> None:
    found = judged(window(0, 60, 12), window(60, 130, 9.1))
    assert found is not None
    assert render(found.rule) == "held 9.1 GiB of 8 GiB granted for 130 s"


def test_tolerance_and_patience_come_from_the_request() -> None:
    seen = window(0, 60, 8.5), window(60, 120, 8.5)
    assert judged(*seen)
    assert judged(*seen, grant_tolerance=0.07) is None
    assert judged(*seen, grant_patience_s=121.0) is None
    assert judged(window(0, 1, 9), window(1, 2, 9), grant_patience_s=0.0)


@pytest.mark.parametrize(
    "other",
    [{"job_id": "x"}, {"workload": "x"}, {"device_type": "x"}, {"device_id": "x"}],
    ids=lambda one: next(iter(one)),
)
def test_windows_of_another_job_workload_or_device_do_not_count(other: dict[str, str]) -> None:
    seen = window(0, 60, 9), window(60, 130, 9)
    assert judged(*seen)
    assert judged(*(replace(one, **other) for one in seen)) is None
    assert judged(seen[0], replace(seen[1], **other)) is None


def test_only_use_since_the_grant_counts() -> None:
    seen = window(0, 60, 9), window(60, 130, 9)
    assert judged(*seen, grant=replace(GRANT, since_s=10.0))
    assert judged(*seen, grant=replace(GRANT, since_s=11.0)) is None
    assert judged(*seen, grant=replace(GRANT, since_s=60.0)) is None


def test_a_gang_is_judged_by_windows_that_name_their_device() -> None:
    seen = window(0, 60, 9), window(60, 130, 9)
    gang = replace(GRANT, device_ids=("d", "e"))
    assert judged(*seen, grant=gang)
    nameless = tuple(replace(one, device_id="") for one in seen)
    assert judged(*nameless)
    assert judged(*nameless, grant=gang) is None


@given(windows, st.randoms(use_true_random=False), st.lists(st.integers(0, 11), max_size=5))
@laws
def test_order_and_repeats_do_not_matter(seen: list[MemoryUsage], rng: random.Random, again: list[int]) -> None:
    told = [*seen, *(seen[k] for k in again if k < len(seen))]
    rng.shuffle(told)
    assert judged(*told) == judged(*seen)


@given(windows, st.floats(0, 4), st.floats(0, 0.5), st.floats(0, 200))
@laws
def test_more_grant_tolerance_or_patience_never_adds_an_overuse(
    seen: list[MemoryUsage], more_gib: float, tolerance: float, patience_s: float
) -> None:
    strict = judged(*seen, grant_patience_s=20.0)
    larger = replace(GRANT, bytes=GRANT.bytes + more_gib * GIB)
    for lenient in (
        judged(*seen, grant=larger, grant_patience_s=20.0),
        judged(*seen, grant_patience_s=20.0, grant_tolerance=tolerance),
        judged(*seen, grant_patience_s=20.0 + patience_s),
    ):
        assert strict or not lenient


@given(windows, st.integers(0, 400), st.integers(1, 400))
@laws
def test_one_more_dip_or_one_spike_never_adds_an_overuse(seen: list[MemoryUsage], at: int, size: int) -> None:
    assert judged(*seen) or not judged(*seen, window(at, at + size, 8.0))
    spike = [replace(one, bytes=(70 if one.start_s <= at < one.end_s else 7) * GIB) for one in seen]
    assert judged(*spike, grant_patience_s=0.0) is None


def measured_hours(usage: np.ndarray, window_s: int) -> list[MemoryUsage]:
    """Windows with least and most of a usage sampled every second, as shares of the grant."""
    return [
        replace(
            window(start, start + window_s, 8 * float(usage[start : start + window_s].max())),
            min_bytes=8 * GIB * float(usage[start : start + window_s].min()),
        )
        for start in range(0, len(usage) - window_s + 1, window_s)
    ]


def first_end_s(seen: list[MemoryUsage]) -> float | None:
    """End of the window after which the job is to end, when it is judged after each of them."""
    for k in range(len(seen)):
        found = find_overuse(JOB, DEVICE, GRANT, reversed(seen[max(0, k - 80) : k + 1]), Limits(), seen[k].end_s)
        if found and found.is_certain:
            return seen[k].end_s
    return None


@pytest.mark.parametrize("window_s", [5, 60, 300])
def test_noise_below_the_grant_and_short_spikes_end_no_job_whatever_the_windows_length(window_s: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        noisy = rng.normal(0.95, 0.02, 2 * 3600)
        assert first_end_s(measured_hours(noisy, window_s)) is None
        spiky = np.where(np.arange(2 * 3600) % 30 == int(rng.integers(30)), 1.5, 0.8)
        seen = measured_hours(spiky, window_s)
        assert first_end_s(seen) is None
        assert first_end_s([replace(one, min_bytes=NAN) for one in seen]) is None


@pytest.mark.parametrize("window_s", [5, 60, 300])
def test_persistent_overuse_ends_the_job_within_the_patience_and_one_window(window_s: int) -> None:
    usage = np.random.default_rng(0).normal(1.10, 0.005, 1200)
    ended_s = first_end_s(measured_hours(usage, window_s))
    assert ended_s is not None
    assert ended_s <= Limits().memory.grant_patience_s + window_s


def test_peaks_of_long_windows_warn_but_end_no_job() -> None:
    found = judged(window(0, 60, 9), window(60, 130, 9))
    assert found is not None
    assert not found.is_certain
    assert jobs_to_end([found]) == {}
    certain = judged(replace(window(0, 130, 9), min_bytes=8.5 * GIB))
    assert certain is not None
    assert certain.is_certain


def past(job_id: str, device_id: str, past_gib: float, priority: int = 0) -> GrantOveruse:
    return GrantOveruse(
        job=Job(id=job_id, workload="w", priority=priority),
        device=Device(id=device_id, type="t"),
        granted_bytes=8 * GIB,
        used_bytes=(8 + past_gib) * GIB,
        covered_s=130.0,
    )


def test_one_job_of_a_device_ends_the_lowest_priority_then_the_furthest_over_its_grant() -> None:
    assert list(jobs_to_end([past("a", "d", 1), past("b", "d", 2), past("c", "e", 1)])) == ["b", "c"]
    assert list(jobs_to_end([past("a", "d", 1), past("b", "d", 9, priority=1)])) == ["a"]
    assert list(jobs_to_end([past("g", "d", 3), past("g", "e", 1), past("b", "e", 2)])) == ["g"]
    assert jobs_to_end([past("b", "d", 1), past("a", "d", 1)]).keys() == {"a"}
    assert jobs_to_end([]) == {}


@given(st.lists(st.builds(past, st.sampled_from("abcd"), st.sampled_from("de"), st.floats(0, 9)), max_size=6))
@laws
def test_never_two_jobs_of_one_device_end_and_none_that_keeps_to_its_grant(found: list[GrantOveruse]) -> None:
    ends = jobs_to_end(found)
    assert set(ends) <= {one.job.id for one in found}
    assert bool(ends) == bool(found)
    places = [{one.device.id for one in found if one.job.id == name} for name in ends]
    assert sum(map(len, places)) == len(set().union(*places))


def test_overuse_names_a_device_that_holds_more_than_it_has() -> None:
    both = replace(DEVICE, residents=(JOB, replace(JOB, id="k")))
    grants = {name: replace(GRANT, job_id=name) for name in "jk"}
    seen = [window(0, 60, 9), window(60, 130, 9)]

    def said(other_gib: float) -> str:
        told = {"j": seen, "k": [window(0, 10, 99, job_id="k"), window(10, 20, other_gib, job_id="k")]}
        (one,) = find_overuses([both], grants, lambda grant: latest_first(told[grant.job_id]), Limits(), 200.0)
        return render(one.rule)

    assert said(71) == "held 9 GiB of 8 GiB granted for 130 s"
    assert said(72) == "held 9 GiB of 8 GiB granted for 130 s, and all on its device 81 GiB of 80 GiB"


def test_residents_without_a_grant_are_never_judged() -> None:
    seen = latest_first([window(0, 60, 9), window(60, 130, 9)])
    assert [one.job for one in find_overuses([DEVICE], {"j": GRANT}, lambda _: seen, Limits(), 130.0)] == [JOB]
    assert find_overuses([DEVICE], {}, lambda _: seen, Limits(), 130.0) == ()
