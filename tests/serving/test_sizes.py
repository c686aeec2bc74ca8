"""Elastic jobs over the wire: the answer names as many devices as the job shall have; it is explained and ranked."""

from interfere.client import PolicyClient
from interfere.records import ActionKind, Device, Job, JobSize, Limits, RuleKind, Snapshot
from interfere.records.documents import from_document
from tests.models import DEVICE_TYPE

SIZES = (JobSize(gpus=1), JobSize(gpus=2, speed=1.9), JobSize(gpus=4, speed=3.4))
EVERYTHING = Limits(allowed=frozenset(ActionKind))


def elastic(name: str, **more: object) -> Job:
    values: dict[str, object] = {"remaining_s": 3600.0, "elapsed_s": 0.0, "preemptible": True, "checkpoint_s": 60.0}
    return Job(**({"id": name, "workload": "train", "sizes": SIZES} | values | more))  # type: ignore[arg-type]


def snapshot(*pending: Job, now_s: float, residents: tuple[Job, ...] = (), **more: object) -> Snapshot:
    devices = [Device(id=f"d{k}", type=DEVICE_TYPE, residents=residents if k == 0 else ()) for k in range(4)]
    return Snapshot(pending=pending, devices=tuple(devices), now_s=now_s, **more)  # type: ignore[arg-type]


def test_a_job_starts_at_a_size_and_that_is_explained(client: PolicyClient) -> None:
    plan = client.match(snapshot(elastic("e"), now_s=0.0))
    (action,) = plan.actions
    assert set(action.places) == {"d0", "d1", "d2", "d3"}
    said = client.explain(plan.decision_id, "e")
    assert said.action == action
    assert client.match(snapshot(elastic("e"), now_s=10.0)).actions[0].places == action.places
    assert all(ranking.feasible for ranking in client.rank(elastic("x"), snapshot(now_s=0.0).devices).rankings)


def test_a_running_job_is_stopped_for_a_larger_size_where_that_is_allowed(client: PolicyClient) -> None:
    running = elastic("r", since_s=0.0, remaining_s=36_000.0)
    kept = client.match(snapshot(now_s=1000.0, residents=(running,), scope="kept"))
    assert kept.actions == ()
    (action,) = client.match(snapshot(now_s=1000.0, residents=(running,), limits=EVERYTHING)).actions
    assert (action.kind, action.places) == (ActionKind.PREEMPT, ("d0",))
    assert action.rule is not None
    assert (action.rule.kind, action.rule.gpus) == (RuleKind.RESIZED, 4)


def test_sizes_come_from_json() -> None:
    job = {"id": "e", "workload": "train", "sizes": [{"gpus": 1}, {"gpus": 2, "speed": 1.8}]}
    read = from_document(Snapshot, {"pending": [job], "devices": []}).pending[0]
    assert read.sizes == (JobSize(gpus=1), JobSize(gpus=2, speed=1.8))
