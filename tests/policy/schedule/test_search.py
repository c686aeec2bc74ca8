"""Laws of schedules over time, on random problems."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.schedule.heuristics import HEURISTICS, JobOrder, jobs_in_order, project
from interfere.policy.schedule.list_scheduler import schedule_in_order
from interfere.policy.schedule.problem import ScheduleProblem, objective_value, value_of
from interfere.policy.schedule.search import MIN_THROUGHPUTS, search
from tests.policy.schedule.random_problems import check_feasible, random_problem, relabelled

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_device_is_over_its_seats_and_no_class_over_its_devices(seed: int) -> None:
    problem = random_problem(seed)
    for heuristic in HEURISTICS:
        check_feasible(problem, project(problem, heuristic))
    for order in JobOrder:
        for threshold in MIN_THROUGHPUTS:
            check_feasible(problem, schedule_in_order(problem, jobs_in_order(problem, order), threshold))
    check_feasible(problem, search(problem).schedule)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_is_never_worse_than_a_named_heuristic(seed: int) -> None:
    problem = random_problem(seed)
    found = search(problem)
    for heuristic in HEURISTICS:
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


def test_a_heavier_bound_comes_before_the_objective() -> None:
    """Two jobs on one device: the longer one goes first where it alone was promised an early end."""
    problem = _equal_jobs(2, [100.0, 10.0], math.nan)
    assert search(problem).schedule.start_s.tolist() == [10.0, 0.0]
    promised = replace(problem, latest_end_s=np.array([105.0, math.inf]))
    assert search(promised).schedule.start_s.tolist() == [0.0, 100.0]
    assert objective_value(search(promised).schedule, promised) == pytest.approx(105.0)
