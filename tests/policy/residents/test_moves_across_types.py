"""Moves of residents to idle devices of another type: what they save over the remaining time against the checkpoint."""

from dataclasses import replace

import pytest

from interfere.policy.decide import decide
from interfere.records import Action, ActionKind, Device, Job, JobProfile, Limits, ScopeLedger, Snapshot
from interfere.records.limits import DEFAULT_ALLOWED
from tests.tables import TablePredictor, context, resolver

HOUR_S = 3600.0
NOW_S = 100_000.0
STEP_S = {"v100": 1.0, "p100": 2.0, "k80": 7.0}
KNOWN = resolver(*(JobProfile(workload="a", device_type=kind, step_time_s=step) for kind, step in STEP_S.items()))
TABLE = TablePredictor({("a", "a"): 1.5}, devices=tuple(STEP_S))
MOVES = Limits.of(allowed=DEFAULT_ALLOWED | {ActionKind.MOVE, ActionKind.KEEP})
OLD = Job(
    id="old", workload="a", remaining_s=20 * HOUR_S, attained_s=HOUR_S, since_s=0.0, checkpoint_s=60.0, preemptible=True
)


def actions(pending: tuple[Job, ...], *devices: Device, limits: Limits = MOVES) -> dict[str, Action]:
    snapshot = Snapshot(pending=pending, devices=devices, now_s=NOW_S, limits=limits)
    plan = decide(context(snapshot, TABLE, KNOWN), ScopeLedger(scope=snapshot.scope)).plan
    return {action.job_id: action for action in plan.actions}


def device(kind: str, *residents: Job, name: str = "") -> Device:
    return Device(id=name or kind, type=kind, residents=residents)


def test_a_long_job_on_a_k80_moves_to_an_idle_v100() -> None:
    """Twenty hours of work take 140 hours on the K80: the move saves 120 hours for two minutes."""
    found = actions((), device("k80", OLD), device("v100"), device("p100"))["old"]
    assert (found.kind, found.places, found.slowdown) == (ActionKind.MOVE, ("v100",), 1.0)
    assert found.rule is not None
    assert found.rule.saved_s == pytest.approx(120 * HOUR_S)


def test_once_moved_a_job_stays() -> None:
    assert actions((), device("k80"), device("v100", OLD), device("p100"))["old"].kind is ActionKind.KEEP


@pytest.mark.parametrize(("remaining_s", "kind"), [(21.0, ActionKind.MOVE), (19.0, ActionKind.KEEP)])
def test_a_move_has_to_save_two_checkpoints(remaining_s: float, kind: ActionKind) -> None:
    """Six seconds are saved for each second of remaining work, for a checkpoint of a minute."""
    found = actions((), device("k80", replace(OLD, remaining_s=remaining_s)), device("v100"))["old"]
    assert found.kind is kind


@pytest.mark.parametrize(
    "change",
    [{"preemptible": False}, {"checkpoint_s": float("nan")}, {"since_s": NOW_S - 1}, {"pools": ("elsewhere",)}],
    ids=lambda change: next(iter(change)),
)
def test_a_job_that_may_not_move_stays(change: dict[str, object]) -> None:
    assert actions((), device("k80", replace(OLD, **change)), device("v100"))["old"].kind is ActionKind.KEEP


def test_a_waiting_job_gets_the_idle_device_first() -> None:
    waiting = Job(id="new", workload="a", remaining_s=HOUR_S)
    found = actions((waiting,), device("k80", OLD), device("v100"))
    assert (found["new"].places, found["old"].kind) == (("v100",), ActionKind.KEEP)


def test_no_two_jobs_move_to_one_device_and_the_longer_goes_first() -> None:
    shorter = replace(OLD, id="shorter", remaining_s=HOUR_S)
    found = actions((), device("k80", shorter), device("k80", OLD, name="other"), device("v100"))
    assert (found["old"].places, found["shorter"].kind) == (("v100",), ActionKind.KEEP)


def test_a_limit_on_devices_holds() -> None:
    limits = Limits.of(allowed=MOVES.allowed, max_devices=0)
    assert actions((), device("k80", OLD), device("v100"), limits=limits)["old"].kind is ActionKind.KEEP
