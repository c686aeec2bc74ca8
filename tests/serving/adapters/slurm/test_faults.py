"""Whatever dies, jobs start by Slurm's own placement within their window and ten seconds, once; then advice resumes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Outcome, OutcomeKind
from interfere.serving.server import RunningServer, start_server
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.conftest import SHIPPED
from tests.serving.adapters.slurm.shims import KILL_POINTS, POWER_LOSS, between_read_and_update, shim
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def three(cluster: Cluster, steps: int = 10) -> list[str]:
    return [cluster.submit(name, steps) for name in ("gemm", "rl-rollout", "request-server")]


def started_once(cluster: Cluster, ids: Sequence[str]) -> None:
    """All in time, each exactly once, none held, and slurmctld lives."""
    cluster.wait_started(ids)
    cluster.wait_ended(ids)
    jobs, runs = cluster.jobs(), cluster.runs()
    for one in ids:
        assert jobs[one]["job_state"] == "COMPLETED"
        assert jobs[one]["restart_cnt"] == 0
        assert len(runs[one]) == 1


def advice_resumes(cluster: Cluster, ids: Sequence[str]) -> None:
    """They start at once, where a decision put them."""
    cluster.wait(lambda: all("interfere:placed" in row["admin_comment"] for row in rows(cluster, ids)))
    cluster.wait_ended(ids)


def rows(cluster: Cluster, ids: Sequence[str]) -> list[dict[str, object]]:
    jobs = cluster.jobs()
    return [jobs[one] for one in ids]


def test_an_advisor_killed_at_any_point_leaves_no_job_behind(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster()
    settings = slurm.settings(server.address)
    all_ids = []
    for k, (command, script) in enumerate(KILL_POINTS.values()):
        ids = three(slurm)
        advisor = slurm.advise(settings, path=shim(tmp_path / f"kill{k}", command, script))
        assert advisor.wait(PATIENCE_S) == -9
        all_ids += ids
    started_once(slurm, all_ids)
    slurm.advise(settings)
    slurm.next_round()
    ids = three(slurm)
    advice_resumes(slurm, ids)
    started_once(slurm, ids)


def test_a_host_that_dies_between_two_updates_leaves_jobs_that_the_next_advisor_or_one_command_mends(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster(nodes=1)
    settings = slurm.settings(server.address)
    dying = shim(tmp_path / "dying", *POWER_LOSS)
    for mend in (lambda: slurm.advise(settings), lambda: slurm.interfere("slurm", "release", "--config", settings)):
        ids = three(slurm, steps=5)
        assert slurm.advise(settings, path=dying).wait(PATIENCE_S) == -9
        assert any("interfere:clearing" in str(row["admin_comment"]) for row in rows(slurm, ids))
        time.sleep(slurm.window_s + 1.0)  # long enough for the scheduler to meet a job without a request
        mended = mend()
        started_once(slurm, ids)
        if mended:
            mended.terminate()
            assert mended.wait(PATIENCE_S) == 0


def test_without_a_server_jobs_start_late_and_advice_comes_back_with_it(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster(nodes=1)
    settings = slurm.settings(server.address)
    server.stop()
    advisor = slurm.advise(settings)
    slurm.next_round()
    ids = three(slurm)
    started_once(slurm, ids)
    again = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=server.port, grace_s=1.0))
    try:
        slurm.next_round()
        ids = three(slurm)
        advice_resumes(slurm, ids)
    finally:
        again.stop()
    assert advisor.poll() is None
    assert 'rounds_total{result="unavailable"}' in (slurm.folder / "advisor.prom").read_text()


def test_slurmctld_restarted_loses_no_job_and_advice_resumes(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=1)
    advisor = slurm.advise(slurm.settings(server.address))
    ids = three(slurm)
    slurm.stop_controller()
    time.sleep(2.0)
    slurm.start_controller()
    slurm.wait(slurm.answers)
    started_once(slurm, ids)
    slurm.next_round()
    ids = three(slurm)
    advice_resumes(slurm, ids)
    assert advisor.poll() is None


def test_jobs_that_move_between_read_and_update_are_counted_and_left_alone(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster(nodes=1)
    starts, ends, leaves, held = (slurm.submit("rl-rollout", steps) for steps in (40, 2, 10, 10))
    happening = "; ".join(
        [
            f"scontrol update JobId={starts} StartTime=now",
            f"scontrol update JobId={ends} StartTime=now",
            f"scancel {leaves}",
            f"scontrol hold {held}",
            f'until "$REAL" -h -j {ends} -t COMPLETED -o %i | grep -q .; do sleep 0.1; done',
        ]
    )
    env = between_read_and_update(tmp_path / "race", happening)
    advisor = slurm.advise(slurm.settings(server.address, timeout_s=30.0), path=env)
    slurm.wait(lambda: bool(slurm.rounds()))
    refused = {one["job"] for one in slurm.rounds()[0]["refused"]}
    assert refused >= {starts, ends, leaves}
    ids = three(slurm)
    advice_resumes(slurm, ids)
    slurm.scontrol("release", held)
    slurm.wait_ended([starts, held])
    assert slurm.states([starts, ends, leaves, held]) == ["COMPLETED", "COMPLETED", "CANCELLED", "COMPLETED"]
    assert {len(found) for found in slurm.runs().values()} == {1}
    assert advisor.poll() is None
    assert 'races_total{kind="lost"} 3' in (slurm.folder / "advisor.prom").read_text()
    assert {one.job_id for one in lost(server)} == refused


def lost(server: RunningServer) -> list[Outcome]:
    with PolicyClient(server.address) as client:
        log = [entry.observation for entry in client.observation_log(limit=100).entries]
    return [one for one in log if isinstance(one, Outcome) and one.kind is OutcomeKind.LOST_RACE]


def test_a_place_that_turns_out_too_small_is_given_up_after_some_tries(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=1)
    first, second = (
        slurm.submit(name, steps, "--cpus-per-task=8") for name, steps in (("gemm", 250), ("rl-rollout", 5))
    )
    slurm.advise(slurm.settings(server.address, start_s=3.0, most_tries=2))
    slurm.wait(lambda: "interfere:freed" in slurm.jobs()[second]["admin_comment"])
    assert slurm.jobs()[second]["job_state"] == "PENDING"
    started_once(slurm, [first, second])
    assert [one.job_id for one in lost(server)] == [second, second]
