"""Laws of the alternatives: none is better than what was decided, each costs what the best plan with it costs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.answer.alternatives import (
    MAX_CLASSES,
    MAX_EXAMPLES,
    MAX_PARTNERS,
    alternatives,
    choices,
    refusals,
)
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import (
    Action,
    ActionKind,
    Alternative,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    RuleKind,
    Snapshot,
    SolveStatus,
)
from interfere.time_budget import TimeBudget
from tests.policy.solve.test_planner import World
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

SEEDS = range(40)
CASES = [(kind, kinds) for kind in ObjectiveKind for kinds in (1, 2)]


class Timed(World):
    """With everything that any objective needs of a job."""

    def __init__(self, seed: int, objective: ObjectiveKind, kinds: int) -> None:
        super().__init__(seed, kinds=kinds)

        def timed(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
            return tuple(
                replace(job, remaining_s=60.0 * (1 + k), elapsed_s=100.0 * job.weight, attained_s=10.0 * k)
                for k, job in enumerate(jobs)
            )

        self.snapshot = replace(
            self.snapshot,
            pending=timed(self.snapshot.pending),
            devices=tuple(replace(one, residents=timed(one.residents)) for one in self.snapshot.devices),
            objective=objective,
            limits=Limits.of(**self.snapshot.limits.flat() | {"soft_cap": 1.5}),
        )

    def context(self) -> PlanningContext:
        return context(self.snapshot, self.predictor, self.resolve)

    def problem(self) -> DecisionProblem:
        return problem(self.context())


def problem(asked: PlanningContext) -> DecisionProblem:
    return decision_problem(asked, by_start_weight=True)


@pytest.mark.parametrize(("objective", "kinds"), CASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_decided_is_among_them_says_what_the_plan_says_and_none_is_better(
    seed: int, objective: ObjectiveKind, kinds: int
) -> None:
    world = Timed(seed, objective, kinds)
    decided = world.plan()
    for action in decided.actions:
        found, _ = alternatives(world.problem(), action, _where(world.snapshot, action))
        (chosen,) = [one for one in found if one.chosen]
        assert (chosen.kind, chosen.device_id, chosen.partner_id) == (action.kind, action.device_id, action.partner_id)
        waiting, weight = _waiting(world.snapshot, decided)
        assert (chosen.waiting, chosen.waiting_weight) == (waiting, pytest.approx(weight))
        if decided.status is SolveStatus.OPTIMAL:
            assert chosen.cost == pytest.approx(decided.objective_value, rel=1e-6, abs=1e-9)
            best = (found[0].waiting_weight, found[0].cost)
            assert best == pytest.approx((weight, decided.objective_value), rel=1e-6, abs=1e-9)


def _where(snapshot: Snapshot, action: Action) -> DeviceClass | None:
    devices = [device for device in snapshot.devices if device.id == action.device_id]
    return DeviceClass.of(devices[0]) if devices else None


def _waiting(snapshot: Snapshot, decided: Plan) -> tuple[int, float]:
    weight = {job.id: job.weight for job in snapshot.pending}
    waits = [weight[action.job_id] for action in decided.actions if action.kind is ActionKind.WAIT]
    return len(waits), sum(waits)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_costs_what_the_best_placement_with_it_costs(seed: int) -> None:
    """The group's own cost and the best of the rest, planned as a snapshot of its own."""
    world = Timed(seed, ObjectiveKind.WEIGHTED_EXCESS, 1)
    for action in world.plan().actions:
        for one in alternatives(world.problem(), action, _where(world.snapshot, action))[0]:
            waiting, cost = _by_planning_the_rest(world, action, one)
            assert (one.waiting_weight, one.cost) == pytest.approx((waiting, cost), rel=1e-6, abs=1e-9)


