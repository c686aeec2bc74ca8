"""One run of a real program: its marks, its end, and nobody left behind, whoever is killed."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from interfere.errors import UnfitError
from interfere.profiling.programs import supervision
from interfere.profiling.programs.run import EVENTS, RUN_FOLDER, LaunchRequest, ProgramRun, Supervisor
from interfere.profiling.programs.spec import Command
from tests.profiling.programs.sample_programs import BUSY, PRINTING, WAITING, leftovers, program
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")


def until(what: Callable[[], object], run: ProgramRun) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, f"{what} within {PATIENCE_S} s"
        time.sleep(0.02)
        run.refresh()


def start(command: Command, folder: Path, *, core: int | None = None, grace_s: float = 2.0) -> ProgramRun:
    return ProgramRun(command, folder / "runs" / "0", core=core, grace_s=grace_s)


def first_process(run: ProgramRun) -> psutil.Process:
    return psutil.Process(json.loads((run.folder / EVENTS).read_text().splitlines()[0])["pid"])


def test_marks_samples_and_the_core(tmp_path: Path) -> None:
    core, at_home = max(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    with start(program(BUSY, env=(("SECRET", "hush"),)), tmp_path, core=core) as run:
        until(lambda: len(run.marks) > 40, run)
        until(lambda: len(run.samples()) > 5 and enough_time(run.samples()), run)
        below = first_process(run)
        assert below.cpu_affinity() == [core]
        assert below.environ()["SECRET"] == "hush"
    assert os.sched_getaffinity(0) == at_home
    assert not leftovers(tmp_path)
    samples = run.samples()
    gaps = [b["monotonic_s"] - a["monotonic_s"] for a, b in pairwise(samples)]
    assert statistics.median(gaps) < 2.0
    last = samples[-1]
    assert (last["count"], last["strayed"]) == (1, 0)
    assert 1e6 < last["private_bytes"] < 1e8
    kept = (run.folder / "run.json").read_text()
    assert "SECRET" in kept
    assert "hush" not in kept


def enough_time(samples: list[dict[str, Any]]) -> bool:
    """Whether the samples show what a busy program used: some of its core, and of its own time."""
    first, last = samples[0], samples[-1]
    return bool(last["cpu_s"] > 0.3 and last["core_busy_s"] - first["core_busy_s"] > 0.3)


def test_steps_from_output_are_the_steps_made(tmp_path: Path) -> None:
    with start(program(PRINTING, step_regex=r"step (\d+)"), tmp_path) as run:
        until(lambda: run.marks and run.marks[-1].steps > 200, run)
        environment = first_process(run).environ()
    marks = run.marks
    rates = [(b.steps - a.steps) / (b.monotonic_s - a.monotonic_s) for a, b in pairwise(marks)]
    assert "INTERFERE_PROGRESS" not in environment, "steps are never counted twice"
    assert 20 < statistics.median(rates) < 600, "steps of 2 ms and a little, printed by fives"
    printed = [int(word) for word in re.findall(r"step (\d+)", run.log.read_text())]
    assert 200 < marks[-1].steps <= printed[-1]
    assert run.log.read_text().startswith("loading the data\nepoch 1 step 5 ")
    assert not leftovers(tmp_path)


def test_of_ranks_in_lockstep_one_counts(tmp_path: Path) -> None:
    ranks = "import os\nfor _ in range(3): os.fork() or exec(JOB)\nos.wait()".replace("JOB", repr(WAITING))
    with start(program(ranks), tmp_path) as run:
        until(lambda: len(run.marks) > 20, run)
        marks = run.marks
        step_s = (marks[-1].monotonic_s - marks[0].monotonic_s) / (marks[-1].steps - marks[0].steps)
    assert step_s > 0.005, "three ranks of 5 ms are no job of 1.7 ms"
    assert len({mark.writer for mark in marks}) == 1
    assert not leftovers(tmp_path)


def test_a_sample_that_had_to_wait_for_a_core_does_not_delay_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = LaunchRequest(command=Command(name="true", argv=("true",), cwd="/"), grace_s=1.0)
    supervisor = Supervisor(tmp_path, request)
    take = supervision.sample_tree

    def late(core: int | None) -> supervision.TreeSample:
        time.sleep(0.5)
        return take(core)

    monkeypatch.setattr(supervision, "sample_tree", late)
    supervisor._write_sample(last=True)  # the loop around it runs a command
    assert supervisor.next_sample_s - time.monotonic() < 10.0, "25 s if its wait counted as its cost"


def test_cpu_time_of_children_that_ended_counts(tmp_path: Path) -> None:
    code = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 0.4: pass"
for _ in range(3): subprocess.run([sys.executable, "-c", burn])
time.sleep(60)
"""
    with start(program(code), tmp_path) as run:
        until(lambda: run.samples() and run.samples()[-1]["cpu_s"] > 1.0, run)
        until(lambda: run.samples()[-1]["count"] == 1, run)
        assert run.samples()[-1]["cpu_s"] < 2.4, "twice what they used"


