"""Running jobs that say what a stop costs them move to another GPU, where the site lets them, and no others."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.errors import InvalidInputError
from interfere.records import Action, ActionKind
from interfere.serving.adapters.problem import check_plan_subjects
from interfere.serving.adapters.slurm.jobs import GpuAddress, Note, SlurmJob
from interfere.serving.adapters.slurm.port import SlurmPort, slurm_metrics
from interfere.serving.adapters.slurm.problem import partition_problem, partitions
from interfere.serving.adapters.slurm.scontrol import SlurmCommands, move, place
from interfere.serving.adapters.slurm.settings import SlurmSettings
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.facts import NOW, SETTINGS, node, pending, plan_of, running
from tests.waiting import wait_until

MOVING = replace(SETTINGS, moves=True)
COMMENT = "interfere:workload=gemm;remaining_s=300;checkpoint_s=2"


def movable(job_id: int, gpu: str, **given: object) -> SlurmJob:
    """A job that has run for 100 s of its 300 s, on the GPU where it was placed."""
    note = Note(state="placed", to=GpuAddress("n0", gpu), tres="gres:shard:1", decision="d", round_s=int(NOW - 101))
    values: dict[str, object] = {"comment": COMMENT, "may_requeue": True, "note": note}
    return running(job_id, gpu, **(values | given))  # type: ignore[arg-type]


def port(settings: SlurmSettings) -> SlurmPort:
    return SlurmPort(settings, SlurmCommands(60.0), slurm_metrics())


def test_the_server_hears_what_a_stop_costs_and_how_long_the_job_has_run() -> None:
    spent = replace(movable(2, "g1").note or Note(), spent_s=40)
    jobs = [movable(1, "g0"), movable(2, "g1", note=spent)]
    seen = partition_problem("main", jobs, [node()], MOVING, NOW)
    assert seen.snapshot is not None, "moves are looked for where nobody waits"
    residents = [device.residents[0] for device in seen.snapshot.devices]
    assert [(job.remaining_s, job.checkpoint_s, job.since_s) for job in residents] == [
        (200.0, 2.0, NOW - 100.0),
        (160.0, 2.0, NOW - 100.0),
    ]
    assert all(job.preemptible for job in residents)
    assert seen.snapshot.now_s == NOW
    assert partitions(jobs, MOVING) == ("main",)
    assert ActionKind.MOVE in port(MOVING).limits.allowed


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        (SETTINGS, {}),
        (MOVING, {"may_requeue": False}),
        (MOVING, {"comment": "interfere:workload=gemm;remaining_s=300"}),
        (MOVING, {"note": None}),
    ],
)
def test_no_other_job_moves(settings: SlurmSettings, given: dict[str, object]) -> None:
    job = movable(1, "g0", **given)
    assert partitions([job], settings) == ()
    seen = partition_problem("main", [job, pending(2)], [node()], settings, NOW)
    assert seen.snapshot is not None
    assert not any(resident.preemptible for device in seen.snapshot.devices for resident in device.residents)


def test_run_times_are_told_where_no_job_moves_too() -> None:
    jobs = [movable(1, "g0"), pending(2, comment="interfere:workload=gemm;remaining_s=60")]
    seen = partition_problem("main", jobs, [node()], SETTINGS, NOW)
    assert seen.snapshot is not None
    assert [job.remaining_s for job in seen.snapshot.pending] == [60.0]
    (resident,) = (job for device in seen.snapshot.devices for job in device.residents)
    assert resident.remaining_s == 200.0
    assert not resident.preemptible
    seen = partition_problem("main", jobs, [node()], SETTINGS, NOW, lambda _: 30.0)
    (resident,) = (job for device in seen.snapshot.devices for job in device.residents) if seen.snapshot else ()
    assert resident.remaining_s == 230.0, "what it lost to jobs beside it is still to be done"


def test_a_move_is_a_requeue_with_a_note_and_comes_before_the_starts() -> None:
    jobs = [movable(1, "g0"), movable(2, "g0"), pending(3)]
    seen = partition_problem("main", jobs, [node()], MOVING, NOW)
    actions = (
        Action(kind=ActionKind.START_SHARED, job_id="3", device_id="n0/g0"),
        Action(kind=ActionKind.MOVE, job_id="1", device_id="n0/g1"),
        Action(kind=ActionKind.KEEP, job_id="2", device_id="n0/g0"),
    )
    moved, placed = port(MOVING).planned_changes(seen, plan_of(*actions)).changes
    assert (moved.kind, placed.kind) == ("move", "place")
    assert moved.lines[0] == "requeue 1"
    assert moved.note is not None
    assert (moved.note.state, moved.note.to) == ("moving", GpuAddress("n0", "g1"))


def test_a_moved_job_that_waits_again_holds_its_new_seat_and_starts_there() -> None:
    moved = move(movable(1, "g0"), GpuAddress("n0", "g1"), "e", NOW)
    waits = replace(
        movable(1, "g0"), state="PENDING", held=(), node="", start_s=0.0, tres="gres:shard:g0:1", note=moved.note
    )
    seen = partition_problem("main", [waits, pending(2)], [node()], MOVING, NOW + 3.0)
    assert seen.snapshot is not None
    assert [tuple(job.id for job in device.residents) for device in seen.snapshot.devices] == [(), ("1",)]
    assert [job.id for job in seen.candidates] == ["2"]
    assert moved.note is not None
    assert moved.note.to is not None
    assert Note.parse(str(moved.note)) == moved.note
    started = place(waits, moved.note.to, "e", NOW + 3.0)
    (line,) = started.lines
    assert line.startswith("update JobId=1 TresPerNode=gres:shard:g1:1 ReqNodeList=n0 StartTime=now ")
    assert started.note is not None
    assert (started.note.tries, started.note.spent_s) == (1, 100), "its first places are no failed tries"
    shared = move(movable(1, "g0"), GpuAddress("n0", "g1"), "e", NOW, lost_s=30.0).note
    assert shared is not None
    assert shared.spent_s == 70, "what it lost to the jobs beside it is still to be done"


def test_a_move_to_a_device_that_nobody_named_reaches_no_job() -> None:
    seen = partition_problem("main", [movable(1, "g0")], [node()], MOVING, NOW)
    assert seen.snapshot is not None
    check_plan_subjects(plan_of(Action(kind=ActionKind.MOVE, job_id="1", device_id="n0/g1")), seen.snapshot)
    for job_id, device_id in (("1", "n9/g0"), ("2", "n0/g1")):
        wrong = plan_of(Action(kind=ActionKind.MOVE, job_id=job_id, device_id=device_id))
        with pytest.raises(InvalidInputError, match="were not in the request"):
            check_plan_subjects(wrong, seen.snapshot)


@pytest.mark.slurm
@pytest.mark.timeout(600)
def test_a_real_job_goes_on_from_its_checkpoint_on_the_other_gpu(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = cluster(defers=False)
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    results, steps = slurm.shared, 400
    command = f"exec {sys.executable} -m examples.site.job request-server {steps} {results}"
    job_id = slurm.sbatch(command, "--gres=shard:g0:1", "--nodelist=n0", "--requeue", f"--comment={COMMENT}")
    marks = slurm.spool / f"{job_id}.jsonl"
    wait_until(lambda: marks.exists() and marks.read_text(), "the job steps")
    settings = SlurmSettings.load(slurm.settings("127.0.0.1:1", moves=True), {})
    moving = SlurmPort(settings, SlurmCommands(60.0), slurm_metrics())
    (job,) = (each for each in SlurmCommands(60.0).jobs() if each.id == job_id)
    assert moving.apply([move(job, GpuAddress("n1", "g1"), "e", job.start_s)]) == ()

    def waits_and_is_sent_on() -> bool:
        repairs = moving.read().repairs
        return bool(repairs) and moving.apply(repairs) == ()

    wait_until(waits_and_is_sent_on, "the job is back in the queue")
    slurm.wait_ended([job_id])
    first, second = (json.loads(Path(results / f"run.{job_id}.0.{k}.json").read_text()) for k in range(2))
    assert (first["node"], first["complete"]) == ("n0", False)
    assert (second["node"], second["complete"]) == ("n1", True)
    assert 0 < first["steps"] < steps
    assert first["steps"] + second["steps"] == steps
