"""Decisions that see time: cases in which the optimum of one moment is a mistake an operator would not make."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.rules.runtime import P90_Z
from interfere.policy.schedule.from_context import UNKNOWN_S, estimated_remaining_s
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    ObjectiveKind,
    RuleKind,
    ScopeLedger,
    Snapshot,
    SolveStatus,
    Window,
)
from tests.tables import TablePredictor, context, resolver

HOUR_S = 3600.0
STEP_S = {"v100": 1.0, "p100": 2.0, "k80": 7.0}
KNOWN = resolver(
    *(JobProfile(workload=name, device_type=kind, step_time_s=STEP_S[kind]) for name in ("a", "b") for kind in STEP_S)
)
TABLE = TablePredictor({("a", "a"): 3.0, ("a", "b"): 3.0, ("b", "a"): 3.0, ("b", "b"): 1.1}, devices=tuple(STEP_S))


def job(name: str, remaining_s: float, **more: object) -> Job:
    return Job(**{"id": name, "workload": "a", "remaining_s": remaining_s, "elapsed_s": 0.0, "attained_s": 0.0, **more})


def device(name: str, kind: str = "v100", *residents: Job) -> Device:
    return Device(id=name, type=kind, residents=residents)


def decided(
    pending: tuple[Job, ...], devices: tuple[Device, ...], ledger: ScopeLedger | None = None, **more: object
) -> ScopeDecision:
    snapshot = Snapshot(**{"pending": pending, "devices": devices, "now_s": 0.0, **more})
    return decide(context(snapshot, TABLE, KNOWN), ledger or ScopeLedger(scope=snapshot.scope))


def started(decision: ScopeDecision) -> dict[str, tuple[str, ...]]:
    return {action.job_id: action.places for action in decision.plan.actions if action.places}


def test_short_jobs_run_while_an_aged_gang_waits_and_do_not_delay_it() -> None:
    """One V100 is busy for ten hours; a gang of eight waits for it, and 120 jobs of a minute could use the others."""
    devices = (device("d0", "v100", job("r", 10 * HOUR_S)), *(device(f"d{k}") for k in range(1, 8)))
    gang = job("gang", HOUR_S, gpus=8, elapsed_s=HOUR_S)
    short = tuple(job(f"s{k}", 60.0) for k in range(120))
    decision = decided((gang, *short), devices)
    assert len(started(decision)) == 7
    planned = {action.job_id: action for action in decision.plan.actions}
    assert planned["gang"].planned_start_s == pytest.approx(10 * HOUR_S)
    assert max(planned[each.id].planned_end_s for each in short) <= 10 * HOUR_S + 1


def test_no_faster_device_is_worth_nothing_where_one_frees_in_five_seconds() -> None:
    """25,200 s on the idle K80, or 5 s of waiting and 3,600 s on the V100."""
    devices = (device("v", "v100", job("r", 5.0)), device("k", "k80"))
    decision = decided((job("j", 3600.0),), devices, objective=ObjectiveKind.COMPLETION_TIME)
    (action,) = (action for action in decision.plan.actions if action.job_id == "j")
    assert action.kind is ActionKind.WAIT
    assert action.rule is not None
    assert action.rule.kind is RuleKind.PLANNED_LATER
    assert action.reason == "planned: it starts in 5 s on v100 and ends 6 h sooner than from a start now on k80"
    assert (action.planned_start_s, action.planned_end_s) == (pytest.approx(5.0), pytest.approx(3605.0))
    assert decision.plan.status is SolveStatus.BOUNDED


def test_makespan_starts_the_long_job_first() -> None:
    """A job of ten hours and ten of one hour on two devices end after ten hours, not fifteen."""
    short = tuple(job(f"s{k}", HOUR_S, elapsed_s=50.0) for k in range(10))
    decision = decided(
        (*short, job("long", 10 * HOUR_S)), (device("d0"), device("d1")), objective=ObjectiveKind.MAKESPAN
    )
    assert "long" in started(decision)
    assert decision.plan.planned_value == pytest.approx(10 * HOUR_S)


def test_fairness_starts_the_job_that_is_worst_off() -> None:
    """The largest ratio of time since submission to own time is that of a job that waits, not of one that starts."""
    worst = job("worst", 100.0, elapsed_s=5000.0)
    others = tuple(job(f"j{k}", 50.0, elapsed_s=100.0) for k in range(3))
    decision = decided((*others, worst), (device("d0"),), objective=ObjectiveKind.FINISH_TIME_FAIRNESS)
    assert set(started(decision)) == {"worst"}


def test_an_end_is_promised_once_and_never_widened() -> None:
    """The bound of the first decision stands, however many jobs come after it."""
    devices = (device("d0", "v100", job("r", 100.0)),)
    waiting = job("j", 100.0)
    first = decided((waiting,), devices)
    (promise,) = first.ledger.end_promises
    assert promise.latest_end_s == pytest.approx(2 * 200.0 + 600.0)
    crowd = tuple(job(f"x{k}", 10.0) for k in range(200))
    later = decided((waiting, *crowd), devices, first.ledger, now_s=10.0)
    promises = {each.job_id: each.latest_end_s for each in later.ledger.end_promises}
    assert promises["j"] == promise.latest_end_s
    (action,) = (action for action in later.plan.actions if action.job_id == "j")
    assert action.promised_end_s == promise.latest_end_s
    assert action.planned_end_s <= promise.latest_end_s
    gone = decided((), devices, later.ledger, now_s=20.0)
    assert gone.ledger.end_promises == ()


def test_a_job_whose_remaining_time_nobody_knows_is_decided_at_this_moment() -> None:
    decision = decided((job("j", 100.0), job("unknown", math.nan)), (device("d0"), device("d1")))
    assert math.isnan(decision.plan.planned_value)
    assert decision.plan.status is SolveStatus.OPTIMAL


def test_a_job_that_says_nothing_is_expected_to_take_the_median_of_the_jobs_that_outlast_it() -> None:
    jobs = [job("new", math.nan), *(job(f"j{k}", s) for k, s in enumerate((10.0, 100.0, 300.0)))]
    assert estimated_remaining_s(jobs).tolist() == [100.0, 10.0, 100.0, 300.0]
    assert estimated_remaining_s([job("old", math.nan, attained_s=150.0), *jobs[1:]])[0] == 150.0
    assert estimated_remaining_s([job("oldest", math.nan, attained_s=900.0), *jobs[1:]])[0] == 900.0
    assert estimated_remaining_s([job("alone", math.nan)]).tolist() == [UNKNOWN_S]


def test_where_no_job_says_how_long_it_takes_the_running_ones_tell() -> None:
    """They are seen half way on average; a job that has run for longer than usual takes as long again."""
    waiting = job("waits", math.nan)
    running = [job(f"r{k}", math.nan, attained_s=attained_s) for k, attained_s in enumerate((100.0, 400.0, 900.0))]
    assert estimated_remaining_s([waiting, *running]).tolist() == [800.0, 800.0, 800.0, 900.0]
    assert estimated_remaining_s([waiting]).tolist() == [UNKNOWN_S]


def test_a_short_job_goes_before_one_that_is_expected_to_take_the_median() -> None:
    """On one device: 10 s, 1,000 s, and a job that says nothing."""
    waiting = (job("long", 1000.0), job("unknown", math.nan), job("short", 10.0), job("long too", 1000.0))
    decision = decided(waiting, (device("d0"),), objective=ObjectiveKind.AUTO)
    assert set(started(decision)) == {"short"}
    assert all(math.isnan(action.planned_end_s) for action in decision.plan.actions)


def test_a_partial_snapshot_is_planned_over_time() -> None:
    devices = (device("v", "v100", job("r", 5.0)), device("k", "k80"))
    decision = decided((job("j", 3600.0),), devices, objective=ObjectiveKind.COMPLETION_TIME, partial=True)
    assert started(decision) == {}


def test_a_job_that_can_be_interrupted_is_planned_over_the_windows_of_its_device() -> None:
    """It runs for 100 s, loses a checkpoint of 10 s, and runs for 60 s when the device opens again."""
    windows = (Window(from_s=0.0, until_s=100.0), Window(from_s=200.0))
    waiting = job("j", 150.0, preemptible=True, checkpoint_s=10.0)
    decision = decided((waiting,), (replace(device("d0"), windows=windows),))
    (action,) = decision.plan.actions
    assert (action.planned_start_s, action.planned_end_s) == (0.0, 260.0)


def test_more_than_two_jobs_start_together_and_the_others_are_planned_after_them() -> None:
    jobs = tuple(job(f"j{k}", 100.0, workload="b", elapsed_s=10.0 - k) for k in range(5))
    decision = decided(jobs, (replace(device("d0"), seats=4),))
    assert len(started(decision)) == 4
    (waiting,) = (action for action in decision.plan.actions if not action.places)
    assert waiting.planned_start_s > 100.0
    assert decision.plan.chosen_because == "best matching of this moment, then shortest job first"


def test_a_pool_a_memory_and_a_cap_filter_places_over_time() -> None:
    """A job that may start in one pool only waits for it, and one that must not be slowed down shares with none."""
    devices = (
        replace(device("d0", "v100", job("r", 50.0, workload="b")), pool="x"),
        replace(device("d1"), pool="y"),
    )
    tied = job("tied", 10.0, pools=("x",), workload="b", max_slowdown=1.0)
    decision = decided((tied,), devices)
    (action,) = (action for action in decision.plan.actions if action.job_id == "tied")
    assert action.kind is ActionKind.WAIT
    assert action.planned_start_s == pytest.approx(50.0)


def test_every_named_heuristic_is_told_and_none_is_better() -> None:
    rng = np.random.default_rng(0)
    jobs = tuple(
        job(
            f"j{k}",
            float(rng.exponential(500.0)) + 1.0,
            workload=str(rng.choice(["a", "b"])),
            gpus=int(rng.choice([1, 2])),
        )
        for k in range(12)
    )
    plan = decided(jobs, tuple(device(f"d{k}") for k in range(4))).plan
    assert plan.chosen_because
    assert plan.work_units > 0
    assert {"fifo", "shortest+easy+sharing"} <= {each.name for each in plan.heuristic_values}
    assert all(each.value >= plan.planned_value * (1 - 1e-9) for each in plan.heuristic_values)


@pytest.mark.parametrize("seed", range(10))
def test_shuffled_the_starts_are_the_same(seed: int) -> None:
    """The order in which jobs and devices are sent says nothing where all were submitted at different times."""
    rng = np.random.default_rng(seed)
    jobs = [
        job(
            f"j{k}",
            float(rng.exponential(500.0)) + 1.0,
            workload=str(rng.choice(["a", "b"])),
            gpus=int(rng.choice([1, 1, 2])),
            elapsed_s=float(rng.uniform(0, 1000)),
        )
        for k in range(10)
    ]
    devices = [device(f"d{k}", str(rng.choice(list(STEP_S)))) for k in range(6)]
    first = decided(tuple(jobs), tuple(devices)).plan
    second = decided(tuple(rng.permutation(jobs)), tuple(rng.permutation(devices))).plan
    assert {a.job_id: a.planned_start_s for a in first.actions} == pytest.approx(
        {a.job_id: a.planned_start_s for a in second.actions}, nan_ok=True
    )
    assert first.planned_value == pytest.approx(second.planned_value)


def test_at_most_max_devices_are_taken_now() -> None:
    jobs = tuple(job(f"j{k}", 100.0) for k in range(4))
    decision = decided(jobs, tuple(device(f"d{k}") for k in range(4)), limits=Limits.of(max_devices=2))
    assert len(started(decision)) == 2


def test_a_newcomer_slows_no_resident_beside_an_idle_device() -> None:
    """The resident would be slowed down 1.8 × beside the newcomer; an idle device of a slower type can take it."""
    table = TablePredictor({(v, n): 1.8 if v == "a" else 1.0 for v in "ab" for n in "ab"}, devices=tuple(STEP_S))
    devices = (device("v", "v100", job("r", 1000.0)), device("p", "p100"))
    newcomer = job("new", 1000.0, workload="b", weight=10.0)
    snapshot = Snapshot(pending=(newcomer,), devices=devices, now_s=0.0)
    found = {}
    for cap in (1.5, 1.9):
        limits = Limits.of(resident_cap=cap)
        decision = decide(context(replace(snapshot, limits=limits), table, KNOWN), ScopeLedger(scope="default"))
        found[cap] = started(decision)
    assert found == {1.5: {"new": ("p",)}, 1.9: {"new": ("v",)}}


def p90_s(median_s: float, spread: float) -> float:
    return median_s * math.exp(P90_Z * spread)


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_job_that_runs_is_expected_to_take_the_mean_of_what_remains(spread: float) -> None:
    resident = job("r", 100.0, remaining_p90_s=p90_s(100.0, spread))
    decision = decided((job("j", 50.0, remaining_p90_s=p90_s(50.0, spread)),), (device("d", "v100", resident),))
    (action,) = decision.plan.actions
    start_s = 100.0 * math.exp(spread**2 / 2)
    assert (action.planned_start_s, action.planned_end_s) == (pytest.approx(start_s), pytest.approx(start_s + 50.0))


def test_where_a_job_has_a_deadline_medians_are_planned() -> None:
    resident = job("r", 100.0, remaining_p90_s=p90_s(100.0, 0.5), deadline_s=1e6)
    decision = decided((job("j", 50.0),), (device("d", "v100", resident),))
    assert decision.plan.actions[0].planned_start_s == pytest.approx(100.0)


def test_an_end_is_promised_as_late_as_it_is_in_one_of_ten_cases() -> None:
    def promised_s(spread: float) -> float:
        told = job("j", 1000.0, remaining_p90_s=p90_s(1000.0, spread))
        return decided((told,), (device("d"),)).plan.actions[0].promised_end_s

    assert promised_s(0.0) == pytest.approx(2 * 1000.0 + 600.0)
    assert promised_s(0.5) == pytest.approx(2 * p90_s(1000.0, 0.5) + 600.0)
