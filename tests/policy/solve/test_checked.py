"""Every plan is checked before it is served: bounds that prices do not prove and illegal placements are taken back."""

import itertools
import logging
import time
from dataclasses import replace

import numpy as np
import pytest

from interfere.matching.problem import Placement
from interfere.matching.search import Solution, solve_levels
from interfere.policy.solve import search
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.records import ActionKind, SolveStatus
from interfere.time_budget import TimeBudget
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.seats import SeatedCluster
from tests.policy.solve.test_search import TYPES, crowd
from tests.tables import TablePredictor, context, plan, resolver


def asked() -> tuple[object, ...]:
    snapshot, table, profiles = crowd(30, 8, 12, 2)
    return snapshot, TablePredictor(table, devices=TYPES), resolver(*profiles)


def test_what_is_true_is_served_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = plan(context(*asked()))  # type: ignore[arg-type]
    assert found.status is SolveStatus.OPTIMAL
    assert caplog.records == []


def test_a_bound_above_what_the_prices_prove_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true = plan(context(*asked()))  # type: ignore[arg-type]

    def overstated(*arguments: object, **options: object) -> Solution:
        solution = solve_levels(*arguments, **options)  # type: ignore[arg-type]
        last = solution.certificates[-1]
        assert last.prices is not None
        wrong = replace(last.prices, jobs=last.prices.jobs * 0.5, hosts=last.prices.hosts * 2.0)
        return replace(solution, certificates=(*solution.certificates[:-1], replace(last, prices=wrong)))

    monkeypatch.setattr(search, "solve_levels", overstated)
    with caplog.at_level(logging.ERROR):
        found = plan(context(*asked()))  # type: ignore[arg-type]
    assert found.status is SolveStatus.BOUNDED
    assert found.lower_bound < true.lower_bound
    assert np.isfinite(found.lower_bound)
    assert "does not prove" in caplog.text
    assert "j0" in caplog.text  # the snapshot is logged


@pytest.mark.parametrize("cluster", [RandomCluster, SeatedCluster])
def test_wherever_the_search_stops_the_plan_is_legal_and_no_worse_than_its_bound_and_the_baseline(
    cluster: type[RandomCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by one at each reading, so a budget of n seconds ends at the n-th reading."""
    failed: list[str] = []
    stopped_early = 0
    for seed in range(6):
        drawn = cluster(seed).context()
        drawn = replace(drawn, report_failed_checks=lambda _, problems: failed.extend(problems))
        for limit_s in range(1, 40):
            readings = itertools.count()
            monkeypatch.setattr(time, "thread_time", lambda readings=readings: float(next(readings)))
            found = plan_pending_jobs(replace(drawn, budget=TimeBudget(float(limit_s))))
            monkeypatch.undo()
            stopped_early += found.status is SolveStatus.BOUNDED
            assert [action.job_id for action in found.actions] == [job.id for job in drawn.snapshot.pending]
            for level in found.levels:
                assert -np.inf < level.lower_bound <= level.value < np.inf, (seed, limit_s)
            assert np.isfinite(found.lower_bound)
            assert found.lower_bound <= found.objective_value + 1e-9 * abs(found.objective_value)
            waiting = sum(action.kind is ActionKind.WAIT for action in found.actions)
            equal_weights = len({(job.weight, job.priority) for job in drawn.snapshot.pending}) == 1
            assert waiting <= found.greedy_waiting or not equal_weights, (seed, limit_s)
    assert failed == []
    assert stopped_early > 0


def test_an_illegal_placement_gives_way_to_the_greedy_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def doubled(*arguments: object, **options: object) -> Solution:
        solution = solve_levels(*arguments, **options)  # type: ignore[arg-type]
        placement = solution.placement
        return replace(solution, placement=Placement(column=placement.column, count=placement.count * 2))

    monkeypatch.setattr(search, "solve_levels", doubled)
    with caplog.at_level(logging.ERROR):
        found = plan(context(*asked()))  # type: ignore[arg-type]
    waiting = sum(action.kind is ActionKind.WAIT for action in found.actions)
    assert (waiting, found.objective_value) == (found.greedy_waiting, pytest.approx(found.greedy_cost))
    assert found.status is SolveStatus.BOUNDED
    assert "illegal" in caplog.text


@pytest.mark.parametrize("limit_s", [1e-9, float("inf")])
@pytest.mark.parametrize("cluster", [RandomCluster, SeatedCluster])
def test_bounds_and_gaps_are_finite_whenever_the_search_ends(cluster: type[RandomCluster], limit_s: float) -> None:
    for seed in range(60):
        found = plan_pending_jobs(replace(cluster(seed).context(), budget=TimeBudget(limit_s)))
        bounds = (found.lower_bound, found.gap, *(level.lower_bound for level in found.levels))
        assert np.isfinite(bounds).all(), seed
