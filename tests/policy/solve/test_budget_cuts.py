"""A decision does not depend on the speed of the machine, unless the budget cuts the search, which the plan says."""

import time
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.context import PlanningContext
from interfere.policy.decide import decide
from interfere.policy.solve import builder
from interfere.policy.solve.builder import decision_problem
from interfere.records import Device, Job, Limits, ObjectiveKind, Plan, ScopeLedger, Snapshot, SolveStatus
from interfere.time_budget import TimeBudget
from tests.tables import TablePredictor, context, plan, profile, resolver

TYPES, WORKLOADS = ("a", "b", "c"), tuple(f"w{k}" for k in range(12))


def contended(seed: int, budget_s: float, seats: int = 2) -> PlanningContext:
    """Jobs of as many weights for the seats of devices of three types, some of which run a job."""
    rng = np.random.default_rng(seed)
    table = {(victim, other): float(1 + rng.gamma(1.0, 0.4)) for victim in WORKLOADS for other in WORKLOADS}

    def job(name: str) -> Job:
        return Job(id=name, workload=str(rng.choice(WORKLOADS)), weight=float(rng.uniform(1, 4)))

    jobs, places = (60, 20) if seats == 2 else (24, 6)
    devices = (
        Device(id=f"d{k}", type=TYPES[k % 3], seats=seats, residents=(job(f"r{k}"),) if k < places // 2 else ())
        for k in range(places)
    )
    pending = tuple(replace(job(f"p{k}"), remaining_s=float(rng.uniform(60, 6_000))) for k in range(jobs))
    snapshot = Snapshot(
        pending=pending, devices=tuple(devices), now_s=1_000.0, limits=Limits.of(time_budget_s=budget_s)
    )
    known = resolver(*(profile(name, device_type=kind) for name in WORKLOADS for kind in TYPES))
    return context(snapshot, TablePredictor(table, devices=TYPES), known)


def decided(asked: PlanningContext) -> Plan:
    return decide(asked, ScopeLedger(scope="default")).plan


@pytest.mark.parametrize("seats", [2, 3])
def test_a_plan_that_no_budget_cut_is_the_same_on_a_machine_of_another_speed(
    monkeypatch: pytest.MonkeyPatch, seats: int
) -> None:
    clock = time.thread_time
    for answer in (plan, decided):
        first = answer(contended(3, 1_000.0, seats))
        with monkeypatch.context() as slower:
            slower.setattr(time, "thread_time", lambda: 7.0 * clock())
            again = answer(contended(3, 1_000.0, seats))
        assert (first.stopped_by, again.stopped_by) == ("", "")
        assert first.status is SolveStatus.BOUNDED or seats > 2 or answer is decided
        assert repr(again) == repr(first)  # NaN, where nothing is told, is not equal to itself


def test_a_plan_that_lack_of_time_cut_says_so() -> None:
    for answer in (plan, decided):
        cut = answer(replace(contended(0, 1.0), budget=TimeBudget(0.001)))  # as many work units as it likes
        assert (cut.status, cut.stopped_by) == (SolveStatus.BOUNDED, "time budget")
        assert np.isfinite([cut.lower_bound, *(level.lower_bound for level in cut.levels)]).all()


def test_on_a_busy_machine_a_solver_gets_the_wall_time_that_its_cpu_time_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s, wall_s = 100.0, 5_000.0
    monkeypatch.setattr(time, "thread_time", lambda: cpu_s)
    monkeypatch.setattr(time, "monotonic", lambda: wall_s)
    budget = TimeBudget(2.0)
    assert budget.remaining_wall_s == pytest.approx(2.0)
    cpu_s, wall_s = 101.0, 5_010.0  # a tenth of a processor
    assert budget.remaining_s == pytest.approx(1.0)
    assert budget.share(0.5).remaining_wall_s == pytest.approx(0.5 * 10.0, rel=0.05)
    cpu_s = 102.5
    assert not budget.was_cut
    assert (budget.remaining_wall_s, budget.share(0.5).expired, budget.was_cut) == (0.0, True, True)
    assert TimeBudget(2.0, wall_limit_s=0.1).remaining_wall_s == pytest.approx(0.1)


def test_large_groups_are_listed_while_the_work_units_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A largest cost has no patterns: groups of six are listed one by one, too many to list all within any budget."""
    monkeypatch.setattr(builder, "MAX_LISTED_JOBS", 100)
    asked = contended(0, 1_000.0, seats=6)
    snapshot = replace(asked.snapshot, objective=ObjectiveKind.MAKESPAN)
    columns, cutoffs, spent = [], [], []
    for units in (1_000.0, 1e9):
        budget = TimeBudget(1e6, max_units=units)
        problem = decision_problem(replace(asked, snapshot=snapshot, budget=budget), by_start_weight=True).problem
        columns.append(len(problem.host))
        cutoffs.append(max(cut.largest_size for cut in problem.cutoffs))
        spent.append(budget.units)
    assert columns[0] < columns[1]
    assert spent[0] < spent[1]
    assert cutoffs[0] == cutoffs[1] == 6  # that larger groups may be missing is known in both