def test_an_end_is_data(tmp_path: Path) -> None:
    for name, code, said, printed in (
        ("three", "print('no data set'); raise SystemExit(3)", "exit code 3", "no data set\n"),
        ("fault", "import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV", ""),
        ("fine", "pass", "exit code 0", ""),
    ):
        with start(program(code), tmp_path / name) as run:
            until(lambda run=run: run.exit, run)  # type: ignore[misc]  # bound now
        assert str(run.exit) == said
        assert run.log.read_text() == printed
        assert not leftovers(tmp_path)


@pytest.mark.parametrize(
    ("argv", "said"),
    [(("/no/such/program", "x"), "No such file"), ((str(Path(__file__)),), "Permission denied"), (("/",), "denied")],
)
def test_what_cannot_be_started_is_one_error(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(UnfitError, match=f"command nope cannot be started.*{said}") as caught:
        start(Command(name="nope", argv=argv), tmp_path).__enter__()
    assert argv[0] in str(caught.value)
    assert not leftovers(tmp_path)


def test_a_killed_supervisor_is_reported_and_its_command_ended(tmp_path: Path) -> None:
    forks = "import os, time\nif os.fork() == 0:\n    os.setsid()\nwhile True: time.sleep(1)"
    run = start(program(forks), tmp_path)
    with run:
        supervisors = [p for p in psutil.Process().children() if "interfere.profiling.programs.run" in p.cmdline()]
        until(lambda: len(supervisors[0].children(recursive=True)) == 2, run)
        supervisors[0].kill()
        with pytest.raises(UnfitError, match="supervisor of command job ended by itself"):
            until(lambda: False, run)
    assert not leftovers(tmp_path)


def test_a_polite_program_gets_the_time_to_say_its_last_words(tmp_path: Path) -> None:
    polite = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.3)
    print("saved the checkpoint")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)  # one that is held hears no SIGTERM
print("ready", flush=True)
while True: time.sleep(1)
"""
    with start(program(polite), tmp_path, grace_s=PATIENCE_S) as run:
        until(run.log.read_text, run)
        begin = time.monotonic()
    assert time.monotonic() - begin < PATIENCE_S, "nobody waits for a grace that is not needed"
    assert run.log.read_text().split("\n").count("saved the checkpoint") == 2
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whoever_ends_the_profiler_leaves_no_orphan(tmp_path: Path, number: int) -> None:
    stubborn = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n" + BUSY
    )
    command = [
        sys.executable,
        "-m",
        "interfere",
        "profile",
        "command",
        "--workload",
        "job",
        "--out",
        str(tmp_path / "t"),
        "--grace-s",
        "0.3",
        "--window-s",
        "60",
        "--",
        sys.executable,
        "-c",
        stubborn,
    ]
    spool = tmp_path / "t" / "raw" / "runs" / "0000-job" / "spool.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: spool.exists() or process.poll() is not None, "the first mark")
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            running = [p for p in psutil.Process(process.pid).children(recursive=True) if RUN_FOLDER in p.environ()]
            assert running
            process.send_signal(number)
            message = process.stderr.read() if process.stderr else ""
        finally:
            process.kill()
    assert not leftovers(tmp_path)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command goes on" in message
        assert "Traceback" not in message
