"""Elastic jobs: they start at a size that serves all jobs, and are stopped for another only where that gains."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.schedule.sizes import sizes_of_plan, with_present_sizes
from interfere.records import ActionKind, Device, Job, JobProfile, JobSize, Limits, RuleKind, ScopeLedger, Snapshot
from tests.tables import TablePredictor, context, resolver

SIZES = (JobSize(gpus=1), JobSize(gpus=2, speed=1.9), JobSize(gpus=4, speed=3.4), JobSize(gpus=8, speed=5.0))
EVERYTHING = Limits(allowed=frozenset(ActionKind))
KNOWN = resolver(JobProfile(workload="a", device_type="v100", step_time_s=1.0))
TABLE = TablePredictor({("a", "a"): 3.0}, devices=("v100",))


def elastic(name: str, remaining_s: float = 3600.0, gpus: int = 1, **more: object) -> Job:
    values: dict[str, object] = {"elapsed_s": 0.0, "preemptible": True, "checkpoint_s": 60.0, "sizes": SIZES}
    return Job(**({"id": name, "workload": "a", "remaining_s": remaining_s, "gpus": gpus} | values | more))  # type: ignore[arg-type]


def fixed(name: str, remaining_s: float, gpus: int = 1) -> Job:
    return Job(id=name, workload="a", remaining_s=remaining_s, gpus=gpus, elapsed_s=0.0)


def devices(count: int, *residents: Job) -> tuple[Device, ...]:
    """Empty devices, after the devices of the residents one after the other."""
    on = [(job,) for job in residents for _ in range(job.gpus)]
    on += [()] * (count - len(on))
    return tuple(Device(id=f"d{k}", type="v100", residents=jobs) for k, jobs in enumerate(on))


def decided(
    *pending: Job, on: tuple[Device, ...], now_s: float = 0.0, ledger: ScopeLedger | None = None, **more: object
) -> ScopeDecision:
    values = {"pending": pending, "devices": on, "now_s": now_s, "limits": EVERYTHING} | more
    return decide(context(Snapshot(**values), TABLE, KNOWN), ledger or ScopeLedger(scope="default"))  # type: ignore[arg-type]


def sizes(decision: ScopeDecision) -> dict[str, int]:
    return {action.job_id: len(action.places) for action in decision.plan.actions if action.places}


def test_a_job_that_is_alone_starts_on_all_devices_that_make_it_faster() -> None:
    decision = decided(elastic("e"), on=devices(8))
    assert sizes(decision) == {"e": 8}
    (action,) = decision.plan.actions
    assert action.planned_end_s == pytest.approx(3600 / 5)


def test_a_queue_is_served_at_the_sizes_of_the_least_mean_end() -> None:
    """Eight equal jobs on eight devices: two by two on four devices each end sooner, in the mean, than all on one."""
    decision = decided(*(elastic(f"e{k}") for k in range(8)), on=devices(8))
    assert sizes(decision) == {"e0": 4, "e1": 4}
    ends_s = [action.planned_end_s for action in decision.plan.actions]
    assert np.mean(ends_s) == pytest.approx(2.5 * 3600 / 3.4)


def test_a_size_leaves_room_for_the_jobs_that_cannot_choose() -> None:
    pending = (elastic("e", 36_000.0), fixed("gang", 36_000.0, gpus=4))
    assert sizes(decided(*pending, on=devices(8))) == {"e": 4, "gang": 4}


def test_devices_that_become_free_are_given_to_a_running_job_at_its_checkpoint() -> None:
    running = elastic("e", 36_000.0, gpus=1, since_s=0.0)
    decision = decided(on=devices(8, running), now_s=1000.0)
    (action,) = decision.plan.actions
    assert (action.kind, action.places) == (ActionKind.PREEMPT, ("d0",))
    assert action.rule is not None
    assert (action.rule.kind, action.rule.gpus) == (RuleKind.RESIZED, 8)
    assert "start again on 8 devices" in action.reason
    # Told again until it is carried out; then the job starts at the new size.
    again = decided(on=devices(8, running), now_s=1010.0, ledger=replace(decision.ledger, revision=1))
    assert [(each.kind, each.job_id) for each in again.plan.actions] == [(ActionKind.PREEMPT, "e")]
    waiting = elastic("e", 36_060.0, elapsed_s=1020.0)
    started = decided(waiting, on=devices(8), now_s=1020.0, ledger=replace(again.ledger, revision=2))
    assert sizes(started) == {"e": 8}


def test_a_gang_gives_devices_back_to_a_queue_that_needs_them() -> None:
    running = elastic("e", 36_000.0, gpus=8, since_s=0.0)
    queue = [fixed(f"f{k}", 600.0) for k in range(7)]
    decision = decided(*queue, on=devices(8, running), now_s=1000.0)
    stopped = [action for action in decision.plan.actions if action.kind is ActionKind.PREEMPT]
    assert [(action.job_id, len(action.places)) for action in stopped] == [("e", 8)]
    told = decided(*queue, on=devices(8, running), now_s=1001.0, ledger=replace(decision.ledger, revision=1))
    assert [action.job_id for action in told.plan.actions if action.kind is ActionKind.PREEMPT] == ["e"]
    assert all(not action.places for action in told.plan.actions if action.kind is not ActionKind.PREEMPT)


@pytest.mark.parametrize(
    "change",
    [
        {"preemptible": False},
        {"checkpoint_s": float("nan")},
        {"remaining_s": 100.0},  # less than two checkpoints
        {"since_s": 990.0},  # its start may still be promised
    ],
)
def test_a_running_job_keeps_its_size_without_leave_or_gain(change: dict[str, object]) -> None:
    running = replace(elastic("e", 36_000.0, gpus=1, since_s=0.0), **change)  # type: ignore[arg-type]
    assert decided(on=devices(8, running), now_s=1000.0).plan.actions[0].kind is ActionKind.KEEP


def test_no_job_is_stopped_where_the_limits_do_not_allow_it() -> None:
    decision = decided(on=devices(8, elastic("e", 36_000.0, since_s=0.0)), now_s=1000.0, limits=Limits())
    assert decision.plan.actions == ()


def test_a_promised_start_keeps_its_size() -> None:
    first = decided(elastic("e"), on=devices(8))
    assert sizes(first) == {"e": 8}
    queue = [fixed(f"f{k}", 60.0) for k in range(8)]
    again = decided(elastic("e"), *queue, on=devices(8), now_s=10.0, ledger=replace(first.ledger, revision=1))
    assert sizes(again) == {"e": 8}


def test_sizes_without_remaining_times_and_equal_answers() -> None:
    queue = [replace(elastic(f"e{k}"), remaining_s=float("nan")) for k in range(3)]
    one, two = (decided(*order, on=devices(8)) for order in (queue, queue))
    assert sizes(one) == sizes(two)
    assert set(sizes(one)) == {"e0", "e1", "e2"}
    assert sum(sizes(one).values()) <= 8


def test_times_and_memory_are_those_of_the_size() -> None:
    job = elastic(
        "e", 1000.0, memory_peak_bytes=8e9, sizes=(JobSize(gpus=1), JobSize(gpus=2, speed=2.0, memory_peak_bytes=5e9))
    )
    there = job.at_size(2)
    assert (there.gpus, there.remaining_s, there.memory_peak_bytes, there.sizes) == (2, 500.0, 5e9, ())
    assert job.at_size(1).memory_peak_bytes == 8e9
    with pytest.raises(InvalidInputError, match="one of 1, 2"):
        job.at_size(3)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"gpus": 3}, "must be one of sizes"),
        ({"sizes": (JobSize(gpus=1, speed=2.0),)}, "to which speeds are relative"),
        ({"sizes": (JobSize(gpus=1), JobSize(gpus=1))}, "different numbers of devices"),
    ],
)
def test_sizes_that_contradict_themselves_are_refused(given: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        replace(elastic("e"), **given)  # type: ignore[arg-type]


def test_no_choice_of_sizes_starts_more_than_there_is() -> None:
    """Law over random clusters: every start is at a size of its job, on devices that nobody else uses."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        running = [
            elastic(f"r{k}", float(rng.uniform(100, 9000)), gpus=int(rng.choice([1, 2, 4])), since_s=0.0)
            for k in range(int(rng.integers(0, 3)))
        ]
        pending = [
            elastic(f"e{k}", float(rng.uniform(100, 9000)))
            if rng.random() < 0.6
            else fixed(f"f{k}", float(rng.uniform(100, 9000)), gpus=int(rng.choice([1, 2, 4])))
            for k in range(int(rng.integers(1, 8)))
        ]
        on = devices(12, *running)
        decision = decided(*pending, on=on, now_s=1000.0)
        starts = [action for action in decision.plan.actions if action.kind is ActionKind.START_ALONE]
        used = [name for action in starts for name in action.places]
        assert len(set(used)) == len(used)
        assert not set(used) & {device.id for device in on if device.residents}
        by_id = {job.id: job for job in pending}
        for action in starts:
            job = by_id[action.job_id]
            allowed = {size.gpus for size in job.sizes} if job.sizes else {job.gpus}
            assert len(action.places) in allowed
        snapshot = Snapshot(pending=tuple(pending), devices=on, now_s=1000.0)
        sized = with_present_sizes(snapshot, sizes_of_plan(decision.plan, snapshot))
        assert all(not job.sizes for job in sized.pending)