def _by_planning_the_rest(world: World, action: Action, one: Alternative) -> tuple[float, float]:
    jobs = {job.id: job for job in world.snapshot.pending}
    limits, taken = world.snapshot.limits, [d for d in world.snapshot.devices if d.id == one.device_id]
    if limits.max_devices is not None and taken and not taken[0].residents:
        limits = replace(limits, max_devices=limits.max_devices - 1)
    rest = replace(
        world.snapshot,
        pending=tuple(job for job in jobs.values() if job.id not in (action.job_id, one.partner_id)),
        devices=tuple(device for device in world.snapshot.devices if device not in taken),
        limits=limits,
    )
    own = jobs[action.job_id].weight if one.kind is ActionKind.WAIT else 0.0
    if not rest.devices:
        return own + sum(job.weight for job in rest.pending), one.group_cost
    decided = plan(context(rest, world.predictor, world.resolve, "rest"))
    return own + _waiting(rest, decided)[1], one.group_cost + decided.cost


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_none_needs_what_is_not_allowed(seed: int) -> None:
    world = Timed(seed, ObjectiveKind.WEIGHTED_EXCESS, 2)
    limits = world.snapshot.limits
    for action in world.plan().actions:
        for one in alternatives(world.problem(), action, _where(world.snapshot, action))[0]:
            assert one.kind in limits.allowed
            if one.partner_id and not math.isnan(limits.slowdown.max_slowdown):
                assert max(one.slowdown, one.partner_slowdown) <= limits.slowdown.max_slowdown


def crowd(n: int, devices: int, **given: object) -> tuple[Snapshot, TablePredictor, object]:
    """Jobs of ever worse workloads on devices of one kind."""
    names = [f"w{k}" for k in range(n)]
    table = {(v, o): 1.0 + 0.01 * (int(v[1:]) + int(o[1:])) for v in names for o in names}
    pending = tuple(Job(id=f"j{k}", workload=name) for k, name in enumerate(names))
    where = tuple(Device(id=f"d{k}", type=DEVICE) for k in range(devices))
    snapshot = Snapshot(pending=pending, devices=where, **given)  # type: ignore[arg-type]
    return snapshot, TablePredictor(table), resolver(*map(profile, names))


def test_a_few_partners_that_differ_are_solved_for_not_all() -> None:
    snapshot, predictor, resolve = crowd(20, 10)
    twins = tuple(Job(id=f"twin{k}", workload="w1") for k in range(30))
    asked = context(replace(snapshot, pending=snapshot.pending + twins), predictor, resolve)  # type: ignore[arg-type]
    found = choices(problem(asked), Action(kind=ActionKind.WAIT, job_id="j0"), None)
    solved, left_out = alternatives(problem(asked), Action(kind=ActionKind.WAIT, job_id="j0"), None)
    assert (len(solved), left_out) == (len(found), 0)
    partners = [one.partner_workload for one in found if one.partner_id]
    assert partners == [f"w{k}" for k in range(1, MAX_PARTNERS + 1)]  # the cheapest, the twins as one
    assert [one.kind for one in found if not one.partner_id] == [ActionKind.WAIT, ActionKind.START_ALONE]


def test_a_device_of_every_kind_up_to_a_few() -> None:
    devices = tuple(Device(id=f"d{k}", type=DEVICE, memory_bytes=1e9 + k) for k in range(8))
    asked = problem(context(Snapshot(pending=(Job(id="j", workload="w"),), devices=devices), *_one_workload()))  # type: ignore[arg-type]
    alone = [
        one
        for one in choices(
            asked, Action(kind=ActionKind.START_ALONE, job_id="j", device_id="d6"), DeviceClass.of(devices[6])
        )
        if one.kind is ActionKind.START_ALONE
    ]
    assert [one.device_id for one in alone if one.chosen] == ["d6"]
    assert len(alone) == 1 + MAX_CLASSES


def _one_workload() -> tuple[TablePredictor, object]:
    return TablePredictor({("w", "w"): 1.5}), resolver(profile("w"))


