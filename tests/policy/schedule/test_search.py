"""Laws of schedules over time, on random problems."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from interfere.policy.schedule.heuristics import (
    HEURISTICS,
    JobOrder,
    heuristics_of,
    jobs_in_order,
    project,
    schedule_in_order,
)
from interfere.policy.schedule.problem import (
    Deadlines,
    ScheduleProblem,
    objective_value,
    value_of,
)
from interfere.policy.schedule.search import MIN_THROUGHPUTS, search
from tests.policy.schedule.random_problems import check_feasible, random_problem, relabelled

SEEDS = range(30)


@pytest.mark.parametrize("deadlines", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_device_is_over_its_seats_and_no_class_over_its_devices(seed: int, deadlines: bool) -> None:
    problem = random_problem(seed, deadlines=deadlines)
    for heuristic in heuristics_of(problem):
        check_feasible(problem, project(problem, heuristic))
    for order in JobOrder:
        for threshold in MIN_THROUGHPUTS:
            check_feasible(problem, schedule_in_order(problem, jobs_in_order(problem, order), threshold))
    check_feasible(problem, search(problem).schedule)


@pytest.mark.parametrize("deadlines", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_is_never_worse_than_a_named_heuristic(seed: int, deadlines: bool) -> None:
    """Where some job has a deadline, earliest deadline first is one of them."""
    problem = random_problem(seed, deadlines=deadlines)
    found = search(problem)
    assert ("earliest_deadline+sharing" in found.heuristic_values) is problem.deadlines.any
    for heuristic in heuristics_of(problem):
        assert found.value <= value_of(project(problem, heuristic), problem)


@pytest.mark.parametrize("seed", SEEDS)
def test_asked_twice_the_plan_is_the_same(seed: int) -> None:
    problem = random_problem(seed)
    first, second = search(problem), search(problem)
    assert np.array_equal(first.schedule.start_s, second.schedule.start_s)
    assert first.work_units == second.work_units


@pytest.mark.parametrize("seed", range(20))
def test_a_stopped_search_still_answers_and_says_so(seed: int) -> None:
    problem = random_problem(seed)
    found = search(problem, expired=lambda: True)
    check_feasible(problem, found.schedule)
    assert found.work_units <= search(problem).work_units


@pytest.mark.parametrize("seed", range(20))
def test_last_rounds_order_is_a_candidate(seed: int) -> None:
    """Asked again with the order of the plan, the plan is no worse."""
    problem = random_problem(seed)
    first = search(problem, max_units=1)
    again = search(problem, last_order=first.order)
    assert again.value <= first.value


@pytest.mark.parametrize("seed", range(15))
def test_heuristics_do_not_depend_on_the_numbering(seed: int) -> None:
    """Jobs of different keys are taken in the same order, however they are numbered."""
    problem = random_problem(seed)
    order = np.random.default_rng(seed).permutation(problem.pending)
    other = relabelled(problem, order)
    for heuristic in HEURISTICS:
        ends = project(problem, heuristic).end_s
        shuffled = project(other, heuristic).end_s
        full = np.concatenate([order, np.arange(problem.pending, problem.jobs)])
        assert shuffled == pytest.approx(ends[full])


def _equal_jobs(jobs: int, alone_s: list[float], slowdown: float) -> ScheduleProblem:
    """Jobs of one kind that wait for one device, on which two slow each other down. NaN: they may not share."""
    joint = -math.inf if math.isnan(slowdown) else 2.0 / slowdown
    problem = random_problem(0, gangs=False)
    return replace(
        problem,
        pending=jobs,
        work_s=np.array(alone_s)[:, None],
        may_run_alone=np.ones((jobs, 1), dtype=bool),
        may_start_alone=np.ones((jobs, 1), dtype=bool),
        gpus=np.ones(jobs, dtype=np.int64),
        kind=np.zeros(jobs, dtype=np.int64),
        guest_slowdown=np.full((1, 1, 1), slowdown),
        host_slowdown=np.full((1, 1, 1), slowdown),
        slows_resident=np.zeros((1, 1, 1), dtype=bool),
        joint_throughput=np.full((1, 1, 1), joint),
        open_intervals=(((-math.inf, math.inf),),),
        devices=(1,),
        running=(),
        latest_end_s=np.full(jobs, math.inf),
        elapsed_s=np.zeros(jobs),
        weight=np.ones(jobs),
        deadlines=Deadlines.none(jobs),
        objective=replace(
            problem.objective, constant=np.zeros(jobs), rate=np.ones(jobs), priority=np.zeros(jobs, dtype=np.int64)
        ),
    )


def test_a_long_queue_shares_where_a_single_pair_would_not() -> None:
    """Two jobs of 10 s that slow each other down 1.6 times end at 16 and 16 s, later on average than at 10 and 20 s. Of
    24 such jobs each pair of 16 s shortens the wait of all behind it by 4 s."""
    pair, queue = _equal_jobs(2, [10.0] * 2, 1.6), _equal_jobs(24, [10.0] * 24, 1.6)
    assert search(pair).schedule.host.tolist() == [-1, -1]
    found = search(queue)
    assert found.schedule.start_s.tolist().count(0.0) == 2
    assert objective_value(found.schedule, queue) == pytest.approx(16.0 * 6.5)  # alone 10 * 12.5


def alone_on_one_device(alone_s: list[float]) -> ScheduleProblem:
    """Jobs that wait for one device and may not share it."""
    return _equal_jobs(len(alone_s), alone_s, math.nan)


def due(problem: ScheduleProblem, at_s: Sequence[float], spread: float = 0.0) -> ScheduleProblem:
    """The same problem with deadlines."""
    n = problem.jobs
    deadlines = Deadlines(at_s=np.array(at_s, dtype=np.float64), spread=np.full(n, spread), weight=np.ones(n))
    return replace(problem, deadlines=deadlines)


def test_a_heavier_bound_comes_before_the_objective() -> None:
    """Two jobs on one device: the longer one goes first where it alone was promised an early end."""
    problem = _equal_jobs(2, [100.0, 10.0], math.nan)
    assert search(problem).schedule.start_s.tolist() == [10.0, 0.0]
    promised = replace(problem, latest_end_s=np.array([105.0, math.inf]))
    assert search(promised).schedule.start_s.tolist() == [0.0, 100.0]
    assert objective_value(search(promised).schedule, promised) == pytest.approx(105.0)


def test_a_deadline_comes_before_promised_ends_and_the_objective() -> None:
    problem = replace(alone_on_one_device([100.0, 10.0]), latest_end_s=np.array([math.inf, 20.0]))
    assert search(problem).schedule.start_s.tolist() == [10.0, 0.0]
    assert search(due(problem, [105.0, math.inf])).schedule.start_s.tolist() == [0.0, 100.0]
    assert search(due(problem, [115.0, math.inf])).schedule.start_s.tolist() == [10.0, 0.0]


@pytest.mark.parametrize("seed", range(40))
def test_on_one_device_as_few_deadlines_are_missed_as_in_the_best_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    work_s = rng.uniform(10, 100, 6)
    at_s = np.maximum(work_s, rng.uniform(50, 300, 6))
    missed = min(
        sum(end > at_s[job] for job, end in zip(order, np.cumsum(work_s[list(order)]), strict=True))
        for order in permutations(range(6))
    )
    found = search(due(alone_on_one_device(work_s.tolist()), at_s.tolist())).schedule
    assert int((found.end_s > at_s).sum()) == missed


def test_a_job_that_misses_its_deadline_anyway_delays_no_other() -> None:
    """It is first by deadline, and would make the second late."""
    found = search(due(alone_on_one_device([100.0, 50.0]), [99.0, 120.0])).schedule
    assert found.start_s.tolist() == [50.0, 0.0]


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_a_later_start_and_a_longer_run_never_lower_the_chance_of_a_miss(spread: float) -> None:
    deadlines = due(alone_on_one_device([1.0]), [100.0], spread).deadlines
    grid = np.arange(1.0, 200.0)
    jobs = np.zeros(len(grid), dtype=np.int64)
    assert (np.diff(deadlines.expected_misses(jobs, 0.0, grid)) >= 0).all()
    assert (np.diff(deadlines.expected_misses(jobs, grid, grid + 20.0)) >= 0).all()


@pytest.mark.parametrize("start_s", [0.0, 40.0])
def test_the_chance_of_a_miss_is_that_of_a_log_normal_run_time(start_s: float) -> None:
    drawn_s = start_s + 50.0 * np.random.default_rng(0).lognormal(0.0, 0.4, 100_000)
    for at_s in (60.0, 90.0, 120.0, 200.0):
        (chance,) = due(alone_on_one_device([50.0]), [at_s], 0.4).deadlines.expected_misses(
            np.array([0]), start_s, start_s + 50.0
        )
        assert chance == pytest.approx((drawn_s > at_s).mean(), abs=0.015)
