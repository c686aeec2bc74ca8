"""Deadlines and windows in a decision: which jobs start, share or are declined, and the reasons."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.policy.answer.ranking import rank
from interfere.records import (
    ActionKind,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    Snapshot,
    Window,
)
from tests.policy.deadline_cases import ALL, HOUR_S, KNOWN, NOW_S, PREDICTOR, SLOW, decided, device, job
from tests.tables import TablePredictor, catalogue, context, plan, profile, resolver

# --- a deadline is a cap on sharing -----------------------------------------------------------------------------------


def test_a_deadline_forbids_sharing_that_could_make_a_pending_or_running_job_late() -> None:
    """1.4 in the middle, 2.1 at 95 %: 210 s of the 200 s that are left."""
    tight, free = job("x", 200.0), job("r")
    for one, resident in ((tight, free), (replace(free, id="x"), replace(tight, id="r"))):
        (refusal,) = decided((one,), (device(resident),)).refused
        name, other = ("x", "r") if one is tight else ("r", "x")
        assert refusal.reason == (
            f"deadline: {name}, 1.67 min alone, could be slowed down 2.10 × by {other}, "
            "3.33 min leave 2.00 × at risk 0.05"
        )
    for left_s, risk in ((211.0, 0.05), (150.0, 0.5)):
        (action,) = decided((job("x", left_s),), (device(free),), limits=Limits.of(risk=risk)).actions
        assert action.kind is ActionKind.START_SHARED


def test_two_pending_jobs_share_only_where_both_meet_their_deadlines() -> None:
    for left_s, shares in ((200.0, False), (220.0, True)):
        found = decided((job("x", left_s), job("y", 400.0)), (device(),))
        assert [a.kind is ActionKind.START_SHARED for a in found.actions] == [shares] * 2
    assert [a.kind for a in decided((job("x", 200.0), job("y", 400.0)), (device(),)).actions] == [
        ActionKind.START_ALONE,
        ActionKind.WAIT,
    ]


def test_on_a_slower_type_the_same_deadline_leaves_less() -> None:
    slow, fast = device(name="s", type=SLOW), device(name="f")
    found = decided((job("x", 150.0),), (slow, fast))
    assert found.actions[0].device_id == "f"
    (action,) = decided((job("x", 150.0),), (slow, device(job("r", 120.0), name="f"))).actions
    assert action.kind is ActionKind.WAIT  # the fast one may come free in time
    assert "deadline: x needs 3.33 min on slow, 2.5 min are left" in action.reason


def test_uncertain_times_make_a_job_run_alone_but_do_not_forbid_it_to_start() -> None:
    one = job("x", 120.0, remaining_p90_s=200.0)
    assert decided((one,), (device(),)).actions[0].kind is ActionKind.START_ALONE
    (refusal,) = decided((one,), (device(job("r")),)).refused
    assert "at risk" in refusal.reason


# --- windows ----------------------------------------------------------------------------------------------------------


def test_nothing_starts_that_cannot_end_before_the_device_closes() -> None:
    closes = device(name="edge-3", pool="edge", windows=(Window(from_s=0.0, until_s=NOW_S + 1.2 * HOUR_S),))
    (action,) = decided((job("x", remaining_s=1.9 * HOUR_S),), (closes,)).actions
    assert (action.kind, action.reason) == (ActionKind.WAIT, "window: edge closes in 1.2 h, x needs 1.9 h there")
    (action,) = decided((job("x", remaining_s=1.1 * HOUR_S),), (closes,)).actions
    assert action.kind is ActionKind.START_ALONE
    shut = replace(closes, windows=(Window(from_s=NOW_S + HOUR_S),))
    (action,) = decided((job("x"),), (shut,)).actions
    assert (action.kind, action.reason) == (ActionKind.WAIT, "window: edge is closed, and opens in 1 h")


def test_a_checkpoint_at_closing_time_is_a_cost_of_starting_there() -> None:
    closes = device(name="edge", windows=(Window(from_s=0.0, until_s=NOW_S + 50.0),))
    one = job("x", preemptible=True, checkpoint_s=10.0)
    (action,) = decided((one,), (closes,)).actions
    assert (action.kind, action.cost) == (ActionKind.START_ALONE, pytest.approx(0.1))  # 10 s of its 100 s
    (action,) = decided((one,), (closes, device(name="cloud"))).actions
    assert (action.device_id, action.cost) == ("cloud", 0.0)


def test_sharing_must_not_keep_a_job_past_the_closing_time() -> None:
    closes = (Window(from_s=0.0, until_s=NOW_S + 200.0),)
    (refusal,) = decided((job("x"),), (device(job("r"), windows=closes),)).refused
    assert refusal.reason == (
        "window: x, 1.67 min alone, could be slowed down 2.10 × by r, more than 2.00 × would outlast the device, "
        "which closes in 3.33 min, at risk 0.05"
    )
    later = (Window(from_s=0.0, until_s=NOW_S + 211.0),)
    (action,) = decided((job("x"),), (device(job("r"), windows=later),)).actions
    assert action.kind is ActionKind.START_SHARED


def test_a_partner_slows_a_job_down_only_until_the_partner_ends() -> None:
    """r ends after at most 40 · 2.1 = 84 s, in which x loses 84 (1 - 1/2.1) = 44 s of its 50."""
    for left_s, shares in ((143.0, False), (145.0, True)):
        (action,) = decided((job("x", left_s),), (device(job("r", remaining_s=40.0)),)).actions
        assert (action.kind is ActionKind.START_SHARED) is shares
    unknown = device(Job(id="r", workload="a"))
    assert decided((job("x", 145.0),), (unknown,)).actions[0].kind is ActionKind.WAIT


def test_a_gang_takes_devices_that_stay_open_equally_long() -> None:
    short, long = ((Window(from_s=0.0, until_s=NOW_S + left_s),) for left_s in (50.0, 500.0))
    devices = tuple(device(name=f"{k}", windows=short if k in (0, 2) else long) for k in range(4))
    (action,) = decided((job("x", gpus=2),), devices).actions
    assert action.places == ("1", "3")


# --- order, and infeasible deadlines ----------------------------------------------------------------------------------


def test_the_least_slack_starts_first_and_an_infeasible_deadline_counts_as_none() -> None:
    jobs = (job("none"), job("later", 300.0), job("soon", 110.0), job("gone", 90.0))
    limits = Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT}))
    started = []
    for count in (1, 2):
        devices = tuple(device(name=str(k)) for k in range(count))
        started.append({a.job_id for a in decided(jobs, devices, limits=limits).actions if a.places})
    assert started == [{"soon"}, {"soon", "later"}]
    urgent = (job("none", priority=1), jobs[2])
    assert [a.job_id for a in decided(urgent, (device(),), limits=limits).actions if a.places] == ["none"]


@pytest.mark.parametrize(
    ("allowed", "kind"),
    [
        (ALL, ActionKind.DECLINE),
        (ALL - {ActionKind.DECLINE}, ActionKind.DEMOTE),
        (ALL - {ActionKind.DECLINE, ActionKind.DEMOTE}, ActionKind.WAIT),
    ],
)
def test_an_infeasible_deadline_is_declined_demoted_or_named_in_the_reason(
    allowed: frozenset[ActionKind], kind: ActionKind
) -> None:
    full = device(job("r1", remaining_s=500.0), job("r2"))
    why = "deadline: 1.5 min are left, alone it ends in 1.67 min at the earliest, on cpu-core"
    (action,) = (
        a for a in decided((job("x", 90.0),), (full,), limits=Limits(allowed=allowed)).actions if a.job_id == "x"
    )
    assert action.kind is kind
    assert action.reason.startswith(why)
    assert not action.places
    (action,) = decided((job("x", 90.0),), (device(),), limits=Limits(allowed=allowed)).actions
    started = kind is not ActionKind.DECLINE
    assert bool(action.places) is started
    assert why in action.reason


def test_no_job_is_declined_for_an_uncertain_time_or_for_what_was_left_out() -> None:
    limits = Limits(allowed=ALL)
    noisy = job("x", 90.0, remaining_p90_s=200.0)
    assert decided((noisy,), (device(),), limits=limits).actions[0].kind is ActionKind.START_ALONE
    slow = (device(type=SLOW),)
    busy = device(job("r", 101.0), name="f")  # might be free at once, for all that is known
    assert decided((job("x", 150.0),), (*slow, busy), limits=limits).actions[0].kind is ActionKind.WAIT
    small = (device(name="1"),)
    gang = job("x", 500.0, gpus=2)
    assert decided((gang,), small, limits=limits).actions[0].kind is ActionKind.DECLINE
    assert decided((gang,), small, limits=limits, partial=True).actions[0].kind is ActionKind.WAIT


def test_a_deadline_is_feasible_only_within_the_windows_of_devices() -> None:
    night = device(windows=(Window(from_s=NOW_S + 100.0, until_s=NOW_S + 180.0), Window(from_s=NOW_S + 300.0)))
    limits = Limits(allowed=ALL)

    def kind(left_s: float, **fields: object) -> ActionKind:
        return decided((job("x", left_s, **fields),), (night,), limits=limits).actions[0].kind

    assert kind(399.0) is ActionKind.DECLINE  # 80 s are too few: it starts at 300
    assert kind(400.0) is ActionKind.WAIT
    assert kind(330.0, preemptible=True, checkpoint_s=5.0) is ActionKind.WAIT  # 80 s, then 20 s
    assert kind(310.0, preemptible=True, checkpoint_s=5.0) is ActionKind.DECLINE
    assert kind(190.0, remaining_s=80.0) is ActionKind.WAIT
    (action,) = decided((job("x", -5.0),), (night,), limits=limits).actions
    assert (action.kind, action.reason) == (ActionKind.DECLINE, "deadline: 5 s ago")


def test_a_resident_with_an_infeasible_deadline_holds_no_job_back() -> None:
    (action,) = decided((job("x"),), (device(job("r", 90.0)),)).actions
    assert action.kind is ActionKind.START_SHARED


# --- the objective ----------------------------------------------------------------------------------------------------


def test_the_objective_counts_misses_by_their_chance_and_weight() -> None:
    """Slack 1.4: missed beside a with an even chance; alone never, and company loses a thousandth of its excess."""

    def matched(pending: Job, resident: Job | None = None) -> Plan:
        """The matching of this moment."""
        devices = (device(*([] if resident is None else [resident])),)
        fields = {"objective": ObjectiveKind.DEADLINE_MISSES, "limits": Limits.of(risk=0.5)}
        return plan(
            context(Snapshot(pending=(pending,), devices=devices, now_s=NOW_S, **fields), PREDICTOR, KNOWN, "d")
        )

    long = job("r", remaining_s=1e4)
    assert matched(job("x", 139.0, weight=2.0), long).actions[0].kind is ActionKind.WAIT  # past its median
    lost = 1e-3 * 3.0 * 0.4
    assert matched(job("x", 140.0, weight=2.0), long).cost == pytest.approx(2.0 * 0.5 + lost, abs=5e-3)
    beside = matched(job("x", remaining_s=1e4), job("r", 140.0, weight=2.0))
    assert beside.cost == pytest.approx(2.0 * 0.5 + lost, abs=5e-3)
    assert matched(job("x", 100.0, remaining_p90_s=150.0)).cost == pytest.approx(0.5, abs=0.01)
    assert matched(job("x", 100.0)).cost == 0.0


def test_fewest_expected_misses_by_trying_every_pairing() -> None:
    """Four jobs on two devices: among all three pairings the plan's is the best by the definition, written out."""
    rng = np.random.default_rng(5)
    names = "abcd"
    known = resolver(*map(profile, names))
    for _ in range(20):
        table = {(v, n): float(np.float32(1 + rng.gamma(1.0, 0.5))) for v in names for n in names}
        predictor = TablePredictor(table, spread=1.5)
        jobs = tuple(
            Job(id=n, workload=n, remaining_s=100.0, deadline_s=float(NOW_S + rng.integers(130, 300))) for n in names
        )
        snapshot = Snapshot(
            pending=jobs,
            devices=(device(name="1"), device(name="2")),
            now_s=NOW_S,
            objective=ObjectiveKind.DEADLINE_MISSES,
            limits=Limits.of(risk=0.5, min_joint_throughput=1.0),
        )
        found = plan(context(snapshot, predictor, known, "d"))

        def chance(one: Job, other: Job, table: dict[tuple[str, str], float] = table) -> float:
            """The interval of the predictor is log-linear: at level q its slowdown is s · 1.5^((q - 0.5) / 0.45). The
            other is gone after its own time, and nobody is slowed down from then on."""
            s, left_s = table[one.workload, other.workload], one.deadline_s - NOW_S
            goes_s = other.remaining_s * table[other.workload, one.workload]

            def ends_s(slowdown: float) -> float:
                return one.remaining_s + min(goes_s, one.remaining_s * slowdown) * (1 - 1 / slowdown)

            if ends_s(s) > left_s:
                return math.inf  # the cap at the median
            levels = np.linspace(0.5, 0.99, 2001)
            late = [ends_s(s * 1.5 ** ((level - 0.5) / 0.45)) > left_s for level in levels]
            return 1.0 - float(levels[late.index(True)]) if any(late) else 0.0

        def cost(pairs: tuple[tuple[int, int], ...], jobs: tuple[Job, ...] = jobs, table: object = table) -> float:
            both = [(jobs[i], jobs[j]) for a, b in pairs for i, j in ((a, b), (b, a))]
            return sum(chance(i, j) + 1e-3 * (table[i.workload, j.workload] - 1) for i, j in both)

        best = min(map(cost, (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))))
        if math.isfinite(best):
            assert found.objective_value == pytest.approx(best, abs=2e-3)
        else:
            assert any(a.kind is ActionKind.WAIT for a in found.actions)


