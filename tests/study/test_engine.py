"""Runs of tasks: the same results wherever they run, kept when interrupted, gone on with later."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.study.engine import Document, Engine, Runner, SavedResults, TaskResults, in_this_process
from interfere.study.engines.catalogue import in_processes
from interfere.time_left import read_time_left
from tests.study.counting_tasks import Count, count, count_slowly
from tests.waiting import PATIENCE_S, wait_until

TASKS = [Count(up_to=k, cap=1.0 + k if k % 2 else math.inf) for k in range(16)]


def run(
    folder: Path | None = None,
    engine: Engine | None = None,
    notes: list[str] | None = None,
    inputs: int = 0,
    tasks: Sequence[Count] = TASKS,
) -> TaskResults[Count]:
    runner = Runner(engine=engine, folder=folder, report=None if notes is None else notes.append)
    return runner.run(count, inputs, tasks, digest=lambda: f"{inputs}", describe=lambda task, _: f"up to {task.up_to}")


def plain(results: TaskResults[Count]) -> str:
    """All documents as text, in their order."""
    return json.dumps([[repr(task), as_plain(document)] for task, document in results.documents.items()])


def as_plain(document: Document) -> Document:
    return {key: [str(v.dtype), v.tolist()] if isinstance(v, np.ndarray) else v for key, v in document.items()}


def stop_after(count_: int) -> Engine:
    """An engine that is interrupted after so many tasks."""

    def engine(work: Any, inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        for k, result in enumerate(in_this_process(work, inputs, tasks)):
            if k == count_:
                raise KeyboardInterrupt
            yield result

    return engine


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_processes_gives_the_same_in_the_order_of_the_tasks(workers: int) -> None:
    here, there = run(), run(engine=in_processes(workers))
    assert [*here.documents] == TASKS
    assert plain(here) == plain(there)
    assert not here.interrupted


def test_an_interrupted_run_keeps_what_is_done_and_goes_on_from_there(tmp_path: Path) -> None:
    ran: list[Count] = []

    def counting(work: Any, inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        ran.extend(tasks)
        return in_this_process(work, inputs, tasks)

    notes: list[str] = []
    first = run(tmp_path, stop_after(5), notes)
    assert (first.interrupted, len(first.documents), first.tasks) == (True, 5, 16)
    left = read_time_left(notes[0])
    assert left is not None
    assert left[1] == "1 of 16: up to 0"
    (file,) = tmp_path.iterdir()
    with file.open("a") as opened:
        opened.write('{"task": "Count(up_to=5')  # a write that was cut off
    second = run(tmp_path, counting, notes)
    assert (second.resumed, second.interrupted, ran) == (5, False, TASKS[5:])
    assert f"5 of 16 were done before, in {tmp_path}" in notes
    assert plain(second) == plain(run())
    third = run(tmp_path)
    assert (third.resumed, plain(third)) == (16, plain(second))


def test_two_processes_on_one_folder_lose_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second opens the folder, and meanwhile the first goes on: all that both have saved is there."""
    first = SavedResults(tmp_path, "same")
    first.add("a", {"mean": 1.0})
    read_text = Path.read_text

    def read_while_the_first_writes(path: Path, *args: Any, **options: Any) -> str:
        text = read_text(path, *args, **options)
        first.add("b", {"mean": 2.0})
        return text

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", read_while_the_first_writes)
        second = SavedResults(tmp_path, "same")
    second.add("c", {"mean": 3.0})
    first.add("d", {"mean": 4.0})
    assert sorted(SavedResults(tmp_path, "same").documents()) == ["a", "b", "c", "d"]
    assert len([*tmp_path.iterdir()]) == 2


def test_a_run_beside_a_deleted_one_begins_its_file_anew(tmp_path: Path) -> None:
    first = SavedResults(tmp_path / "kept", "same")
    first.add("a", {"mean": 1.0})
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    (tmp_path / "kept").rmdir()
    first.add("b", {"mean": 2.0})
    assert [*SavedResults(tmp_path / "kept", "same").documents()] == ["b"]


def test_what_was_kept_is_deleted_once_everything_has_succeeded(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    runner = Runner(folder=tmp_path)
    for name in ("one", "two"):
        runner.inside(name).run(count, 0, TASKS, digest=lambda: "0", describe=lambda *_: "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other", "two"]
    runner.delete_results()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_an_interrupt_while_a_result_is_kept_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = SavedResults.add

    def interrupted(saved: SavedResults, task: str, document: Document) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        add(saved, task, document)

    with monkeypatch.context() as patched:
        patched.setattr(SavedResults, "add", interrupted)
        first = run(tmp_path)
    assert (first.interrupted, len(first.documents)) == (True, 1)
    assert run(tmp_path).resumed == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_first_result_is_raised(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_after(0))


def test_results_of_other_inputs_are_never_mixed_in(tmp_path: Path) -> None:
    run(tmp_path, inputs=0)
    with pytest.raises(InvalidInputError, match="results of other inputs") as raised:
        run(tmp_path, inputs=1)
    assert str(tmp_path) in str(raised.value.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnfitError, match="results cannot be kept"):
        run(tmp_path / "file" / "below")


INTERRUPTED = """
import sys
from pathlib import Path
from interfere.study.engine import Runner
from interfere.study.engines.catalogue import in_processes
from tests.study.counting_tasks import Count, count_slowly

runner = Runner(engine=in_processes(1), folder=Path(sys.argv[1]), report=lambda text: print(text, flush=True))
tasks = [Count(up_to=k) for k in range(4000)]
ran = runner.run(count_slowly, 0, tasks, digest=lambda: "", describe=lambda task, _: f"up to {task.up_to}")
print("interrupted" if ran.interrupted else "done", len(ran.documents), flush=True)
"""


def test_an_interrupt_ends_the_processes_of_a_run(tmp_path: Path) -> None:
    """The signal reaches the parent alone, as with `kill -INT`: its processes end with it all the same."""
    running = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    try:
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert output.splitlines()[-1].startswith("interrupted ")
    done = int(output.split()[-1])
    (file,) = tmp_path.iterdir()
    assert len(file.read_text().splitlines()) == 1 + done
    assert 1 <= done < 4000
    wait_until(lambda: not _group_is_alive(running.pid), "the processes have ended")


def _group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_work_at_the_same_time() -> None:
    runner = Runner(engine=in_processes(2))
    done = runner.run(count_slowly, 0, TASKS, digest=lambda: "", describe=lambda *_: "")
    processes = {document["process"] for document in done.documents.values()}
    assert os.getpid() not in processes
    assert len(processes) == 2
