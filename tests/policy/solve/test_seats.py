"""Jobs start in groups up to the seats of each device, and caps, memory and grants of every one of them hold."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from interfere.errors import InvalidInputError
from interfere.policy.answer.ranking import rank
from interfere.policy.decide import ScopeDecision, decide
from interfere.predict.groups import DEFAULT_COMPOSITION, composed_slowdown
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    RuleKind,
    ScopeLedger,
    Snapshot,
    SolveStatus,
)
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

GIB = 2.0**30
SLOWDOWN = {("a", "a"): 1.05, ("a", "b"): 1.2, ("b", "a"): 1.1, ("b", "b"): 1.4}
SPREAD = 1.02
PREDICTOR = TablePredictor(SLOWDOWN, spread=SPREAD)
KNOWN = resolver(profile("a"), profile("b"))


def jobs(n: int, workload: str = "a", prefix: str = "j", **more: object) -> tuple[Job, ...]:
    return tuple(Job(id=f"{prefix}{k}", workload=workload, **more) for k in range(n))  # type: ignore[arg-type]


def device(name: str = "d", seats: int | None = 4, residents: tuple[Job, ...] = (), **more: object) -> Device:
    return Device(id=name, type=DEVICE, seats=seats, residents=residents, **more)  # type: ignore[arg-type]


def planned(pending: tuple[Job, ...], *devices: Device, **more: object) -> Plan:
    snapshot = Snapshot(pending=pending, devices=devices, **more)  # type: ignore[arg-type]
    return plan(context(snapshot, PREDICTOR, KNOWN))


def started(found: Plan) -> int:
    return sum(bool(action.places) for action in found.actions)


@pytest.mark.parametrize(
    ("seats", "memory_gib", "most"),
    [(12, 48.0, 12), (10, 48.0, 10), (12, 30.0, 7), (1, 48.0, 1), (None, 48.0, 12), (None, 30.0, 7)],
)
def test_twelve_jobs_of_4_gib_start_as_seats_and_memory_allow(seats: int | None, memory_gib: float, most: int) -> None:
    slots = device(seats=seats, memory_bytes=memory_gib * GIB, granule_bytes=4 * GIB)
    found = planned(jobs(12, memory_peak_bytes=4 * GIB), slots)
    assert started(found) == most
    assert found.status is SolveStatus.OPTIMAL
    assert all(len(action.partners) == most - 1 for action in found.actions if action.places)


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": ObjectiveKind.MAKESPAN},
        {"objective": ObjectiveKind.DEADLINE_MISSES, "now_s": 0.0},
        {"limits": Limits.of(guest_ends_first=True)},
    ],
)
def test_slots_of_grants_are_seats_whatever_is_minimised(changes: dict[str, object]) -> None:
    slots = device(seats=None, memory_bytes=48 * GIB, granule_bytes=4 * GIB)
    pages = device(seats=None, memory_bytes=48 * GIB, oversubscription_ratio=1.5)
    pending = jobs(12, memory_peak_bytes=4 * GIB, memory_working_set_bytes=2 * GIB, remaining_s=60.0)
    assert started(planned(pending, pages, **changes)) == 2
    assert started(planned(pending, slots, **changes)) == 12


def test_a_job_joins_the_slots_that_grants_leave() -> None:
    residents = jobs(9, prefix="r", memory_peak_bytes=4 * GIB)
    slots = device(seats=None, memory_bytes=48 * GIB, granule_bytes=4 * GIB, residents=residents)
    found = planned(jobs(12, memory_peak_bytes=4 * GIB), slots)
    assert started(found) == 3
    (ranking,) = rank(jobs(1, memory_peak_bytes=4 * GIB)[0], [slots], PREDICTOR, catalogue(KNOWN), Limits())
    assert ranking.feasible


@pytest.mark.parametrize("cap", [1.3, 1.6, 2.5, 5.0])
def test_as_many_start_on_twelve_slots_as_their_caps_allow(cap: float) -> None:
    def upper(n: int) -> float:
        distance = math.sqrt((n - 1) * math.log(SPREAD) ** 2)
        widened = math.hypot(distance, float(DEFAULT_COMPOSITION.log_distance(0.0, n - 1)))
        return composed_slowdown([1.05] * (n - 1)) * math.exp(widened)

    most = max(n for n in range(1, 13) if n == 1 or upper(n) <= cap)
    found = planned(jobs(12, memory_peak_bytes=4 * GIB, max_slowdown=cap), device(seats=12, memory_bytes=48 * GIB))
    assert 2 < most < 12
    assert started(found) == most
    assert all(action.slowdown_upper <= cap for action in found.actions if action.places)


def test_a_latency_target_of_any_member_limits_the_group() -> None:
    step_time_s = profile("a").step_time_s
    strict = Job(id="strict", workload="a", latency_target_s=1.2 * step_time_s, priority=3)
    found = planned((strict, *jobs(6)), device(seats=6))
    assert found.actions[0].places
    assert found.actions[0].slowdown_upper <= 1.2
    assert 1 < started(found) < 6


def test_copies_in_a_slice_are_slowed_down_as_their_steps_in_smaller_slices_say() -> None:
    whole, half = "a100-80gb-2g.20gb", "a100-80gb-1g.10gb"
    predictor = TablePredictor(SLOWDOWN, spread=SPREAD, devices=(whole,))
    steps_s = {whole: 0.1, half: 0.19}
    facts = [replace(profile("a", device_type=kind), step_time_s=step_s) for kind, step_s in steps_s.items()]
    known = resolver(*facts, profile("b", device_type=whole))

    def told(*residents: str, pending: str = "a") -> float:
        placed = tuple(Job(id=f"r{k}", workload=name) for k, name in enumerate(residents))
        place = Device(id="d", type=whole, seats=4, residents=placed)
        snapshot = Snapshot(pending=(Job(id="j", workload=pending),), devices=(place,))
        (start,) = (each for each in plan(context(snapshot, predictor, known)).actions if each.job_id == "j")
        return start.slowdown

    in_a_third = 0.19 * (1 / 2) / (1 / 3) / 0.1  # below the smallest slice steps take as much longer
    assert told("a", "a") == pytest.approx(1.1 + 0.5 * (in_a_third - 1.1))
    assert told("a", "a") > composed_slowdown([1.05, 1.05])
    assert told("b", "b", pending="b") == pytest.approx(composed_slowdown([1.4, 1.4]))  # not known in smaller slices
    assert told("a", "b") == pytest.approx(1.25 + 0.5 * (1.9 - 1.25))


def test_a_job_joins_two_residents_and_everybody_s_slowdown_is_told() -> None:
    residents = (Job(id="r1", workload="a"), Job(id="r2", workload="b"))
    limits = Limits.of(allowed=frozenset(ActionKind))
    snapshot = Snapshot(pending=jobs(1), devices=(device(residents=residents),), limits=limits, now_s=0.0)
    decided = decide(context(snapshot, PREDICTOR, KNOWN), ScopeLedger(scope="default"))
    start, *kept = decided.plan.actions
    assert (start.kind, start.partner_id, start.partner_ids) == (ActionKind.START_SHARED, "r1", ("r1", "r2"))
    assert start.slowdown == pytest.approx(composed_slowdown([1.05, 1.2]))
    expected = {"r1": composed_slowdown([1.05, 1.2]), "r2": composed_slowdown([1.1, 1.1])}
    assert start.slowdown_of_partners == pytest.approx(expected)
    assert {action.job_id: action.slowdown for action in kept} == pytest.approx(expected)
    added = [composed_slowdown([1.05, 1.2]) - 1.2, composed_slowdown([1.1, 1.1]) - 1.1]
    assert start.cost == pytest.approx(start.slowdown - 1 + sum(added))
    assert decided.plan.pairs == ()


def test_no_third_job_starts_where_two_seats_are_taken() -> None:
    residents = (Job(id="r1", workload="a"), Job(id="r2", workload="a"))
    full = planned(jobs(1), device(seats=2, residents=residents), device("e", seats=3))
    assert full.actions[0].device_id == "e"
    assert not started(planned(jobs(1), device(seats=None, residents=residents)))


def test_gangs_form_groups_on_the_same_devices() -> None:
    pair = tuple(device(name, seats=3) for name in "de")
    found = planned(jobs(4, gpus=2), *pair)
    assert started(found) == 3
    assert {action.device_ids for action in found.actions if action.places} == {("d", "e")}
    running = Job(id="r", workload="a", gpus=2)
    beside = planned(jobs(3, gpus=2), *(replace(each, residents=(running,)) for each in pair))
    assert started(beside) == 2


def test_grants_of_a_group_fit_the_granules_of_its_device() -> None:
    slots = device(seats=8, memory_bytes=16 * GIB, granule_bytes=2 * GIB)
    snapshot = Snapshot(pending=jobs(8, memory_peak_bytes=3 * GIB), devices=(slots,), now_s=0.0)
    found = decide(context(snapshot, PREDICTOR, KNOWN), ScopeLedger(scope="default")).plan
    assert started(found) == 4
    assert [action.grant_bytes for action in found.actions if action.places] == [4 * GIB] * 4


# --- objectives and limits that are about times -----------------------------------------------------------------------


def test_of_three_jobs_each_ends_when_its_own_work_is_done() -> None:
    """Completion times: the first ends in company of two, the second in company of one, the third alone."""
    pending = tuple(Job(id=f"j{k}", workload="a", remaining_s=s) for k, s in enumerate((10.0, 20.0, 30.0)))
    found = planned(pending, device(seats=3), objective=ObjectiveKind.COMPLETION_TIME)
    of_three, of_two = composed_slowdown([1.05, 1.05]), 1.05
    first = 10 * of_three
    second = first + 10 * of_two
    third = second + 10.0
    assert found.cost == pytest.approx(first + second + third)
    assert found.status is SolveStatus.OPTIMAL


def test_devices_are_paid_until_the_last_of_a_group_ends() -> None:
    pending = tuple(Job(id=f"j{k}", workload="a", remaining_s=s) for k, s in enumerate((10.0, 20.0, 30.0)))
    found = planned(pending, device(seats=3, price_per_hour=3600.0), objective=ObjectiveKind.COST)
    assert found.cost == pytest.approx(10 * composed_slowdown([1.05, 1.05]) + 10 * 1.05 + 10.0)
    running = (Job(id="r", workload="a", remaining_s=60.0),)
    joined = planned(
        pending[:2], device(seats=3, residents=running, price_per_hour=3600.0), objective=ObjectiveKind.COST
    )
    lost = 10 * composed_slowdown([1.05, 1.05]) + 10 * 1.05 + 40.0 - 60.0  # by which the resident ends later
    assert joined.cost == pytest.approx(lost)


def test_a_guest_ends_before_every_resident_of_a_group() -> None:
    residents = tuple(Job(id=f"r{k}", workload="a", remaining_s=s) for k, s in enumerate((100.0, 30.0)))
    limits = Limits.of(guest_ends_first=True)
    for remaining_s, starts in ((29.0, 1), (31.0, 0)):
        guest = Job(id="j", workload="a", remaining_s=remaining_s)
        assert started(planned((guest,), device(seats=3, residents=residents), limits=limits)) == starts


def test_a_deadline_that_a_group_would_miss_is_priced() -> None:
    late_s = 60.0 * composed_slowdown([1.05, 1.05]) * 1.001  # three together are as likely late as not
    pending = tuple(Job(id=f"j{k}", workload="a", remaining_s=60.0, deadline_s=late_s) for k in range(3))
    changes = {"objective": ObjectiveKind.DEADLINE_MISSES, "limits": Limits.of(risk=0.5), "now_s": 0.0}
    together = planned(pending, device(seats=3), **changes)
    assert started(together) == 3
    assert 1.0 < together.cost < 1.5  # three jobs, each with a probability a little below one half
    apart = planned(pending, device(seats=3), device("e", seats=3), **changes)
    assert max(len(action.partners) for action in apart.actions) == 1
    assert apart.cost < 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": ObjectiveKind.PAIRS_PAST_CAP, "limits": Limits.of(soft_cap=1.06)},
        {"limits": Limits.of(misfit_risk=0.1)},
        {"limits": Limits.of(choosable_modes=frozenset({"timeslice"}))},
    ],
)
def test_what_is_said_of_pairs_holds_in_groups(changes: dict[str, object]) -> None:
    pending = jobs(3, remaining_s=10.0)
    found = planned(pending, device(seats=3), **changes)
    assert (started(found), found.status) == (3, SolveStatus.OPTIMAL)
    pair, in_pairs = planned(pending[:2], device(seats=3), **changes), planned(pending[:2], device(seats=2), **changes)
    assert pair.cost == pytest.approx(in_pairs.cost)


def test_seats_are_whole_numbers_within_bounds() -> None:
    for wrong in (0, 49):
        with pytest.raises(InvalidInputError, match="seats"):
            device(seats=wrong)


# --- promises ---------------------------------------------------------------------------------------------------------


def decided_at(now_s: float, ledger: ScopeLedger, pending: tuple[Job, ...], *devices: Device) -> ScopeDecision:
    snapshot = Snapshot(pending=pending, devices=devices, now_s=now_s)
    return decide(context(snapshot, PREDICTOR, KNOWN, decision_id=f"at{now_s:g}"), ledger)


def test_a_group_is_promised_until_each_of_its_jobs_has_started() -> None:
    queue = jobs(3)
    first = decided_at(0.0, ScopeLedger(scope="default"), queue, device())
    assert started(first.plan) == 3
    # 1. One has started: the others keep their places beside it.
    second = decided_at(1.0, first.ledger, queue[1:], device(residents=queue[:1]))
    assert [action.partner_ids for action in second.plan.actions] == [("j0", "j2"), ("j0", "j1")]
    assert all(action.rule and action.rule.kind is RuleKind.PROMISED for action in second.plan.actions)
    assert second.plan.pairs == ()
    # 2. That one is over: the others keep each other.
    third = decided_at(2.0, second.ledger, queue[1:], device())
    assert [action.partners for action in third.plan.actions] == [("j2",), ("j1",)]
    assert [action.partner_ids for action in third.plan.actions] == [(), ()]
    # 3. A stranger took the device: nothing is kept.
    fourth = decided_at(3.0, third.ledger, queue[1:], device(residents=jobs(1, "b", "x")))
    assert len(fourth.promises.released) == 2


# --- one job against every device -------------------------------------------------------------------------------------


def test_ranking_prices_joining_as_a_plan_does() -> None:
    a, b = jobs(2, "a", "ra"), jobs(3, "b", "rb")
    devices = (
        device("two", residents=a),
        device("full", seats=3, residents=b),
        device("one", residents=jobs(1, "b", "rd")),
        device("pair", seats=None, residents=jobs(2, "a", "rc")),
    )
    (job,) = jobs(1)
    ranked = rank(job, devices, PREDICTOR, catalogue(KNOWN), Limits())
    by_id = {each.device_id: each for each in ranked}
    assert Counter(each.feasible for each in ranked) == {True: 2, False: 2}
    assert by_id["full"].rule is not None
    assert by_id["full"].rule.kind is RuleKind.NO_FREE_SEAT
    assert by_id["two"].slowdown == pytest.approx(composed_slowdown([1.05, 1.05]))
    for name in ("two", "one"):
        alone = planned((job,), next(each for each in devices if each.id == name))
        assert by_id[name].cost == pytest.approx(alone.actions[0].cost)
    assert ranked[0].planned
    assert ranked[0].device_id == planned((job,), *devices).actions[0].device_id


def test_ranking_says_which_rule_forbids_a_group() -> None:
    residents = jobs(2, "a", "r", memory_peak_bytes=4 * GIB)
    (job,) = jobs(1, memory_peak_bytes=4 * GIB)

    def rule_of(place: Device, limits: Limits | None = None, asked: Job = job) -> RuleKind | None:
        (ranking,) = rank(asked, (place,), PREDICTOR, catalogue(KNOWN), limits or Limits())
        return ranking.rule.kind if ranking.rule else None

    assert rule_of(device(residents=residents)) is None
    assert rule_of(device(residents=residents, memory_bytes=10 * GIB)) is RuleKind.MEMORY
    granted = device(residents=residents, memory_bytes=10 * GIB, granule_bytes=2 * GIB)
    assert rule_of(granted) in (RuleKind.GRANT, RuleKind.MEMORY)
    assert rule_of(device(residents=residents), Limits.of(max_slowdown=1.1)) is RuleKind.REQUEST_SLOWDOWN_CAP
    assert rule_of(device(residents=residents), asked=replace(job, max_slowdown=1.1)) is RuleKind.JOB_SLOWDOWN_CAP
    least = Limits.of(min_joint_throughput=1.9)
    assert rule_of(device(residents=residents), least) is None
    step_time_s = profile("a").step_time_s
    target = replace(job, latency_target_s=1.1 * step_time_s)
    assert rule_of(device(residents=residents), asked=target) is RuleKind.LATENCY_TARGET