def test_taking_a_device_counts_against_the_most_that_may_be_taken() -> None:
    snapshot, predictor, resolve = crowd(4, 4, limits=Limits(max_devices=1))
    asked = context(snapshot, predictor, resolve)  # type: ignore[arg-type]
    found, _ = alternatives(problem(asked), Action(kind=ActionKind.WAIT, job_id="j0"), None)
    by_kind = {one.kind: one for one in found}
    assert by_kind[ActionKind.START_ALONE].waiting == 3
    assert by_kind[ActionKind.START_SHARED].waiting == 2
    assert by_kind[ActionKind.WAIT].waiting == 2  # itself, and one of the three others


def test_refused_partners_are_counted_and_a_few_listed_for_each_rule() -> None:
    snapshot, predictor, resolve = crowd(20, 2, limits=Limits.of(max_slowdown=1.1))
    stranger = Job(id="new", workload="nobody")
    pending = replace(snapshot, pending=(*snapshot.pending, stranger))
    listed, total = refusals(problem(context(pending, predictor, resolve)), Action(kind=ActionKind.WAIT, job_id="j5"))  # type: ignore[arg-type]
    assert total == 15  # beside w6 to w19 past 1.1 ×, and beside nobody knows whom; w5 itself is no partner
    kinds = [one.rule.kind for one in listed if one.rule is not None]
    assert kinds.count(RuleKind.REQUEST_SLOWDOWN_CAP) == MAX_EXAMPLES
    assert [one.partner_id for one in listed if one.reason.startswith("no profile")] == ["new"]
    assert {one.job_id for one in listed} == {"j5"}


def test_a_job_that_fits_nowhere_even_alone_says_so() -> None:
    devices = (Device(id="d", type=DEVICE, memory_bytes=1e9),)
    snapshot = Snapshot(pending=(Job(id="j", workload="w", memory_peak_bytes=2e9),), devices=devices)
    asked = problem(context(snapshot, *_one_workload()))  # type: ignore[arg-type]
    (refusal,), total = refusals(asked, Action(kind=ActionKind.WAIT, job_id="j"))
    assert (refusal.partner_id, total) == ("", 1)
    assert refusal.reason.startswith("memory: 1.86 GiB > 0.931 GiB")


def test_a_job_that_no_pool_is_open_to_says_so() -> None:
    devices = (Device(id="d", type=DEVICE, pool="theirs"),)
    snapshot = Snapshot(pending=(Job(id="j", workload="w", pools=("ours",)),), devices=devices)
    (refusal,), total = refusals(problem(context(snapshot, *_one_workload())), Action(kind=ActionKind.WAIT, job_id="j"))  # type: ignore[arg-type]
    assert (refusal.partner_id, total) == ("", 1)
    assert refusal.reason.startswith("pool: j allows [ours]")


def test_the_partner_it_was_given_is_listed_where_that_is_not_allowed_any_more() -> None:
    snapshot, predictor, resolve = crowd(20, 2, limits=Limits.of(max_slowdown=1.1))
    given = Action(kind=ActionKind.START_SHARED, job_id="j5", device_id="d0", partner_id="j19")
    listed, _ = refusals(problem(context(snapshot, predictor, resolve)), given)  # type: ignore[arg-type]
    assert len(listed) == MAX_EXAMPLES + 1
    assert listed[-1].partner_id == "j19"


def test_out_of_time_what_was_chosen_is_answered_and_the_rest_is_counted() -> None:
    rng = np.random.default_rng(0)
    names = [f"w{k}" for k in range(60)]
    table = {(v, n): float(1 + rng.gamma(1.0, 0.6)) for v in names for n in names}
    snapshot = Snapshot(
        pending=tuple(Job(id=name, workload=name, remaining_s=float(rng.exponential(1e3))) for name in names),
        devices=tuple(Device(id=f"d{k}", type=DEVICE) for k in range(40)),
        objective=ObjectiveKind.MAKESPAN,
    )
    asked = context(snapshot, TablePredictor(table), resolver(*map(profile, names)))
    waits = Action(kind=ActionKind.WAIT, job_id="w0")
    late = TimeBudget(-1.0)
    solved, left_out = alternatives(problem(asked), waits, None, late)
    assert any(one.chosen for one in solved)
    assert left_out > 0
    assert len(solved) + left_out == len(choices(problem(asked), waits, None))
