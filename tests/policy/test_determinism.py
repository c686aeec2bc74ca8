"""A decision is a function of the snapshot: shuffled, and asked again on a slower machine, it gives the same plan, also
where its work units end the search."""

import random
import time
from dataclasses import replace

import pytest

from interfere.policy.context import PlanningContext
from interfere.policy.decide import decide
from interfere.records import Action, Device, Plan, ScopeLedger, SolveStatus
from interfere.time_budget import TimeBudget
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.seats import SeatedCluster
from tests.policy.solve.test_budget_cuts import contended

UNITS = (0.0, 2_000.0, 20_000.0, 100_000.0, 300_000.0)  # none, to more than most searches need


def with_times(asked: PlanningContext, seed: int, units: float) -> PlanningContext:
    """The same question with the time since each job was submitted, and a budget of work units."""
    rng = random.Random(seed)
    pending = tuple(replace(job, elapsed_s=rng.uniform(0.0, 3_000.0)) for job in asked.snapshot.pending)
    snapshot = replace(asked.snapshot, pending=pending, now_s=1_000.0)
    return replace(asked, snapshot=snapshot, budget=TimeBudget(1e6, max_units=units))


def shuffled(asked: PlanningContext, seed: int) -> PlanningContext:
    """The same question with jobs, devices and residents in another order."""
    rng, snapshot = random.Random(seed), asked.snapshot

    def in_another_order(values: tuple) -> tuple:
        return tuple(rng.sample(values, len(values)))

    devices = (replace(device, residents=in_another_order(device.residents)) for device in snapshot.devices)
    snapshot = replace(
        snapshot, pending=in_another_order(snapshot.pending), devices=in_another_order(tuple[Device, ...](devices))
    )
    return replace(asked, snapshot=snapshot, budget=TimeBudget(1e6, max_units=asked.budget.max_units))


def answer(asked: PlanningContext) -> str:
    """The whole plan as text, its actions by job."""
    return text(decide(asked, ScopeLedger(scope=asked.snapshot.scope)).plan)


def text(plan: Plan) -> str:
    def by_job(action: Action) -> str:
        return action.job_id

    return repr(replace(plan, actions=tuple(sorted(plan.actions, key=by_job))))


@pytest.mark.parametrize("cluster", [RandomCluster, SeatedCluster])
def test_shuffled_and_asked_twice_the_plan_is_the_same_wherever_its_units_end(
    cluster: type[RandomCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.thread_time
    for seed in range(20):
        asked = with_times(cluster(seed).context(), seed, UNITS[seed % len(UNITS)])
        first = answer(asked)
        with monkeypatch.context() as slower:
            slower.setattr(time, "thread_time", lambda: 7.0 * clock())
            assert answer(shuffled(asked, seed)) == first, seed


def test_a_contended_decision_that_its_units_end_is_bounded_and_the_same() -> None:
    plans = []
    for units in UNITS[::2]:
        asked = with_times(contended(1, 2.0), 1, units)
        plans.append(decide(asked, ScopeLedger(scope="default")).plan)
        assert plans[-1].stopped_by == ""
        assert answer(shuffled(asked, 2)) == text(plans[-1])
    assert plans[0].status is SolveStatus.BOUNDED
    assert len({plan.objective_value for plan in plans}) > 1  # the budget decides how far the search comes
