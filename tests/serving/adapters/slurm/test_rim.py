"""Settings, spool, lock and the four commands: what is wrong is said, and nothing else is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from interfere.errors import InvalidInputError, UnavailableError, UnfitError
from interfere.progress import Writer
from interfere.serving.adapters.slurm import scontrol
from interfere.serving.adapters.slurm.command import one_instance
from interfere.serving.adapters.slurm.jobs import GpuAddress
from interfere.serving.adapters.slurm.scontrol import ENDINGS, SlurmCommands, Spool, place
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.windows import Place, Residency
from tests.serving.adapters.slurm.cluster import FILES
from tests.serving.adapters.slurm.facts import NOW, job_row, pending, running, sinfo, squeue
from tests.serving.adapters.slurm.shims import fake, shim, told


def written(folder: Path, text: str) -> Path:
    path = folder / "slurm.toml"
    path.write_text(text)
    return path


def test_the_shipped_settings_file_is_read_and_flags_win(tmp_path: Path) -> None:
    settings = SlurmSettings.load(FILES / "slurm.toml", {"interval_s": 1.0, "spool": tmp_path, "server": None})
    assert settings.interval_s == 1.0
    assert settings.spool == tmp_path
    rule = settings.device(GpuAddress("a7", "g3"))
    assert rule is not None
    assert (rule.type, rule.memory_gib) == ("a100", 80)
    assert settings.device(GpuAddress("b7", "g3")) is None
    unit, lua = (FILES / "interfere-slurm.service").read_text(), (FILES / "job_submit.lua").read_text()
    assert "interfere slurm advise --config" in unit
    assert f"WINDOW_S = {settings.window_s:.0f} " in lua


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interval_s = ", "not TOML"),
        ('intervall_s = 2\n[[devices]]\ntype="x"', "did you mean interval_s"),
        ('interval_s = "2"\n[[devices]]\ntype="x"', "must be a number"),
        ('interval_s = 0\n[[devices]]\ntype="x"', "positive"),
        ('lookahead = 2.5\n[[devices]]\ntype="x"', "whole number"),
        ('most_tries = 0\n[[devices]]\ntype="x"', "positive"),
        ('interval_s = 6\n[[devices]]\ntype="x"', "quarter of window_s"),
        ('allow_extrapolation = 1\n[[devices]]\ntype="x"', "true or false"),
        ("", "no GPU is described"),
        ('[[devices]]\nnodes="*"', "needs a type"),
        ('[[devices]]\ntype="x"\nmode="both"', "unknown sharing mode"),
        ('[[devices]]\ntype="x"\nmemory="8"', "unknown field"),
        ('[[devices]]\ntype="x"\nmemory_gib="8"', "must be a number"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        SlurmSettings.load(written(tmp_path, text), {})
    violations = " ".join(map(str, raised.value.violations))
    assert said in f"{raised.value} {violations}"


def test_the_one_user_has_to_exist(tmp_path: Path) -> None:
    one = '[[devices]]\ntype="x"'
    assert SlurmSettings.load(written(tmp_path, one), {}).only_user_id is None
    assert SlurmSettings.load(written(tmp_path, f'only_user = "root"\n{one}'), {}).only_user_id == 0
    missing = SlurmSettings.load(written(tmp_path, f'only_user = "no-such-user"\n{one}'), {})
    with pytest.raises(InvalidInputError, match="no such user"):
        assert missing.only_user_id


def test_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        SlurmSettings.load(tmp_path / "none.toml", {})


def test_marks_are_read_on_from_where_they_ended_and_only_from_the_owners_plain_file(tmp_path: Path) -> None:
    residency = Residency(job=running(7, "g0", user_id=os.getuid()), place=Place("n0/g0"), start_s=NOW, end_s=NOW)
    spool, writer = Spool(tmp_path, 1e9), Writer(str(tmp_path / "7.jsonl"), 0.0)
    assert spool.marks(residency, NOW) == []
    writer.step()
    assert [mark.steps for mark in spool.marks(residency, NOW)] == [1]
    writer.next_record_s = 0.0
    writer.step()
    assert [mark.steps for mark in spool.marks(residency, NOW)] == [1, 2]
    other = Residency(job=running(8, "g0", user_id=os.getuid()), place=residency.place, start_s=NOW, end_s=NOW)
    (tmp_path / "8.jsonl").symlink_to(tmp_path / "7.jsonl")
    assert spool.marks(other, NOW) == []
    os.chown(tmp_path / "7.jsonl", 12345, -1) if os.getuid() == 0 else pytest.skip("chown needs root")
    assert Spool(tmp_path, 1e9).marks(residency, NOW) == []


def test_endings_are_read_and_files_of_forgotten_jobs_removed(tmp_path: Path) -> None:
    endings = tmp_path / ENDINGS
    endings.mkdir(mode=0o755)
    (endings / "7.0.n0.end").write_text(json.dumps({"job": "7", "restarts": 0, "node": "n0", "gpus": "0"}))
    (endings / "8.0.n0.end").write_text("torn {")
    for name in ("7.jsonl", "9.jsonl", "notes.txt"):
        (tmp_path / name).write_text("")
    for path in (*tmp_path.iterdir(), *endings.iterdir()):
        os.utime(path, (NOW - 7200, NOW - 7200))
    spool = Spool(tmp_path, 240.0)
    assert [one.job_id for one in spool.endings()] == ["7"]
    spool.sweep(["7"], NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7.jsonl", ENDINGS, "notes.txt"]
    assert [path.name for path in endings.iterdir()] == ["7.0.n0.end"]
    Spool(tmp_path / "none", 240.0).sweep([], NOW)


def test_whatever_a_user_puts_into_the_spool_costs_nobody_else_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO, links, a sparse file of 20 GiB, JSON of a million brackets, forged endings: a round reads little."""
    endings, now_s = tmp_path / ENDINGS, NOW
    endings.mkdir(mode=0o755)
    (endings / "7.0.n0.end").write_text(json.dumps({"job": "7", "restarts": 0, "node": "n0", "gpus": "0"}))
    (endings / "8.0.n0.end").write_text(
        json.dumps({"job": "7", "restarts": 1, "node": "n1", "gpus": "0"})
    )  # not its own
    for name in ("10.jsonl", "1.0.n0.end"):
        os.mkfifo(tmp_path / name)
    os.mkfifo(endings / "2.0.n0.end")
    (endings / "3.0.n0.end").symlink_to("/etc/passwd")
    (endings / "4.0.n0.end").write_text("[" * 10**6)
    (tmp_path / "11.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "9.0.n0.end").write_text(json.dumps({"job": "9", "restarts": 0, "node": "n0", "gpus": "0"}))  # forged
    line = json.dumps({"writer": "w", "unix_s": now_s, "monotonic_s": 0.0, "steps": 3}) + "\n"
    with (tmp_path / "12.jsonl").open("wb") as sparse:
        sparse.truncate(20 * 2**30)
        sparse.seek(0, os.SEEK_END)
        sparse.write(f"\n{line}".encode())
    (tmp_path / "13.jsonl").write_text("[" * 10**6 + "\n" + line)
    (tmp_path / "14.jsonl").write_text(line)
    os.link(tmp_path / "14.jsonl", tmp_path / "15.jsonl")
    (tmp_path / "16.jsonl").write_text(line)
    read_bytes: list[int] = []

    @contextmanager
    def counted(path: Path, users: Collection[int]) -> Iterator[SimpleNamespace]:
        with opened(path, users) as file:

            def read(size: int) -> bytes:
                content = file.read(size)
                read_bytes.append(len(content))
                return content

            yield SimpleNamespace(fileno=file.fileno, seek=file.seek, read=read)

    opened = scontrol._opened
    monkeypatch.setattr(scontrol, "_opened", counted)
    spool, steps = Spool(tmp_path, 1e9), {}
    for job_id in range(10, 17):
        job = running(job_id, "g0", user_id=os.getuid())
        marks = spool.marks(Residency(job=job, place=Place("n0/g0"), start_s=NOW, end_s=NOW), now_s)
        steps[job_id] = [mark.steps for mark in marks]
    assert [one.job_id for one in spool.endings()] == ["7"]
    assert steps == {10: [], 11: [], 12: [3], 13: [3], 14: [], 15: [], 16: [3]}
    assert sum(read_bytes) <= 3 * 2**20, "a mebibyte of each long file"
    # An endings folder that somebody else may write into holds no endings.
    endings.chmod(0o777)
    assert spool.endings() == ()


@pytest.mark.skipif(os.getuid() != 0, reason="the epilog is run by root")
@pytest.mark.parametrize("trap", ["link_to_folder", "open_folder", "file", "none"])
def test_the_epilog_follows_nobody(tmp_path: Path, trap: str) -> None:
    victim, spool = tmp_path / "victim", tmp_path / "spool"
    victim.mkdir()
    spool.mkdir(mode=0o1777)
    endings = spool / ENDINGS
    if trap == "link_to_folder":
        endings.symlink_to(victim)
    elif trap == "open_folder":
        endings.mkdir()
        endings.chmod(0o777)
        (endings / "7.0.n0.end.tmp").symlink_to(victim / "written")
    elif trap == "file":
        endings.write_text("")
    environment = {
        "PATH": os.environ["PATH"],
        "INTERFERE_SPOOL": str(spool),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_COMMENT": "interfere:workload=a",
        "SLURM_JOB_GPUS": "0",
        "SLURMD_NODENAME": "n0",
    }
    assert subprocess.run(["sh", FILES / "epilog.sh"], env=environment, check=False).returncode == 0
    assert list(victim.iterdir()) == []
    assert [one.job_id for one in Spool(spool, 240.0).endings()] == (["7"] if trap == "none" else [])


def test_the_epilog_writes_what_the_advisor_reads(tmp_path: Path) -> None:
    env = {
        "INTERFERE_SPOOL": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_RESTART_COUNT": "2",
        "PATH": os.environ["PATH"],
        "SLURMD_NODENAME": "n0",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_JOB_COMMENT": "interfere:workload=a",
    }
    assert os.spawnve(os.P_WAIT, FILES / "epilog.sh", ["epilog"], env) == 0
    (ending,) = Spool(tmp_path, 240.0).endings()
    assert (ending.job_id, ending.restarts, ending.node, ending.gpu_indices) == ("7", 2, "n0", (0, 1))
    gone = env | {"INTERFERE_SPOOL": "/nonexistent"}
    assert os.spawnve(os.P_WAIT, FILES / "epilog.sh", ["epilog"], gone) == 0  # or the node would be drained


def test_one_advisor_a_lock(tmp_path: Path) -> None:
    with one_instance(tmp_path / "run" / "lock"):
        with pytest.raises(UnfitError, match="another advisor"), one_instance(tmp_path / "run" / "lock"):
            pass
        assert (tmp_path / "run" / "lock").read_text() == f"{os.getpid()}\n"
    with one_instance(tmp_path / "run" / "lock"):
        pass
    with pytest.raises(UnfitError, match="cannot be opened"), one_instance(Path("/dev/null/lock")):
        pass


def test_commands_that_hang_fail_or_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for command in ("squeue", "scontrol"):
        shim(tmp_path, command, "exec sleep 60")
    slurm = SlurmCommands(0.2)
    with pytest.raises(UnavailableError, match="did not answer in"):
        slurm.jobs()
    with pytest.raises(UnavailableError, match="did not finish in time"):
        slurm.apply([place(pending(1), GpuAddress("n0", "g0"), "d", NOW)])
    shim(tmp_path, "sinfo", "echo no controller >&2; exit 1")
    with pytest.raises(UnavailableError, match="no controller"):
        slurm.nodes()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnfitError, match="squeue is missing"):
        slurm.jobs()


