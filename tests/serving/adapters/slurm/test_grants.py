"""More than two shards of a GPU are as many seats; memory grants stand in a job's note, and who holds more is ended."""

import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError
from interfere.records import ActionKind, MemoryUsage
from interfere.serving.adapters.observations import outcomes
from interfere.serving.adapters.slurm.jobs import GpuAddress, Held, Note
from interfere.serving.adapters.slurm.port import SlurmPort, decided_jobs, slurm_advisor, slurm_metrics
from interfere.serving.adapters.slurm.problem import partition_problem, partitions
from interfere.serving.adapters.slurm.scontrol import SlurmCommands, end, place
from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.conftest import DEVICE
from tests.serving.adapters.slurm.facts import NOW, SETTINGS, job_row, node, node_row, pending, running, sinfo, squeue
from tests.serving.adapters.slurm.shims import fake, told

GIB = 2**30
TO = GpuAddress("n0", "g0")
GRANTED = Note(state="placed", to=TO, tries=1, grant_bytes=4 * GIB)
GRANTING = replace(SETTINGS, devices=(DeviceRule(type="cpu-core", memory_gib=16.0, granule_gib=4.0),))


def test_seats_are_the_shards_that_jobs_of_this_size_find() -> None:
    seen = partition_problem("main", [running(1, "g0"), pending(2)], [node(shards=4, gpus=2)], SETTINGS, NOW)
    assert seen.snapshot is not None
    assert [(device.seats, len(device.residents)) for device in seen.snapshot.devices] == [(4, 1), (4, 0)]
    large = pending(3, tres="gres:shard:2")
    seen = partition_problem("main", [running(1, "g0"), pending(2), large], [node(shards=4, gpus=2)], SETTINGS, NOW)
    assert seen.snapshot is not None
    assert [device.seats for device in seen.snapshot.devices] == [2, 2]
    assert [job.id for job in seen.candidates] == ["2", "3"]
    assert seen.snapshot.now_s != seen.snapshot.now_s  # no clock: nothing is remembered


def test_memory_and_grants_reach_the_server() -> None:
    asking = pending(2, comment="interfere:workload=gemm;memory_gib=3")
    jobs = [running(1, "g0", note=GRANTED), asking, running(3, "g1", note=Note())]
    seen = partition_problem("main", jobs, [node(shards=4)], GRANTING, NOW)
    assert seen.snapshot is not None
    first, second = seen.snapshot.devices
    assert (first.memory_bytes, first.granule_bytes, first.seats) == (16.0 * GIB, 4.0 * GIB, 4)
    assert first.residents[0].grant_bytes == 4.0 * GIB
    assert math.isnan(second.residents[0].grant_bytes)
    (waiting,) = seen.snapshot.pending
    assert waiting.memory_peak_bytes == 3.0 * GIB
    assert math.isnan(waiting.grant_bytes)
    assert seen.snapshot.now_s == NOW
    assert [job.id for job in seen.running] == ["1"]
    assert partitions(jobs[:1], GRANTING) == ("main",)
    assert (
        partition_problem("main", jobs[:1], [node()], GRANTING, NOW).snapshot is not None
    )  # nobody waits, grants are looked at


def test_a_grant_and_the_reason_of_an_end_stand_in_the_note() -> None:
    note = place(pending(7), TO, "d", NOW, 4.0 * GIB, slots="0-3+8").note
    assert note is not None
    assert (note.grant_bytes, note.slots) == (4 * GIB, "0-3+8")
    assert Note.parse(str(note)) == note
    edit = end(running(7, "g0", note=note), "held 6.1 GiB of 4 GiB granted for 130 s\nupdate JobId=9; Priority=1")
    update, notify = edit.lines
    why = "held_6.1_GiB_of_4_GiB_granted_for_130_s_update_JobId9_Priority1"
    assert update.startswith("update JobId=7 AdminComment=interfere:ended;to=n0/g0;")
    assert update.endswith(f";grant={4 * GIB};slots=0-3+8;why={why}")
    assert notify == f"notify 7 interfere ends this job: {why}"
    assert edit.cancels
    assert edit.note is not None
    assert Note.parse(str(edit.note)) == edit.note
    ended = running(7, "g0", note=edit.note, state="CANCELLED", end_s=NOW)
    assert [outcome.reason for outcome in outcomes(decided_jobs([ended], SETTINGS, NOW), "slurm/c")] == [
        why.replace("_", " ")
    ]


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("granule_gib = 5", "memory_gib"),
        ("memory_gib = 16\ngranule_gib = 32", "granule_gib"),
        ("memory_gib = 16\ngranule_gib = 0", "granule_gib"),
        ("memory_gib = 16\noversubscription_ratio = 0.5", "oversubscription_ratio"),
        ('memory_gib = 16\ngranule_gib = "4"', "granule_gib"),
    ],
)
def test_wrong_settings_of_grants_are_told(tmp_path: Path, lines: str, field: str) -> None:
    file = tmp_path / "slurm.toml"
    file.write_text(f'[[devices]]\ntype = "a100"\n{lines}\n')
    with pytest.raises(InvalidInputError, match=field):
        SlurmSettings.load(file, {})


