"""Match and RankPlacements over the wire: decisions, their ids, and what a snapshot may not contain."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import ConflictError, InvalidInputError, LimitError
from interfere.records import ActionKind, Device, Job, Limits, Snapshot, SolveStatus
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, WORKLOADS, expected


def snapshot(**given: object) -> Snapshot:
    """Four jobs, two empty devices."""
    values: dict[str, object] = {
        "pending": tuple(Job(id=f"j-{name}", workload=name) for name in WORKLOADS),
        "devices": tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(2)),
    }
    return Snapshot(**(values | given))  # type: ignore[arg-type]


def test_four_jobs_share_two_devices_at_the_least_cost(client: PolicyClient) -> None:
    plan = client.match(snapshot())
    assert {action.kind for action in plan.actions} == {ActionKind.START_SHARED}
    assert plan.cost <= plan.greedy_cost
    best = min(
        sum(_excess(a, b) for a, b in pairing)
        for pairing in (
            (("train", "infer"), ("gemm", "stream")),
            (("train", "gemm"), ("infer", "stream")),
            (("train", "stream"), ("infer", "gemm")),
        )
    )
    assert plan.cost == pytest.approx(best, rel=1e-5)
    assert len(plan.pairs) == 2


def _excess(a: str, b: str) -> float:
    measured = {("train", "gemm"): 2.2}
    return sum(measured.get(pair, expected(*pair)) - 1.0 for pair in ((a, b), (b, a)))


def test_an_unknown_workload_runs_alone_first(client: PolicyClient) -> None:
    jobs = (Job(id="new", workload="nobody"), Job(id="old", workload="infer"))
    plan = client.match(snapshot(pending=jobs))
    assert plan.actions[0].kind is ActionKind.START_ALONE
    assert "alone first" in plan.actions[0].reason


def test_without_an_id_every_call_decides_anew(client: PolicyClient) -> None:
    assert client.match(snapshot()).decision_id != client.match(snapshot()).decision_id


def test_the_same_id_and_content_give_the_stored_decision_also_after_a_restart(
    serve: Callable[..., RunningServer],
) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        told = client.match(snapshot(snapshot_id="s1"))
        again = client.match(snapshot(snapshot_id="s1"))
        elsewhere = client.match(snapshot(snapshot_id="s1", scope="other"))
    first.stop()
    with PolicyClient(serve().address) as client:
        later = client.match(snapshot(snapshot_id="s1"))
    assert told == again == later
    assert elsewhere.decision_id != told.decision_id


def test_the_same_id_with_other_content_is_a_conflict(client: PolicyClient) -> None:
    told = client.match(snapshot(snapshot_id="s1"))
    with pytest.raises(ConflictError, match="'s1'"):
        client.match(snapshot(snapshot_id="s1", pending=(Job(id="x", workload="infer"),)))
    assert client.match(snapshot(snapshot_id="s1")) == told


def test_validate_only_decides_and_stores_nothing(client: PolicyClient) -> None:
    client.validate(snapshot(snapshot_id="s1"))
    with pytest.raises(InvalidInputError):
        client.validate(snapshot(snapshot_id="s1", devices=()))
    client.match(snapshot(snapshot_id="s1", limits=Limits(max_devices=1)))  # the id was still free


def test_limits_travel(client: PolicyClient) -> None:
    alone = Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT}))
    kinds = [action.kind for action in client.match(snapshot(limits=alone)).actions]
    assert sorted(kinds) == [ActionKind.START_ALONE] * 2 + [ActionKind.WAIT] * 2
    capped = client.match(snapshot(limits=Limits.of(max_slowdown=1.0)))
    assert not capped.pairs
    assert capped.refused_total == len(capped.refused) == 6
    assert "slowdown cap" in capped.refused[0].reason


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"devices": ()}, "devices"),
        ({"pending": (Job(id="a", workload="gemm"), Job(id="a", workload="infer"))}, "pending[1].id"),
        ({"devices": (Device(id="d", type="t"), Device(id="d", type="t"))}, "devices[1].id"),
        (
            {"devices": tuple(Device(id=d, type="t", residents=(Job(id="r", workload="gemm"),)) for d in "ab")},
            "devices[1].residents[0].id",
        ),
        ({"pending": (Job(id="a", workload="gemm", profile_id="ffff"),)}, "pending[0].profile_id"),
        (
            {"devices": (Device(id="d", type="t", residents=(Job(id="r", workload="gemm", profile_id="f"),)),)},
            "devices[0].residents[0].profile_id",
        ),
        ({"scope": "x" * 300}, "scope"),
        ({"snapshot_id": "a\nb"}, "snapshot_id"),
    ],
)
def test_contradictions_are_refused_with_their_path(client: PolicyClient, given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        client.match(snapshot(**given))
    assert field in [violation.field for violation in caught.value.violations]
    assert client.match(snapshot()).actions  # and it still serves


@pytest.mark.parametrize("jobs", [0, 1, 3, 5])
def test_odd_counts(client: PolicyClient, jobs: int) -> None:
    pending = tuple(Job(id=str(k), workload=WORKLOADS[k % 4]) for k in range(jobs))
    plan = client.match(snapshot(pending=pending))
    assert [action.job_id for action in plan.actions] == [job.id for job in pending]
    assert sum(action.kind is ActionKind.WAIT for action in plan.actions) == max(0, jobs - 4)


def test_a_job_larger_than_every_device_waits_with_its_reason(client: PolicyClient) -> None:
    devices = tuple(Device(id=d, type=DEVICE_TYPE, memory_bytes=8e9) for d in "ab")
    plan = client.match(snapshot(pending=(Job(id="big", workload="gemm", memory_peak_bytes=9e9),), devices=devices))
    assert plan.actions[0].kind is ActionKind.WAIT
    assert "memory" in plan.actions[0].reason


def test_rank_puts_the_cheapest_place_first(client: PolicyClient) -> None:
    devices = (
        Device(id="beside-gemm", type=DEVICE_TYPE, residents=(Job(id="r1", workload="gemm"),)),
        Device(id="empty", type=DEVICE_TYPE),
        Device(id="beside-infer", type=DEVICE_TYPE, residents=(Job(id="r2", workload="infer"),)),
        Device(id="small", type=DEVICE_TYPE, memory_bytes=1.0),
    )
    answer = client.rank(Job(id="j", workload="train"), devices)
    assert [r.device_id for r in answer.rankings] == ["empty", "beside-infer", "beside-gemm", "small"]
    assert answer.rankings[1].slowdown == pytest.approx(expected("train", "infer"), rel=1e-6)
    assert answer.rankings[1].worst_resident_slowdown == pytest.approx(expected("infer", "train"), rel=1e-6)
    assert answer.rankings[2].slowdown == pytest.approx(2.2)
    assert not answer.rankings[3].feasible
    assert answer.rankings[3].cost == float("inf")
    capped = client.rank(Job(id="j", workload="train"), devices[2:3], limits=Limits.of(max_slowdown=1.1))
    assert not capped.rankings[0].feasible
    with pytest.raises(InvalidInputError, match=r"job\.profile_id"):
        client.rank(Job(id="j", workload="train", profile_id="ffff"), devices)
    with pytest.raises(InvalidInputError, match="devices"):
        client.rank(Job(id="j", workload="train"), ())


def test_a_job_that_names_its_profile_is_decided_on_it(client: PolicyClient, settings: Settings) -> None:
    device = Device(id="d", type=DEVICE_TYPE, residents=(Job(id="r", workload="gemm"),))
    (model_profile,) = client.list_profiles(workload="infer")
    facts = replace(client.get_profile(model_profile.profile_id), step_time_s=10.0)
    (slow_id,) = client.register_profiles([facts])
    client.register_profiles([replace(facts, step_time_s=1e-3)])
    job = Job(id="j", workload="infer")
    newest = client.rank(job, [device]).rankings[0].slowdown
    named = client.rank(replace(job, profile_id=slow_id), [device]).rankings[0].slowdown
    assert newest == pytest.approx(expected("infer", "gemm", 1e-3), rel=1e-6)
    assert named == pytest.approx(expected("infer", "gemm", 10.0), rel=1e-6)


def test_the_same_id_at_once_from_many_threads_is_decided_once(client: PolicyClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(lambda _: client.match(snapshot(snapshot_id="once")), range(24)))
    assert len({plan.decision_id for plan in plans}) == 1


def test_a_snapshot_past_the_stated_size_is_refused_at_once(client: PolicyClient) -> None:
    alike = tuple(Job(id=str(k), workload="gemm") for k in range(2000))
    assert client.validate(snapshot(pending=alike)) is None  # jobs of one kind are counted, not planned one by one
    differ = tuple(replace(job, weight=1.0 + k / 1000) for k, job in enumerate(alike))
    with pytest.raises(LimitError, match="2000 kinds of pending jobs") as refused:
        client.match(snapshot(pending=differ))
    assert "2,000,000" in refused.value.remedy
    assert client.validate(snapshot(pending=differ[:1000])) is None
    with pytest.raises(InvalidInputError, match="at most 20,000"):
        client.match(snapshot(devices=tuple(Device(id=str(k), type="t") for k in range(20_001))))


def test_a_decision_that_names_no_time_budget_gets_the_servers(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    rng = np.random.default_rng(4)
    pending = tuple(
        Job(id=f"j{k}", workload=WORKLOADS[k % 4], weight=float(w)) for k, w in enumerate(rng.uniform(1, 9, 240))
    )
    devices = tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(150))
    many = snapshot(pending=pending, devices=devices)
    with PolicyClient(serve(replace(settings, time_budget_s=0.001)).address, timeout_s=60) as client:
        hurried = client.match(many)
        asked = client.match(replace(many, limits=Limits.of(time_budget_s=60.0)))
    assert (hurried.status, asked.status) == (SolveStatus.BOUNDED, SolveStatus.OPTIMAL)
    assert hurried.lower_bound <= asked.cost * (1 + 1e-6)
    assert asked.cost < hurried.cost * (1 + 1e-9)
