"""The commands of an audit that keep workloads apart by Slurm's own means, typed into a real Slurm."""

import subprocess
from collections.abc import Callable

import pytest

from interfere.monitoring.audit.advice import choose_separations
from interfere.monitoring.audit.keeping_apart import orders
from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns
from tests.monitoring.simulated_site import DEVICE_TYPE
from tests.monitoring.test_audit import estimate
from tests.serving.adapters.slurm.cluster import Cluster

pytestmark = pytest.mark.journey


def test_printed_commands_send_the_two_workloads_to_different_nodes(cluster: Callable[..., Cluster]) -> None:
    site = cluster(defers=False)
    rows = (estimate("v", "n", 3.0), estimate("n", "v", 2.0), estimate("v", "good", 1.1), estimate("good", "v", 1.1))
    hours = {(DEVICE_TYPE, ("n", "v")): 4.0, (DEVICE_TYPE, ("good", "v")): 1.0, (DEVICE_TYPE, ("good",)): 9.0}
    typed = orders(choose_separations(hours, KnownSlowdowns(rows)), rows)
    assert typed is not None
    (site.folder / "JOB.sh").write_text("#!/bin/sh\nexec sleep 120\n")
    lines = typed.slurm.replace("NODES1", "n0").replace("NODES2", "n1").splitlines()
    lines += typed.slurm_with_interfere.splitlines()
    wanted = {}
    for line in lines:
        ran = subprocess.run(
            ["sh", "-c", line], cwd=site.folder, env=site.env, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
        if line.startswith("sbatch"):
            wanted[ran.stdout.split()[-1]] = line
    site.wait_started(list(wanted))
    jobs = site.jobs()
    for job, line in wanted.items():
        if "--constraint" in line:
            assert jobs[job]["nodes"] == {"# v": "n0", "# n": "n1"}[line[-3:]]
        else:
            assert jobs[job]["comment"].startswith("interfere:workload=v;max_slowdown=")
    assert sum("--constraint" in line for line in lines) == 2
