"""Rounds over a Slurm of files with a real server: they update what changed, and no more."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError, UnavailableError
from interfere.records import Action, ActionKind
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.problem import check_plan_subjects
from interfere.serving.adapters.round import Advisor, one_round
from interfere.serving.adapters.slurm.jobs import GpuAddress
from interfere.serving.adapters.slurm.port import NODES_S, slurm_advisor, slurm_metrics
from interfere.serving.adapters.slurm.problem import partition_problem
from interfere.serving.adapters.slurm.scontrol import SlurmCommands, place
from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.facts import NOW, SETTINGS, job_row, node, node_row, pending, plan_of, sinfo, squeue
from tests.serving.adapters.slurm.shims import fake, told
from tests.serving.adapters.slurm.thousand import jobs_and_nodes


def fresh(job_id: int, **given: object) -> dict[str, object]:
    """Submitted just now."""
    now = int(time.time())
    return job_row(job_id, submit_time=now, eligible_time=now + 20, **given)


def advisor(server: str, folder: Path, *, dry_run: bool = False) -> tuple[Advisor[Any, Any, Any], AdapterMetrics]:
    settings = SlurmSettings(devices=(DeviceRule(type="cpu-core"),), spool=folder, server=server)
    metrics, client = slurm_metrics(), PolicyClient(server, timeout_s=60.0)
    return slurm_advisor(settings, SlurmCommands(60.0), client, metrics, dry_run=dry_run), metrics


def test_a_thousand_pending_jobs_only_those_that_changed_are_updated(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake(tmp_path / "slurm", *jobs_and_nodes())
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    one, _ = advisor(server.address, tmp_path)
    done = one.round()
    placed = [edit for edit in done.changes if edit.kind == "place"]
    renewed = [job for edit in done.changes if edit.kind == "renew" for job in edit.job_ids]
    assert len(placed) == 32  # the free seats
    assert len({edit.note.to for edit in placed if edit.note}) == 32 - 16  # two on each of the free GPUs
    assert len(renewed) == 300 - sum(int(edit.job_ids[0]) <= 300 for edit in placed)  # whose deferral is half over
    assert len(told(folder)) == 2 * 32 + 3
    assert not {edit.job_ids[0] for edit in placed} & set(renewed)


def test_a_dry_run_changes_and_reports_nothing(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake(tmp_path / "slurm", squeue([fresh(1)]), sinfo([node_row("n0")]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    one, _ = advisor(server.address, tmp_path, dry_run=True)
    done = one.round()
    assert [decision.action.kind for decision in done.decisions] == [ActionKind.START_ALONE]
    assert done.changes
    assert told(folder) == []


def test_nodes_are_read_again_when_they_may_have_changed(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake(tmp_path / "slurm", squeue([fresh(1)]), sinfo([node_row("n0")]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    one, _ = advisor(server.address, tmp_path, dry_run=True)
    assert one.round().decisions[0].action.device_id
    (folder / "nodes.json").write_text(sinfo([node_row("n0", state="down")]))
    begin_s = time.time()
    monkeypatch.setattr("interfere.serving.adapters.slurm.port.time.time", lambda: begin_s + NODES_S / 2)
    assert one.round().decisions[0].action.device_id, "what was read a moment ago"
    monkeypatch.setattr("interfere.serving.adapters.slurm.port.time.time", lambda: begin_s + NODES_S)
    assert not any(decision.action.device_id for decision in one.round().decisions)


def test_a_half_updated_job_is_mended_before_anything_else(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear, _ = place(pending(1), GpuAddress("n0", "g0"), "d", 1.0).lines
    note = clear.partition("AdminComment=")[2]
    caught = fresh(1, tres_per_node="", admin_comment=note)
    folder = fake(tmp_path / "slurm", squeue([caught]), sinfo([node_row("n0")]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    one, _ = advisor(server.address, tmp_path)
    one.round()
    (line,) = told(folder)
    assert line.startswith("update JobId=1 TresPerNode=gres:shard:1 ReqNodeList= StartTime=now+20 ")


def test_no_round_ends_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake(tmp_path / "slurm", squeue([fresh(1)]), sinfo([node_row("n0")]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    one, metrics = advisor("127.0.0.1:1", tmp_path)
    with pytest.raises(UnavailableError):
        one.round()
    assert one_round(one) is None
    (folder / "jobs.json").write_text("not JSON")
    assert one_round(one) is None
    (folder / "squeue").unlink()
    monkeypatch.setenv("PATH", str(folder))
    assert one_round(one) is None
    assert told(folder) == []
    for result in ("unavailable", "invalid", "refused"):
        assert f'rounds_total{{result="{result}"}} 1' in metrics.text()


def test_a_plan_about_something_else_reaches_no_job() -> None:
    asked = partition_problem("main", [pending(1)], [node()], SETTINGS, NOW).snapshot
    assert asked is not None
    good = Action(kind=ActionKind.START_ALONE, job_id="1", device_id="n0/g0")
    check_plan_subjects(plan_of(good), asked)
    for bad in (replace(good, device_id="n0/g0 Priority=9"), replace(good, job_id="2")):
        with pytest.raises(InvalidInputError, match="were not in the request"):
            check_plan_subjects(plan_of(bad), asked)