def test_the_table_of_kept_nodes_is_read_where_a_gang_is_next_and_json_does_not_say_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = {"tres_per_node": "gres:gpu:2", "state_reason": "Resources", "admin_comment": ""}

    def expected(**given: object) -> dict[str, tuple[str, ...]]:
        fake(tmp_path, squeue([job_row(1), job_row(2, **(gang | given))]), sinfo([]))
        table = f'case "$*" in --json) cat {tmp_path}/jobs.json;; *) echo table >> {tmp_path}/told; echo "2 n1";; esac'
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{table}\n")
        return {job.id: job.expected_nodes for job in SlurmCommands(5.0).jobs()}

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert expected() == {"1": (), "2": ("n1",)}
    assert told(tmp_path) == ["table"]
    assert expected(scheduled_nodes="n0") == {"1": (), "2": ("n0",)}
    assert expected(state_reason="Priority") == {"1": (), "2": ()}
    assert told(tmp_path) == []


def test_the_bare_install_is_enough() -> None:
    code = (
        "import sys, interfere.serving.adapters.slurm.command, interfere.serving.adapters.slurm.port\n"
        "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert not {
        "prometheus_client",
        "scipy",
        "onnxruntime",
        "rustworkx",
        "torch",
        "pandas",
        "interfere.features",
    } & set(ran.stdout.split())


def test_refusals_are_told_apart_and_named_once_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake(tmp_path / "slurm", "{}", "{}")
    lines = [
        "Job is no longer pending execution for job 1",
        "Invalid node name specified for job 1",
        "Invalid generic resource (gres) specification for job 2",
        "Invalid job id specified for job 3",
    ]
    shim(folder, "scontrol", f"cat >> {folder}/told; printf '{os.linesep.join(lines)}{os.linesep}' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    edits = [place(pending(k), GpuAddress("n0", "g0"), "d", NOW) for k in range(1, 5)]
    refused = SlurmCommands(5.0).apply(edits)
    assert [(one.job_id, one.lost_race) for one in refused] == [("1", True), ("2", False), ("3", True)]
    assert told(folder) == [line for edit in edits for line in edit.lines]
