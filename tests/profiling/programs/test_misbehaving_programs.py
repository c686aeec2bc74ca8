"""Hostile commands: each ends in one clear error or row, soon, and leaves no process behind."""

import os
import re
import time
from pathlib import Path

import pytest

from interfere.errors import UnfitError
from interfere.profiling.measurer import measure
from interfere.profiling.programs.profiler import CommandConfig
from interfere.profiling.programs.spec import Command
from interfere.profiling.programs.supervision import HEAD_BYTES, TAIL_BYTES
from interfere.records import PairStatus
from tests.profiling.programs.sample_programs import BUSY, WAITING, leftovers, program
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")

IGNORING = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
FLOODING = "import os, sys\nline = b'nothing but words ' * 4000\nwhile True: os.write(1, line)"
# A child in a session of its own, its parent gone at once: re-parented twice over, deaf, and busy.
DOUBLE_FORKING = (
    IGNORING
    + """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(0.01)
    os._exit(0)
"""
    + WAITING
)
LEAVING = """
import os, time
print("the parent goes")
if os.fork(): os._exit(0)
while True: time.sleep(0.01)
"""
# Nobody lives longer than 2 ms, somebody always lives: each hands on to its child, in a session of its own.
HYDRA = """
import os, time
while True:
    if os.fork(): os._exit(0)
    os.setsid()
    open("heartbeat", "w").close()
    time.sleep(0.002)
"""


def config(out: Path, *commands: Command, **changes: object) -> CommandConfig:
    values: dict[str, object] = {
        "out": out,
        "commands": commands,
        "pairs": (),
        "window_s": 0.5,
        "repeats": 1,
        "limit_s": 20.0,
        "grace_s": 0.3,
    }
    return CommandConfig(**{**values, **changes})  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('hello')\nimport time\ntime.sleep(600)", "marked no step within {limit:g} s.*its log ends: hello"),
        ("print('cannot open x')\nraise SystemExit(3)", "ended by itself.* 0 steps, exit code 3; .*cannot open x"),
        (FLOODING, "marked no step within {limit:g} s.*its log ends: .*nothing but words"),
        (LEAVING, "exit code 0, processes it had started still running: 1; its log ends: the parent"),
        (IGNORING + "import time\nwhile True: time.sleep(1)", "marked no step within {limit:g} s"),
        (WAITING.replace("while True", "for _ in '1'") + "time.sleep(600)", "made 0 steps after its first"),
        (WAITING.replace("0.004", "LIMIT / 10"), "steps with .* marks in a window of {limit:g} s, 20 and 6 are needed"),
    ],
    ids=["never steps", "exits 3", "floods", "forks and dies", "deaf", "hangs", "too slow"],
)
def test_alone_it_is_one_error(tmp_path: Path, code: str, said: str) -> None:
    for limit_s in (1.0, 5.0, 25.0):  # a slow machine may need all of a short limit to start the program
        out, begin = tmp_path / f"{limit_s:g}", time.monotonic()
        hostile = program(code.replace("LIMIT", f"{limit_s:g}"), "hostile", cwd=str(tmp_path))
        with pytest.raises(UnfitError, match="command hostile cannot be measured") as caught:
            measure(config(out, hostile, limit_s=limit_s), lambda now: None)
        assert time.monotonic() - begin < 2 * limit_s + PATIENCE_S
        assert "log.txt" in caught.value.remedy
        assert not leftovers(tmp_path)
        if re.search(said.format(limit=limit_s), str(caught.value)):
            break
    else:
        pytest.fail(str(caught.value))
    assert not list(tmp_path.rglob("*.parquet")), "nothing half-written"
    log = next(out.rglob("log.txt"))
    assert log.stat().st_size < HEAD_BYTES + TAIL_BYTES + 100
    if code is FLOODING:
        assert b"[interfere dropped " in log.read_bytes()


def test_a_chain_of_forks_that_never_stands_still_is_caught(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match="exit code 0"):
        measure(config(tmp_path / "t", program(HYDRA, "hydra", cwd=str(tmp_path))), lambda now: None)
    beat = (tmp_path / "heartbeat").stat().st_mtime_ns
    time.sleep(0.5)
    assert (tmp_path / "heartbeat").stat().st_mtime_ns == beat


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match=r"command nope cannot be started.*No such file.*/no/such/program --x"):
        measure(config(tmp_path / "t", Command(name="nope", argv=("/no/such/program", "--x"))), lambda now: None)
    assert not list(tmp_path.rglob("*.parquet"))


def test_deaf_double_forking_and_flooding_programs_that_step_are_measured(tmp_path: Path) -> None:
    flooding = "import os\n" + WAITING.replace("    progress.step()", "    os.write(1, b'x' * 60_000); progress.step()")
    commands = (program(DOUBLE_FORKING, "forking"), program(flooding, "flooding"))
    outcome = measure(config(tmp_path / "t", *commands), lambda now: None)
    assert not outcome.failures
    # 5 ms, or less where waiting of the idle child for the core is taken for that of the program.
    assert all(0.004 < job.step_time_s < 1.0 for job in outcome.table.jobs)
    assert not leftovers(tmp_path)


def test_a_program_that_leaves_its_core_is_refused(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: there is nowhere to go")
    wanders = f"import os\nos.sched_setaffinity(0, {os.sched_getaffinity(0)})\n" + BUSY
    with pytest.raises(UnfitError, match="1 of its processes left the core"):
        measure(config(tmp_path / "t", program(wanders, "hostile")), lambda now: None)


def test_one_bad_command_does_not_stop_the_others(tmp_path: Path) -> None:
    commands = (program("raise SystemExit(3)", "bad"), program(WAITING, "good"))
    warnings: list[str] = []
    outcome = measure(config(tmp_path / "t", *commands), lambda now: warnings.append(now.warning))
    assert [job.workload for job in outcome.table.jobs] == ["good"]
    assert [failure.name for failure in outcome.failures] == ["bad"]
    assert "exit code 3" in outcome.failures[0].reason
    assert any("command bad cannot be measured" in warning for warning in warnings)


def test_one_that_dies_beside_another_is_an_unstable_row(tmp_path: Path) -> None:
    """As one does that finds no memory left: fine alone, gone as soon as somebody else is there."""
    note = tmp_path / "crowd.pid"
    crowd = f"import os\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n" + WAITING
    crowded = f"os.path.exists({str(note)!r}) and os.path.exists('/proc/' + open({str(note)!r}).read())"
    dies = f"    progress.step()\n    if {crowded}:\n        print('out of memory', flush=True)\n        os._exit(7)"
    shy = "import os\n" + WAITING.replace("    progress.step()", dies)
    commands = (program(shy, "shy"), program(crowd, "crowd"))
    pairs = (("shy", "crowd"),)
    outcome = measure(config(tmp_path / "t", *commands, pairs=pairs, passes=1, max_blocks=1), lambda now: None)
    assert not outcome.failures
    assert {(p.victim, p.neighbour) for p in outcome.table.pairs} == {("shy", "crowd"), ("crowd", "shy")}
    for row in outcome.table.pairs:
        assert row.status is PairStatus.UNSTABLE
        assert "shy ended by itself" in row.reason
        assert "exit code 7; its log ends: out of memory" in row.reason
    assert not leftovers(tmp_path)