# --- what must be sent ------------------------------------------------------------------------------------------------


def test_a_deadline_needs_now_s_and_remaining_s_and_a_window_now_s() -> None:
    pending = (Job(id="x", workload="a", deadline_s=5.0),)
    windows = (Window(from_s=0.0, until_s=5.0),)
    for snapshot, fields in (
        (Snapshot(pending=pending, devices=(device(),)), ["pending[0].remaining_s", "now_s"]),
        (Snapshot(pending=(), devices=(device(windows=windows),)), ["now_s"]),
        (Snapshot(pending=(), devices=(device(*pending),), now_s=1.0), ["devices[0].residents[0].remaining_s"]),
    ):
        with pytest.raises(InvalidInputError) as caught:
            plan(context(snapshot, PREDICTOR, KNOWN, "d"))
        assert [v.field for v in caught.value.violations] == fields
    with pytest.raises(InvalidInputError, match="now_s"):
        rank(job("x", 50.0), (device(),), PREDICTOR, catalogue(KNOWN), Limits())


@pytest.mark.parametrize(
    ("left_s", "windows", "at_s"),
    [
        (300.0, (), NOW_S + 200.0),  # its last chance
        (math.nan, (Window(from_s=NOW_S + 50.0, until_s=NOW_S + 90.0),), NOW_S + 50.0),
        (math.nan, (Window(from_s=0.0, until_s=NOW_S + 90.0),), NOW_S + 90.0),
        (120.0, (Window(from_s=0.0, until_s=NOW_S + 90.0),), NOW_S + 20.0),
    ],
)
def test_the_next_decision_is_at_a_last_start_or_when_a_window_opens_or_closes(
    left_s: float, windows: tuple[Window, ...], at_s: float
) -> None:
    full = device(Job(id="r1", workload="a"), Job(id="r2", workload="a"))
    found = decided(
        (job("x", left_s),), (full, device(name="w", windows=windows, pool="w", type=SLOW)) if windows else (full,)
    )
    assert found.resolve_at_s == at_s