def test_four_jobs_are_granted_memory_and_the_one_that_takes_more_is_ended(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(GRANTING, server=server.address, spool=tmp_path, grant_patience_s=10.0)
    now = int(time.time())
    rows = [
        job_row(
            k,
            "rl-rollout",
            submit_time=now,
            eligible_time=now + 20,
            comment="interfere:workload=rl-rollout;memory_gib=4",
        )
        for k in range(1, 6)
    ]
    nodes = sinfo([node_row("n0", gres="gpu:g0:1,shard:g0:8")])
    folder = fake(tmp_path / "slurm", squeue(rows), nodes)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with PolicyClient(server.address, timeout_s=60.0) as client:
        # 1. Memory for four: the fifth waits for it, whatever the shards.
        one = slurm_advisor(settings, SlurmCommands(60.0), client, slurm_metrics(), dry_run=False)
        done = one.round()
        notes = {edit.job_ids[0]: edit.note for edit in done.changes if edit.kind == "place"}
        assert len(notes) == 4
        assert all(note is not None and note.grant_bytes == 4 * GIB for note in notes.values())
        assert sorted(note.slots for note in notes.values() if note) == ["0", "1", "2", "3"]
        # 2. They run; one holds more than its grant, and says so with a file of measured memory.
        started = [
            row
            | {
                "job_state": "RUNNING",
                "nodes": "n0",
                "gres_detail": [f"shard:g0:1(IDX:{k})"],
                "start_time": now,
                "admin_comment": str(notes[str(row["job_id"])]),
            }
            if str(row["job_id"]) in notes
            else row
            for k, row in enumerate(rows)
        ]
        (folder / "jobs.json").write_text(squeue(started))
        guilty = sorted(notes)[1]
        for k, window in enumerate([(now + 1, now + 8), (now + 8, now + 16)]):
            client.observe(
                [
                    MemoryUsage(
                        observation_id=f"m{k}",
                        job_id=guilty,
                        workload="rl-rollout",
                        device_type=DEVICE,
                        device_id="n0/g0",
                        bytes=6.5 * GIB,
                        min_bytes=6.0 * GIB,
                        start_s=window[0],
                        end_s=window[1],
                    )
                ]
            )
        told(folder)
        monkeypatch.setattr("interfere.serving.adapters.slurm.port.time.time", lambda: now + 17.0)
        restarted = slurm_advisor(settings, SlurmCommands(60.0), client, slurm_metrics(), dry_run=False)
        done = restarted.round()
        # 3. It is cancelled, the reason in its note, its standard error and the round.
        lines = told(folder)
        assert lines[-1] == f"scancel --quiet {guilty}"
        (update,) = [line for line in lines if line.startswith(f"update JobId={guilty} ")]
        assert "AdminComment=interfere:ended;" in update
        assert "held_6.5_GiB_of_4_GiB_granted" in update
        assert any(line.startswith(f"notify {guilty} ") for line in lines)
        (ended,) = [each for each in done.decisions if each.action.kind is ActionKind.END]
        assert ended.job.id == guilty
        assert "held 6.5 GiB of 4 GiB granted" in ended.action.reason


def test_a_dry_run_cancels_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake(tmp_path / "slurm", squeue([]), sinfo([]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    settings = SlurmSettings(devices=(DeviceRule(type="cpu-core"),), spool=tmp_path)
    dry = SlurmPort(settings, SlurmCommands(60.0), slurm_metrics(), dry_run=True)
    assert dry.apply([end(running(7, "g0", note=GRANTED), "held too much")]) == ()
    assert told(folder) == []


def test_the_hosts_memory_is_divided_among_the_gpus_of_a_node() -> None:
    rule = DeviceRule(type="cpu-core", memory_gib=16.0, granule_gib=4.0, oversubscription_ratio=1.5)
    settings = replace(GRANTING, devices=(rule,), host_reserve_gib=8.0)
    whole = running(1, "g0", tres="gres:gpu:1", held=(Held("gpu", TO, 1),))
    for jobs in ([], [whole]):  # a GPU that is taken as a whole keeps its part
        seen = partition_problem("main", [*jobs, pending(2)], [node(shards=4, gpus=2)], settings, NOW)
        assert seen.snapshot is not None
        assert {device.host_reserve_bytes for device in seen.snapshot.devices} == {4.0 * GIB}
