"""Step marks as jobs make them: real processes, real forks, broken disks."""

import ast
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from interfere import progress

SOURCE = Path(progress.__file__)


def job(
    code: str, spool: Path | None, *, every_s: str = "0", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("INTERFERE_PROGRESS")}
    if spool is not None:
        env |= {"INTERFERE_PROGRESS": str(spool), "INTERFERE_PROGRESS_EVERY_S": every_s}
    command = [sys.executable, "-c", "from interfere import progress\n" + code]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def test_calls_and_the_wrapper_count_alike(tmp_path: Path) -> None:
    begin_unix, begin = time.time(), time.monotonic()
    for name, code in (
        ("calls", "for _ in range(5): progress.step()\nprogress.step(2)"),
        ("wrapped", "assert list(progress.wrap(range(7))) == [0, 1, 2, 3, 4, 5, 6]"),
    ):
        done = job(code, tmp_path / name)
        assert (done.returncode, done.stderr) == (0, "")
        found = progress.read(tmp_path / name)
        assert found.skipped == 0
        steps = [mark.steps for mark in found.marks]
        assert steps == sorted(steps)
        assert steps[-1] == 7
        assert len({mark.writer for mark in found.marks}) == 1
        assert begin < found.marks[0].monotonic_s <= found.marks[-1].monotonic_s < time.monotonic()
        assert begin_unix - 0.1 < found.marks[0].unix_s < time.time() + 0.1


def test_without_the_variable_nothing_is_written(tmp_path: Path) -> None:
    done = job("progress.step()\nprint(list(progress.wrap('ab')))", None, cwd=tmp_path)
    assert done.stdout == "['a', 'b']\n"
    assert not list(tmp_path.iterdir())


def test_a_wrapped_loader_still_is_one() -> None:
    class Loader(list[int]):
        sampler = "shuffled"

    wrapped = progress.wrap(Loader([1, 2, 3]))
    assert len(wrapped) == 3
    assert wrapped.sampler == "shuffled"
    assert list(wrapped) == list(wrapped) == [1, 2, 3]
    assert not progress.wrap([])
    with pytest.raises(TypeError):
        len(progress.wrap(iter([1])))


def test_between_records_only_memory_is_touched_and_the_end_is_kept(tmp_path: Path) -> None:
    done = job("for _ in range(10_000): progress.step()", tmp_path / "spool", every_s="30")
    assert done.returncode == 0
    marks = progress.read(tmp_path / "spool").marks
    assert [mark.steps for mark in marks] == [1, 10_000]


def test_a_step_costs_about_a_microsecond(tmp_path: Path) -> None:
    writer = progress.Writer(str(tmp_path / "spool"))
    n, best = 50_000, float("inf")
    for _ in range(5):
        begin = time.process_time()
        for _ in range(n):
            writer.step()
        best = min(best, (time.process_time() - begin) / n)
    assert best < 6e-6, "about 0.4 µs on an idle core, a microsecond is promised; a slow and busy one takes longer"


def test_a_slow_disk_costs_one_per_cent_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, real = progress.Writer(str(tmp_path / "spool"), every_s=0.0), os.write

    def slow(handle: int, line: bytes) -> int:
        time.sleep(0.02)
        return real(handle, line)

    monkeypatch.setattr(os, "write", slow)
    writer.step()
    writer.step()
    assert writer.next_record_s - writer.last_step_s >= 100 * 0.02


def test_a_record_that_had_to_wait_for_a_processor_does_not_delay_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs that share a core interrupt each other anywhere: a mark that is missed for long spoils a measurement."""
    writer, real = progress.Writer(str(tmp_path / "spool"), every_s=0.0), os.write
    writer.step()

    def interrupted(handle: int, line: bytes) -> int:
        time.sleep(0.5)
        return real(handle, line)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        writer.next_record_s = 0.0
        writer.step()
    assert writer.next_record_s - writer.last_step_s < 0.5 * progress.PAUSE_FACTOR / 2, "50 s if its wait counted"


def test_forked_children_and_threads_count_for_themselves(tmp_path: Path) -> None:
    code = """
import os, threading
def many():
    for _ in range(500): progress.step()