# --- migration --------------------------------------------------------------------------------------------------------


def test_a_job_with_a_feasible_deadline_is_not_moved_but_others_make_room_for_the_most_urgent() -> None:
    """Two residents that could share; the room goes to the job with the least slack."""
    moving = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.MOVE})
    limits = Limits.of(allowed=moving, max_slowdown=2.2)
    fields = {"preemptible": True, "checkpoint_s": 1.0, "since_s": 0.0, "remaining_s": 1e4}
    stays = Job(id="r1", workload="a", deadline_s=NOW_S + 1e5, **fields)
    goes = Job(id="r2", workload="a", **fields)
    waiting = (job("later", 5e4, workload="b", max_slowdown=1.0), job("soon", 150.0, workload="b", max_slowdown=1.0))
    found = decided(waiting, (device(stays, name="1"), device(goes, name="2")), limits=limits)
    told = {action.job_id: action for action in found.actions}
    assert told["r2"].kind is ActionKind.MOVE
    assert told["r2"].partner_id == "r1"
    assert told["soon"].device_id == "2"
    assert told["later"].kind is ActionKind.WAIT
    fixed = (replace(goes, deadline_s=NOW_S + 1e5), stays)
    still = decided(waiting, tuple(device(one, name=one.id) for one in fixed), limits=limits)
    assert not [action for action in still.actions if action.kind is ActionKind.MOVE]
