"""How long a job runs: quantiles of what remains, caps, windows, and who goes first, worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.rules.runtime import (
    Runtime,
    ageing,
    opening_times,
    remaining_cases_s,
    remaining_quantile_s,
    runtimes,
    start_weights,
    tolerable_slowdown,
)
from interfere.policy.rules.text import render
from interfere.records import Device, Job, Window
from interfere.records.cluster import spans

ONE = np.ones(1)


def job(**fields: object) -> Job:
    return Job(**{"id": "x", "workload": "a", "remaining_s": 100.0} | fields)


def runtime(
    one: Job, *, tau: float = 1.0, closes_in_s: float = math.inf, now_s: float = 0.0, risk: float = 0.05
) -> Runtime:
    (found,) = runtimes([one], ONE * tau, closes_in_s, now_s, risk)
    return found


def blocked(found: Runtime, pool: str = "edge") -> str:
    """The rule that forbids job x to start, in words; empty where none does."""
    rule = found.blocking_rule("x", pool=pool, device_type="t")
    return "" if rule is None else render(rule)


def test_what_remains_is_log_normal_through_its_median_and_its_90_percent() -> None:
    one = job(remaining_p90_s=200.0)
    assert [remaining_quantile_s(one, level) for level in (0.1, 0.5, 0.9)] == pytest.approx([50.0, 100.0, 200.0])
    assert remaining_quantile_s(job(), 0.99) == 100.0
    assert remaining_quantile_s(job(remaining_s=0.0, remaining_p90_s=5.0), 0.9) == 0.0


def test_a_job_must_end_before_its_deadline_and_before_the_device_closes() -> None:
    assert runtime(job(deadline_s=350.0), now_s=50.0).time_limit_s == 300.0
    assert runtime(job(deadline_s=350.0), closes_in_s=200.0).time_limit_s == 200.0
    assert runtime(job(deadline_s=350.0), closes_in_s=400.0).time_limit_s == 350.0
    assert math.isnan(runtime(job()).time_limit_s)


def test_company_is_borne_up_to_the_time_left_over_the_time_alone_and_further_where_it_goes() -> None:
    def cap(needs_s: float, left_s: float, beside_s: float = math.inf) -> float:
        return float(tolerable_slowdown(np.array(needs_s), np.array(left_s), beside_s))

    assert cap(100.0, 150.0) == 1.5
    assert cap(100.0, 150.0, 100.0) == 2.0  # 100 s beside it at half speed: 50 s late
    assert cap(100.0, 150.0, 50.0) == math.inf
    assert cap(100.0, 150.0, 1e9) == pytest.approx(1.5)
    assert cap(100.0, 80.0, 10.0) < 1.0
    assert math.isnan(cap(100.0, math.nan))
    for slowdown in (1.2, 1.8, 3.0):
        for beside_s in (30.0, 110.0, 400.0):
            end_s = 100.0 + min(beside_s, 100.0 * slowdown) * (1 - 1 / slowdown)
            assert (slowdown <= cap(100.0, 150.0, beside_s)) == (end_s <= 150.0)


def test_a_job_may_not_start_where_even_its_optimistic_run_time_misses_the_deadline() -> None:
    late = runtime(job(deadline_s=150.0), tau=2.0)
    assert blocked(late) == "deadline: x needs 3.33 min on edge, 2.5 min are left"
    assert blocked(runtime(job(deadline_s=150.0, remaining_p90_s=200.0), tau=2.0, risk=0.1)) == ""  # 100 s then


def test_a_closing_device_takes_who_ends_before_or_can_be_checkpointed() -> None:
    assert blocked(runtime(job(), closes_in_s=100.0)) == ""
    assert runtime(job(), closes_in_s=100.0).time_limit_s == 100.0
    closes = runtime(job(remaining_s=6840.0), closes_in_s=4320.0)
    assert blocked(closes, "edge-3") == "window: edge-3 closes in 1.2 h, x needs 1.9 h there"
    assert math.isnan(closes.time_limit_s)
    unknown = runtime(job(remaining_s=math.nan), closes_in_s=60.0)
    assert "nobody says how long x runs" in blocked(unknown)
    stopped = runtime(job(preemptible=True, checkpoint_s=10.0, deadline_s=160.0), closes_in_s=60.0)
    assert (blocked(stopped), stopped.checkpoint_loss_s, stopped.time_limit_s) == ("", 10.0, 150.0)
    assert runtime(job(preemptible=True, checkpoint_s=10.0), closes_in_s=100.0).checkpoint_loss_s == 0.0
    brief = runtime(job(preemptible=True, checkpoint_s=60.0), closes_in_s=30.0)
    assert blocked(brief) == "window: edge closes in 30 s, a checkpoint of x takes 1 min"
    assert "closes" in blocked(runtime(job(preemptible=True), closes_in_s=30.0))  # what a checkpoint costs is unknown


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(1, 1e4), st.floats(1, 1e4), st.floats(1, 3), st.booleans())
def test_a_later_deadline_and_a_longer_window_never_forbid_more(
    deadline_s: float, more_s: float, open_s: float, longer_s: float, tau: float, stops: bool
) -> None:
    one = job(deadline_s=deadline_s, preemptible=stops, checkpoint_s=20.0, remaining_p90_s=130.0)
    before = runtime(one, tau=tau, closes_in_s=open_s)
    after = runtime(replace(one, deadline_s=deadline_s + more_s), tau=tau, closes_in_s=open_s + longer_s)
    assert not blocked(after, "d") or blocked(before, "d")
    runtime_s = np.array(100.0)
    cap_before = tolerable_slowdown(runtime_s, np.array(before.deadline_in_s), 70.0)
    cap_after = tolerable_slowdown(runtime_s, np.array(after.time_limit_s), 70.0)
    assert cap_after >= cap_before or after.time_limit_s < after.deadline_in_s


def test_cases_of_a_miss_spread_as_what_remains_does() -> None:
    remaining = remaining_cases_s([job(), job(remaining_p90_s=150.0)])
    cases = np.stack([tolerable_slowdown(case_s, np.array([200.0, 200.0]), np.inf) for case_s in remaining])
    assert cases.shape == (10, 2)
    assert set(cases[:, 0]) == {2.0}
    assert np.median(cases[:, 1]) == pytest.approx(2.0, rel=0.05)
    assert cases[0, 1] > 2.0 > cases[-1, 1]
    assert len(remaining_cases_s([job()])) == 1
    assert np.isnan(tolerable_slowdown(ONE, np.array([np.nan]), np.inf)).all()


def test_who_can_still_make_it_and_has_the_least_slack_goes_first() -> None:
    jobs = [job(), job(deadline_s=1e4), job(deadline_s=200.0), job(deadline_s=110.0), job(deadline_s=100.0)]
    order = start_weights(jobs, 0.0, 0.0)
    assert list(order) == sorted(order)
    assert (order[0], order[-1]) == (1.0, 2.0)


def test_waiting_counts_in_whole_steps_up_to_a_bound() -> None:
    jobs = [job(), *(job(elapsed_s=s) for s in (0.0, 299.0, 300.0, 550.0, 899.0, 900.0, 1e9))]
    assert ageing(jobs, 100.0).tolist() == [1, 1, 1, 2, 4, 7, 8, 8]
    assert ageing(jobs, 0.0).tolist() == [1] * 8
    assert start_weights([job(weight=3.0, elapsed_s=450.0)], 0.0, 100.0)[0] == 9.0


def test_a_device_is_open_in_its_windows_and_touching_ones_are_one() -> None:
    always = Device(id="d", type="t")
    two = replace(always, windows=(Window(from_s=50.0, until_s=60.0), Window(from_s=10.0, until_s=50.0)))
    assert opening_times(always, 5.0) == (math.inf, 0.0)
    assert [opening_times(two, at_s) for at_s in (5.0, 10.0, 55.0, 60.0)] == [(0, 5), (50, 0), (5, 0), (0, math.inf)]
    assert spans(two.windows) == [(10.0, 60.0)]
    assert opening_times(replace(always, windows=(Window(from_s=10.0),)), 20.0) == (math.inf, 0.0)


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        (Window, {"from_s": 5.0, "until_s": 5.0}, "until_s"),
        (Window, {"from_s": math.nan}, "from_s"),
        (Job, {"id": "x", "workload": "a", "remaining_s": 5.0, "remaining_p90_s": 4.0}, "remaining_p90_s"),
        (Job, {"id": "x", "workload": "a", "remaining_p90_s": 4.0}, "remaining_p90_s"),
        (Job, {"id": "x", "workload": "a", "deadline_s": -1.0}, "deadline_s"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(kind: type, fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        kind(**fields)
    assert [v.field for v in caught.value.violations] == [field]
