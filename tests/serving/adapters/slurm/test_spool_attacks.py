"""What a user may try in the spool against the job of another user: real users, root's real prolog, real writers."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interfere.serving.adapters.slurm.scontrol import Spool
from interfere.serving.adapters.windows import Place, Residency
from tests.serving.adapters.slurm.cluster import FILES, Cluster
from tests.serving.adapters.slurm.facts import NOW, running
from tests.waiting import PATIENCE_S, wait_until

VICTIM, ATTACKER = 12345, 65534  # ids of users; no account is needed
JOB = 7
ATTACKS = {
    "squatted": "printf squatted > 7.jsonl; chmod 0666 7.jsonl",
    "link": "ln -s ../secret 7.jsonl",
    "dangling link": "ln -s ../made 7.jsonl",
    "FIFO": "mkfifo -m 0666 7.jsonl",
    "folder": "mkdir -m 0777 7.jsonl",
}
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="acts as several users: needs root")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every user may enter, with a file `secret` of the victim, and an open spool."""
    with tempfile.TemporaryDirectory(prefix="interfere-spool-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "secret").write_text("")
        os.chown(folder / "secret", VICTIM, VICTIM)
        (folder / "spool").mkdir()
        (folder / "spool").chmod(0o1777)
        yield folder


def as_user(user: int, folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the spool as a user."""
    environment = {"PATH": os.environ["PATH"]} | variables
    options = {"user": user, "group": user, "extra_groups": (), "cwd": folder / "spool", "env": environment}
    return subprocess.run(command, **options, check=False, capture_output=True, text=True, timeout=PATIENCE_S)  # type: ignore[call-overload,no-any-return]


def attack(home: Path, name: str) -> subprocess.CompletedProcess[str]:
    return as_user(ATTACKER, home, "sh", "-c", ATTACKS[name])


def prolog(home: Path, **variables: str) -> None:
    given = {
        "PATH": os.environ["PATH"],
        "INTERFERE_SPOOL": str(home / "spool"),
        "SLURM_JOB_ID": str(JOB),
        "SLURM_JOB_UID": str(VICTIM),
        "SLURM_JOB_COMMENT": "interfere:workload=a",
    }
    ran = subprocess.run(
        ["sh", FILES / "prolog.sh"], env=given | variables, check=False, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def run_job(home: Path) -> subprocess.CompletedProcess[str]:
    """The victim's job: it marks three steps, and says when it is done."""
    drop = f"os.setgroups([]); os.setgid({VICTIM}); os.setuid({VICTIM})"  # Python itself may be root's to read alone
    code = f"import os\nfrom interfere import progress\n{drop}\nfor _ in range(3): progress.step()\nprint('done')"
    variables = {"INTERFERE_PROGRESS": str(home / "spool" / f"{JOB}.jsonl"), "INTERFERE_PROGRESS_EVERY_S": "0"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=os.environ | variables, check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )


def steps(spool: Spool, now_s: float = NOW) -> list[float]:
    job = running(JOB, "g0", user_id=VICTIM)
    residency = Residency(job=job, place=Place("n0/g0"), start_s=NOW, end_s=NOW)
    return [mark.steps for mark in spool.marks(residency, now_s)]


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_prolog_an_attack_silences_the_job_alone_and_is_told_once(
    home: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert attack(home, name).returncode == 0
    spool = Spool(home / "spool", 1e12)
    assert "who makes JOB.jsonl first silences that job" in spool.weakness()
    ran = run_job(home)
    assert ran.stdout == "done\n", "the job goes on"
    assert ran.stderr.count("\n") == 1
    assert "step marks are lost" in ran.stderr
    assert (home / "secret").read_text() == ""
    assert not (home / "made").exists()
    with caplog.at_level(logging.WARNING, logger="interfere.slurm"):
        assert [steps(spool), steps(spool)] == [[], []]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("job 7 has no marks: its file 7.jsonl is not read")
    assert "prolog.sh" in line


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "folder"])
def test_the_prolog_replaces_what_was_made_first_even_in_an_open_spool(home: Path, name: str) -> None:
    assert attack(home, name).returncode == 0
    prolog(home)
    assert attack(home, name).returncode != 0, "nobody else makes, changes or removes the file"
    assert as_user(ATTACKER, home, "rm", "-f", "7.jsonl").returncode != 0
    assert as_user(ATTACKER, home, "cat", "7.jsonl").returncode != 0
    ran = run_job(home)
    assert (ran.stdout, ran.stderr) == ("done\n", "")
    assert steps(Spool(home / "spool", 1e12)) == [1, 2, 3]
    assert (home / "secret").read_text() == ""


@pytest.mark.parametrize("name", ATTACKS)
def test_in_a_closed_spool_there_is_nothing_to_attack(home: Path, name: str) -> None:
    os.chown(home / "spool", 0, 4711)  # the advisor's group
    (home / "spool").chmod(0o711)
    assert attack(home, name).returncode != 0
    assert as_user(ATTACKER, home, "ls").returncode != 0
    prolog(home)
    file = home / "spool" / "7.jsonl"
    status = file.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (VICTIM, 4711, 0o640)
    assert run_job(home).stderr == ""
    spool = Spool(home / "spool", 1e12)
    assert spool.weakness() == ""
    assert steps(spool) == [1, 2, 3]
    prolog(home)  # the job was requeued
    assert run_job(home).stderr == ""
    assert steps(spool) == [1, 2, 3, 1, 2, 3]
    assert [path.name for path in (home / "spool").iterdir()] == ["7.jsonl"]


def test_a_second_name_of_a_file_is_refused(home: Path) -> None:
    """The victim's own file under the name of its job: its marks must not end up in it."""
    os.link(home / "secret", home / "spool" / "7.jsonl")
    assert "second name" in run_job(home).stderr
    assert (home / "secret").read_text() == ""
    prolog(home)
    assert run_job(home).stderr == ""
    assert (home / "secret").read_text() == ""


@pytest.mark.parametrize("trap", ["link", "open to all", "missing"])
def test_the_prolog_writes_into_no_folder_in_which_files_can_be_exchanged(home: Path, trap: str) -> None:
    (home / "victim").mkdir()
    shutil.rmtree(home / "spool")
    if trap == "link":
        (home / "spool").symlink_to(home / "victim")
        assert "is a link" in Spool(home / "spool", 1.0).weakness()
    elif trap == "open to all":
        (home / "spool").mkdir()
        (home / "spool").chmod(0o777)
        assert "replace the marks of every job" in Spool(home / "spool", 1.0).weakness()
    prolog(home)
    assert list((home / "victim").iterdir()) == []
    assert not (home / "spool" / "7.jsonl").exists()


def test_the_prolog_makes_files_for_jobs_that_name_a_workload(home: Path) -> None:
    prolog(home, SLURM_JOB_COMMENT="nightly")
    prolog(home, SLURM_JOB_ID="../../7")
    prolog(home, SLURM_JOB_UID="root")
    assert list((home / "spool").iterdir()) == []


def test_a_closed_spool_without_prolog_is_told_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "spool").chmod(0o711)
    spool = Spool(home / "spool", 1e12)
    with caplog.at_level(logging.WARNING, logger="interfere.slurm"):
        assert steps(spool, NOW + 5.0) == []
        assert caplog.records == [], "the prolog may still run"
        assert steps(spool, NOW + 100.0) == steps(spool, NOW + 102.0) == []
    (line,) = (record.getMessage() for record in caplog.records)
    assert "set Prolog=" in line


