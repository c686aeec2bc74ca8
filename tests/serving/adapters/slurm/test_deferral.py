"""Which jobs the submit script defers, and that two commands tell an administrator what would happen, and undo it."""

import json
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.shims import shim

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
NOBODY = pwd.getpwnam("nobody")
OURS = "--comment=interfere:workload=gemm"


def submit(slurm: Cluster, *options: str) -> str:
    return slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "sleep 0.1").strip()


def interfere(slurm: Cluster, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "interfere", "slurm", *arguments, "--json"]
    ran = subprocess.run(command, env=slurm.env, capture_output=True, text=True, check=True, timeout=240)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_only_plain_jobs_that_say_what_they_run_are_deferred_and_given_back(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(window_s=30.0)
    shard = "--gres=shard:1"
    first = submit(slurm, shard, OURS, "--begin=now+60")
    others = [
        submit(slurm, shard),
        submit(slurm, "--gres=gpu:1", OURS),
        submit(slurm, shard, OURS, "--begin=now"),
        submit(slurm, shard, OURS, "--array=1-2"),
        submit(slurm, shard, OURS, f"--dependency=after:{first}"),
        submit(slurm, shard, OURS, "--nodes=2"),
        submit(slurm, shard, OURS, "--nodelist=n0"),
        submit(slurm, shard, OURS, "--exclude=n1"),
    ]
    ours = submit(slurm, shard, "--comment=ticket 7 interfere:workload=gemm;max_slowdown=2")
    jobs = slurm.jobs()
    assert {one: jobs[one]["admin_comment"] for one in (first, *others)} == dict.fromkeys((first, *others), "")
    assert jobs[ours]["admin_comment"] == "interfere:deferred"
    assert 29 <= jobs[ours]["eligible_time"] - jobs[ours]["submit_time"] <= 31

    settings = str(slurm.settings(server.address))
    done = interfere(slurm, "advise", "--config", settings, "--once", "--dry-run")
    assert [one["decision"] for one in done["decisions"]] == ["start_alone"]
    assert done["edits"][0]["scontrol"][0].startswith(f"update JobId={ours} TresPerNode= ")
    assert slurm.jobs()[ours]["admin_comment"] == "interfere:deferred"
    assert interfere(slurm, "release", "--config", settings) == {"released": 1, "refused": []}
    slurm.wait_ended([ours])
    assert slurm.jobs()[ours]["admin_comment"] == "interfere:freed"
    assert interfere(slurm, "release", "--config", settings) == {"released": 0, "refused": []}


def test_an_advisor_without_an_operators_rights_advises_its_own_users_jobs(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    """Its Slurm commands run as `nobody`; what they may not do, it does not try."""
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        slurm = cluster(folder=Path(open_to_all) / "cluster", window_s=20.0)
        try:
            advise_as_nobody(slurm, server, tmp_path)
        finally:  # while its folder is there
            slurm.stop()


def advise_as_nobody(slurm: Cluster, server: RunningServer, tmp_path: Path) -> None:
    as_nobody = ("setpriv", "--reuid", str(NOBODY.pw_uid), "--regid", str(NOBODY.pw_gid), "--clear-groups")
    path = shim(tmp_path / "nobody", "scontrol", f'cd /; exec {" ".join(as_nobody)} "$REAL" "$@"')
    job = ("--gres=shard:1", OURS, "--chdir=/", "--output=/dev/null", "--wrap", "sleep 1")
    mine = [slurm.run(*as_nobody, "sbatch", "--parsable", *job).strip() for _ in range(2)]
    other = submit(slurm, "--gres=shard:1", OURS)
    slurm.advise(slurm.settings(server.address, only_user="nobody"), path=path)
    slurm.wait_ended(mine)
    jobs = slurm.jobs()
    for one in mine:
        comment, _, note = jobs[one]["comment"].partition("|")
        assert comment == OURS.partition("=")[2]
        assert note.startswith("interfere:placed;to=n")
        assert jobs[one]["user_id"] == NOBODY.pw_uid
    assert jobs[other]["admin_comment"] == "interfere:deferred"
    assert slurm.rounds()[0]["refused"] == []