progress.step()
threads = [threading.Thread(target=many) for _ in range(4)]
for t in threads: t.start()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(10): progress.step()
        progress._flush()
        os._exit(0)
    children.append(child)
for t in threads: t.join()
assert all(os.waitpid(c, 0)[1] == 0 for c in children)
"""
    done = job(code, tmp_path / "spool")
    assert (done.returncode, done.stderr) == (0, "")
    found = progress.read(tmp_path / "spool")
    assert found.skipped == 0
    last = {mark.writer: mark.steps for mark in found.marks}
    assert sorted(last.values()) == [10, 10, 10, 2001]


def test_a_signal_handler_may_mark_in_the_middle_of_a_mark(tmp_path: Path) -> None:
    code = """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: progress.step(0))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
until = time.monotonic() + 0.5
while time.monotonic() < until: progress.step()
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    done = job(code, tmp_path / "spool")
    assert (done.returncode, done.stderr) == (0, "")
    assert progress.read(tmp_path / "spool").marks


@pytest.mark.parametrize("spool", ["missing/folder/spool", ".", "/proc/nowhere/spool"])
def test_a_spool_that_cannot_be_written_is_one_line_and_no_more(tmp_path: Path, spool: str) -> None:
    done = job("for _ in range(1000): progress.step()\nprint('the job is done')", tmp_path / spool)
    assert done.returncode == 0
    assert done.stdout == "the job is done\n"
    assert done.stderr.count("\n") == 1
    assert "step marks are lost, the job goes on" in done.stderr


def test_nonsense_never_ends_the_job(tmp_path: Path) -> None:
    done = job("progress.step('x')\nprogress.step(float('nan'))\nprogress.step(object())\nprint('on')", tmp_path / "s")
    assert done.stdout == "on\n"
    assert done.stderr.count("\n") == 1
    unreadable = job("progress.step()", tmp_path / "t", every_s="often")
    assert (unreadable.returncode, unreadable.stderr) == (0, "")
    assert len(progress.read(tmp_path / "t").marks) == 1


def test_a_full_disk_tears_a_line_and_the_next_one_is_whole(tmp_path: Path) -> None:
    writer = progress.Writer(str(tmp_path / "spool"), every_s=0.0)
    writer.step()
    before, limits = (tmp_path / "spool").stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 20, limits[1]))  # the disk has room for 20 bytes
    try:
        writer.next_record_s = 0.0
        writer.step()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "spool").stat().st_size == before + 20
    writer.next_record_s = 0.0
    writer.step()
    found = progress.read(tmp_path / "spool")
    assert [mark.steps for mark in found.marks] == [1, 3]
    assert found.skipped == 1


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    assert progress.read(spool) == progress.Spool([], 0, 0)
    writer = progress.Writer(str(spool), every_s=0.0)
    writer.step()
    first = progress.read(spool)
    whole = spool.read_bytes()
    spool.write_bytes(whole + whole[:-10])  # a record is being written
    assert progress.read(spool, first.offset) == progress.Spool([], first.offset, 0)
    spool.write_bytes(whole + b'{"steps": 3}\n[]\nnot ours\n' + whole)
    rest = progress.read(spool, first.offset)
    assert rest.skipped == 3
    assert rest.marks == first.marks
    with pytest.raises(progress.RefusedFileError, match="no regular file"):
        progress.read(tmp_path)


def test_concurrent_writers_never_mix_lines(tmp_path: Path) -> None:
    spool = tmp_path / "spool"

    def write() -> None:
        writer = progress.Writer(str(spool), every_s=0.0)
        for _ in range(200):
            writer.next_record_s = 0.0
            writer.step()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = progress.read(spool)
    assert (len(found.marks), found.skipped) == (800, 0)


def test_the_file_stands_alone(tmp_path: Path) -> None:
    """Copied into a container with an old Python and nothing else."""
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    (tmp_path / "progress.py").write_text(SOURCE.read_text())
    code = "import sys; sys.path.insert(0, '.'); import progress; progress.step(); print('numpy' in sys.modules)"
    env = {"INTERFERE_PROGRESS": "spool"}
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert json.loads((tmp_path / "spool").read_text())["steps"] == 1
