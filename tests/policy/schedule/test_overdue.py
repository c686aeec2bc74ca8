"""Jobs past their promised end: a job that may share with none, and a gang, beside jobs that fill every seat."""

import math
from dataclasses import replace

import pytest

from interfere.policy.decide import decide
from interfere.policy.schedule.from_context import UNKNOWN_S
from interfere.records import (
    ActionKind,
    Device,
    EndPromise,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    RuleKind,
    ScopeLedger,
    Snapshot,
)
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

TABLE = TablePredictor({("a", "a"): 1.1, ("a", "loner"): 9.0, ("loner", "a"): 9.0, ("loner", "loner"): 9.0})
KNOWN = resolver(profile("a"), profile("loner"))
NOW_S = 1000.0
# A job that may share with none ends once a resident and then the job itself have run. Beside a newcomer residents take
# 1.1 times as long.
IN_TIME_S, LATE_S = NOW_S + 2.2 * UNKNOWN_S, NOW_S + 2 * UNKNOWN_S - 1
FRESH = tuple(Job(id=f"f{k}", workload="a", elapsed_s=1.0) for k in range(4))


def device(k: int, residents: int) -> Device:
    jobs = tuple(Job(id=f"r{k}.{r}", workload="a") for r in range(residents))
    return Device(id=f"d{k}", type=DEVICE, residents=jobs)


def decided(
    pending: tuple[Job, ...], devices: tuple[Device, ...], bounds_s: dict[str, float] | None = None, **more: object
) -> Plan:
    """The plan; `bounds_s`: promised ends by job id, those of loners and gangs are past by default."""
    late = {job.id: LATE_S for job in pending if job.workload == "loner" or job.gpus > 1}
    promises = (late if bounds_s is None else bounds_s).items()
    snapshot = Snapshot(**{"pending": pending, "devices": devices, "now_s": NOW_S, **more})
    ledger = ScopeLedger(
        scope=snapshot.scope,
        end_promises=tuple(EndPromise(job_id=name, latest_end_s=at_s) for name, at_s in promises),
    )
    return decide(context(snapshot, TABLE, KNOWN), ledger).plan


def started(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {action.job_id: action.places for action in plan.actions if action.places}


@pytest.mark.parametrize(("latest_end_s", "is_protected"), [(IN_TIME_S, False), (LATE_S, True)])
@pytest.mark.parametrize("objective", [ObjectiveKind.AUTO, ObjectiveKind.TOTAL_SLOWDOWN])
def test_a_device_drains_for_a_job_that_shares_with_none(
    latest_end_s: float, is_protected: bool, objective: ObjectiveKind
) -> None:
    loner = Job(id="loner", workload="loner")
    plan = decided(
        (*FRESH, loner), (device(0, 1), device(1, 1), device(2, 2)), {"loner": latest_end_s}, objective=objective
    )
    assert len(started(plan)) == (1 if is_protected else 2)


def test_an_overdue_job_starts_once_a_device_is_empty_and_no_job_before_it() -> None:
    loner = Job(id="loner", workload="loner")
    plan = decided((*FRESH, loner), (device(0, 0), device(1, 2), device(2, 2)))
    assert started(plan) == {"loner": ("d0",)}


def test_an_overdue_gang_gets_devices_of_its_own() -> None:
    """Two of the four devices are enough for jobs beside residents; the gang needs the two others."""
    gang = Job(id="gang", workload="a", gpus=2)
    plan = decided((*FRESH, gang), (device(0, 2), device(1, 1), device(2, 0), device(3, 1)))
    assert len({name for places in started(plan).values() for name in places}) <= 2


def test_one_job_at_a_time_is_protected_and_none_before_a_higher_priority() -> None:
    loners = tuple(Job(id=f"l{k}", workload="loner") for k in range(3))
    assert len(started(decided((*FRESH, *loners), (device(0, 1), device(1, 1), device(2, 1))))) == 2
    urgent = replace(FRESH[0], id="urgent", priority=1)
    assert set(started(decided((urgent, *loners), (device(0, 1),)))) == {"urgent"}
    later = replace(loners[0], id="later", priority=1)
    bounds_s = {job.id: LATE_S for job in loners}
    assert set(started(decided((urgent, later, *loners), (device(0, 1),), bounds_s))) == {"urgent"}


def test_the_last_device_is_kept_free_and_the_reason_says_for_whom() -> None:
    loner = Job(id="loner", workload="loner")
    plan = decided((FRESH[0], loner), (device(0, 1),))
    assert {action.kind for action in plan.actions} == {ActionKind.WAIT}
    assert plan.actions[0].rule is not None
    assert plan.actions[0].rule.kind is RuleKind.DEVICES_RESERVED
    assert plan.actions[0].reason == "devices are kept free for loner, which has waited longest"


def test_an_end_is_promised_where_nobody_says_how_long_jobs_take() -> None:
    """Twice the end in order of submission and ten minutes, with the usual time slice for each job."""
    loner = Job(id="loner", workload="loner")
    snapshot = Snapshot(pending=(loner,), devices=(device(0, 2),), now_s=NOW_S)
    decision = decide(context(snapshot, TABLE, KNOWN), ScopeLedger(scope=snapshot.scope))
    (promise,) = decision.ledger.end_promises
    # The residents end after 1.1 times what each takes alone.
    assert promise.latest_end_s == pytest.approx(NOW_S + 2 * (1.1 * UNKNOWN_S + UNKNOWN_S) + 600.0, rel=1e-6)
    (action,) = decision.plan.actions
    assert (action.promised_end_s, action.planned_end_s) == (promise.latest_end_s, pytest.approx(math.nan, nan_ok=True))


def test_a_limit_on_new_devices_holds_beside_a_protected_job() -> None:
    loner = Job(id="loner", workload="loner")
    plan = decided((*FRESH, loner), tuple(device(k, 0) for k in range(3)), limits=Limits.of(max_devices=1))
    assert len({name for places in started(plan).values() for name in places}) == 1
