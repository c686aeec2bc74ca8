"""A real Slurm's own accounting (slurmdbd on MariaDB): exported by `sacct`, imported, replayed."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from interfere.data.importers.site_traces import SACCT_COMMAND
from interfere.data.traces import read_trace
from tests.serving.adapters.slurm.accounting import PACKAGES, PROGRAMS, Accounting
from tests.serving.adapters.slurm.cluster import ROOT, Cluster

pytestmark = pytest.mark.slurm
JOBS = (  # workload, options of sbatch
    ("gemm", ()),
    ("gemm", ("--job-name=gemm-2048 seed|1",)),
    ("rl-rollout", ("--job-name=rl-rollout",)),
    ("request-server", ("--job-name=request-server v2",)),
)
PATTERNS = "pattern,workload\n^gemm,gemm\n^rl-,rl-rollout\n^request-server,request-server\n"


@pytest.fixture
def accounting() -> Iterator[Accounting]:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    why = f"Slurm's accounting is missing ({', '.join(missing)}): apt-get install {PACKAGES}"
    if missing and os.environ.get("REQUIRE_ALL"):
        pytest.fail(why)
    if missing:
        pytest.skip(why)
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the database runs as its own user
        started = Accounting(folder=Path(folder) / "accounting")
        try:
            yield started.start()
        finally:
            started.stop()


@pytest.mark.journey
def test_accounting_of_a_cluster_is_replayed(
    cluster: Callable[..., Cluster], accounting: Accounting, tmp_path: Path
) -> None:
    slurm = cluster(defers=False, options=accounting.slurm_options)
    named = [slurm.submit(workload, 5, *(options or ("--job-name=gemm",))) for workload, options in JOBS]
    whole = slurm.run("sbatch", "--parsable", "--gres=gpu:g0:1", "--job-name=gemm", "--wrap", "sleep 1").strip()
    without = slurm.run("sbatch", "--parsable", "--job-name=compile", "--wrap", "true").strip()
    ids = [*named, whole, without]
    slurm.wait_ended(ids)

    def exported() -> str:
        return slurm.run(*SACCT_COMMAND.split())

    slurm.wait(lambda: exported().count("COMPLETED") == len(ids))  # slurmdbd writes a moment later
    (tmp_path / "sacct.txt").write_text(exported())
    (tmp_path / "names.csv").write_text(PATTERNS)
    trace = tmp_path / "trace"
    words = ("--workloads", tmp_path / "names.csv", "--out", trace)
    slurm.interfere("data", "import", "sacct", tmp_path / "sacct.txt", *words)
    jobs = {job.job_id: job for job in read_trace(trace).jobs}
    assert set(jobs) == {*named, whole}
    assert [jobs[one].workload for one in named] == [workload for workload, _ in JOBS]
    assert {job.gpus for job in jobs.values()} == {1}
    options = ("--policy", "fifo-easy", "--policy", "fifo-easy-greedy", "--gpus", "1", "--json")
    command = (sys.executable, "-m", "interfere", "replay", str(trace), "--data", str(ROOT / "datasets" / "cpu"))
    answer = slurm.run(*command, *options)
    document = json.loads(answer)
    assert (document["coverage"]["jobs"], document["coverage"]["known_jobs"]) == (5, 5)