def test_the_task_prolog_names_a_file_that_the_job_may_write(home: Path) -> None:
    variables = {"SLURM_JOB_ID": str(JOB), "INTERFERE_SPOOL": str(home / "spool")}
    script = shutil.copy(FILES / "task_prolog.sh", home)
    told = f"export INTERFERE_PROGRESS={home}/spool/7.jsonl\n"
    assert as_user(VICTIM, home, "sh", script, **variables).stdout == told, "an open spool"
    (home / "spool").chmod(0o711)
    assert as_user(VICTIM, home, "sh", script, **variables).stdout == "", "a job that names no workload"
    prolog(home)
    assert as_user(VICTIM, home, "sh", script, **variables).stdout == told
    assert as_user(ATTACKER, home, "sh", script, **variables).stdout == ""


@pytest.mark.slurm
def test_slurm_runs_the_prolog_before_the_job(cluster: Callable[..., Cluster]) -> None:
    started = cluster(defers=False)
    started.spool.chmod(0o711)
    job = started.submit("gemm", 5)
    other = started.run("sbatch", "--parsable", "--output", "/dev/null", "--wrap", "true").strip()
    wait_until(lambda: started.states([job, other]) == ["COMPLETED", "COMPLETED"], "both jobs have ended")
    (file,) = started.spool.glob("*.jsonl")
    assert file.name == f"{job}.jsonl"
    assert file.stat().st_mode & 0o777 == 0o640
    assert json.loads(file.read_text().splitlines()[-1])["steps"] == 5
