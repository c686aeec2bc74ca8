"""Re-pairing over the wire: joint moves are answered, promised, explained and told to end; nothing moves unasked."""

from dataclasses import replace

from interfere.client import PolicyClient
from interfere.records import ActionKind, Device, Job, Limits, Snapshot
from interfere.records.documents import from_document
from tests.models import DEVICE_TYPE

MOVING = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.MOVE})


def running(name: str, workload: str) -> Job:
    """A resident of long standing that may move; nobody knows how long it will run on."""
    return Job(id=name, workload=workload, preemptible=True, checkpoint_s=1.0, since_s=0.0, attained_s=50_000.0)


def snapshot(*, rematch_running: bool = True) -> Snapshot:
    """Four residents in pairs, an empty device that two of them could have, and nobody who waits."""
    return Snapshot(
        pending=(),
        devices=(
            Device(id="d0", type=DEVICE_TYPE, residents=(running("a", "train"), running("b", "train"))),
            Device(id="d1", type=DEVICE_TYPE, residents=(running("c", "infer"), running("e", "infer"))),
            Device(id="free", type=DEVICE_TYPE),
        ),
        now_s=1000.0,
        scope="rematching",
        limits=Limits.of(allowed=MOVING, rematch_running=rematch_running),
    )


def test_running_jobs_move_and_that_is_promised_and_explained(client: PolicyClient) -> None:
    plan = client.match(snapshot())
    moves = [action for action in plan.actions if action.kind is ActionKind.MOVE]
    assert moves
    for move in moves:
        assert move.promised_by_s == 1120.0
        assert "weighted s for" in move.reason
        assert client.explain(plan.decision_id, move.job_id).action == move
    # Carried out, departures first, no device has more than two, and nothing moves again at once.
    gone = {move.job_id for move in moves}
    on = {device.id: [job for job in device.residents if job.id not in gone] for device in snapshot().devices}
    of = {job.id: job for device in snapshot().devices for job in device.residents}
    for move in moves:
        on[move.device_id].append(replace(of[move.job_id], since_s=1001.0))
    assert all(len(jobs) <= 2 for jobs in on.values())
    after = tuple(replace(device, residents=tuple(on[device.id])) for device in snapshot().devices)
    again = client.match(replace(snapshot(), devices=after, now_s=1002.0))
    assert [action for action in again.actions if action.kind is ActionKind.MOVE] == []


def test_without_the_limit_jobs_of_unknown_length_stay(client: PolicyClient) -> None:
    plan = client.match(replace(snapshot(rematch_running=False), scope="as before"))
    assert plan.actions == ()


def test_the_limit_comes_from_json() -> None:
    document = {"pending": [], "devices": [], "limits": {"rematch_running": True}}
    assert from_document(Snapshot, document).limits.rematch_running
