"""Laws of the part of a decision: all else stays as it was decided, and in the part nothing is better than the plan."""

from dataclasses import replace

import pytest

from interfere.policy.answer.alternatives import alternatives
from interfere.policy.decide import decide
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.builder import decision_problem
from interfere.policy.subproblems import subproblem_of
from interfere.records import ActionKind, Device, Job, Limits, ObjectiveKind, ScopeLedger, Snapshot, SolveStatus
from tests.policy.solve.test_gangs import World
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver


@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 1, 2, 3)])
@pytest.mark.parametrize("seed", range(40))
def test_of_gangs_nothing_is_better_than_what_was_decided(seed: int, sizes: tuple[int, ...]) -> None:
    world = World(seed, sizes=sizes)
    decided = world.plan()
    devices = {device.id: device for device in world.snapshot.devices}
    for action in decided.actions:
        part = subproblem_of(world.snapshot, decided, action.job_id)
        if part is None:  # no device for a gang of its size
            assert action.kind is ActionKind.WAIT
            continue
        assert len({job.gpus for job in part.pending}) == 1
        where = DeviceClass.of(devices[action.device_id]) if action.device_id else None
        asked = decision_problem(context(part, world.predictor, world.resolve), by_start_weight=True)
        found, _ = alternatives(asked, action, where)
        (chosen,) = [one for one in found if one.chosen]
        assert (chosen.kind, chosen.device_id, chosen.partner_id) == (action.kind, action.device_id, action.partner_id)
        if len(sizes) == 1 and decided.status is SolveStatus.OPTIMAL:
            best = (found[0].waiting_weight, found[0].cost)
            assert best == pytest.approx((chosen.waiting_weight, decided.cost), rel=1e-6, abs=1e-9)


def test_what_was_promised_before_keeps_its_place_and_has_no_alternatives() -> None:
    predictor = TablePredictor({("w", "w"): 1.5})
    resolve = resolver(profile("w"))
    devices = tuple(Device(id=f"d{k}", type=DEVICE) for k in range(2))
    early = Snapshot(pending=(Job(id="a", workload="w"),), devices=devices, now_s=0.0)
    first = decide(context(early, predictor, resolve, "first"), ScopeLedger(scope="s"))
    (promised,) = first.plan.actions
    later = Snapshot(pending=(*early.pending, Job(id="b", workload="w")), devices=devices, now_s=10.0)
    second = decide(context(later, predictor, resolve, "second"), first.ledger).plan
    assert second.actions[0].device_id == promised.device_id
    assert subproblem_of(later, second, "a") is None
    part = subproblem_of(later, second, "b")
    assert part is not None
    assert [job.id for job in part.pending] == ["b"]
    assert [device.id for device in part.devices] == [second.actions[1].device_id] != [promised.device_id]
    whole = subproblem_of(early, first.plan, "a")
    assert whole is not None
    assert len(whole.devices) == 2


def test_who_was_declined_or_held_back_is_in_no_part() -> None:
    predictor, resolve = TablePredictor({("w", "w"): 1.5}), resolver(profile("w"))
    limits = Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.DECLINE}))
    devices = (
        Device(id="d0", type=DEVICE, residents=(Job(id="r", workload="w", remaining_s=9.0),)),
        Device(id="d1", type=DEVICE),
    )
    gang = Job(id="gang", workload="w", remaining_s=5.0, deadline_s=14.0, gpus=2)
    early = Snapshot(
        pending=(gang,), devices=devices, now_s=0.0, limits=limits, objective=ObjectiveKind.WEIGHTED_EXCESS
    )
    first = decide(context(early, predictor, resolve, "first"), ScopeLedger(scope="s"))
    late = Job(id="late", workload="w", remaining_s=5.0, deadline_s=4.0)
    long, short = (Job(id=name, workload="w", remaining_s=left_s) for name, left_s in (("long", 10.0), ("short", 9.0)))
    later = replace(early, pending=(gang, replace(long, weight=1.5), late, short))
    second = decide(context(later, predictor, resolve, "second"), first.ledger).plan
    kinds = {action.job_id: action.kind for action in second.actions}
    assert kinds == {"gang": "wait", "long": "wait", "late": "decline", "short": "start_alone"}
    assert [subproblem_of(later, second, name) for name in ("long", "late")] == [None, None]
    part = subproblem_of(later, second, "short")
    assert part is not None
    assert [job.id for job in part.pending] == ["short"]


def test_a_job_that_runs_or_that_nobody_knows_was_not_planned() -> None:
    devices = (Device(id="d", type=DEVICE, residents=(Job(id="r", workload="w"),)),)
    snapshot = Snapshot(pending=(Job(id="a", workload="w"),), devices=devices)
    decided = decide(
        context(
            Snapshot(pending=snapshot.pending, devices=devices, now_s=0.0),
            TablePredictor({("w", "w"): 1.5}),
            resolver(profile("w")),
            "d",
        ),
        ScopeLedger(scope="s"),
    ).plan
    assert subproblem_of(snapshot, decided, "r") is None
    assert subproblem_of(snapshot, decided, "x") is None


def test_residents_that_stay_are_seats_and_those_that_move_are_none() -> None:
    devices = tuple(
        Device(id=f"d{k}", type=DEVICE, residents=(Job(id=f"r{k}", workload="w"),) if k < 2 else ()) for k in range(4)
    )
    snapshot = Snapshot(pending=(Job(id="a", workload="w"),), devices=devices)
    decided = plan(context(snapshot, TablePredictor({("w", "w"): 1.5}), resolver(profile("w")), "d"))
    stays = replace(decided.actions[0], job_id="r0", device_id="d0")
    moves = replace(decided.actions[0], job_id="r1", device_id="d3")
    part = subproblem_of(snapshot, replace(decided, actions=(*decided.actions, stays, moves)), "a")
    assert part is not None
    assert [device.id for device in part.devices] == ["d0", "d2"]
