"""The laws of every engine: tasks give the results of one process, whatever runs them, and errors arrive as raised."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.study.engine import Document, Engine, Runner, in_this_process


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareTask:
    """A task: the square of a number, less an offset that all tasks share; the task of `fails` raises."""

    number: int
    fails: bool = False


def squares(offset: int, task: SquareTask) -> Document:
    """Return the numbers up to the square, as an array and as their sum. Raises UnfitError for a task that fails."""
    if task.fails:
        raise UnfitError("this task fails", value=task.number)
    numbers = np.arange(task.number**2, dtype=np.float64) - offset
    return {"numbers": numbers, "sum": float(numbers.sum()), "text": f"{task.number} × {task.number}"}


def _results(engine: Engine, tasks: list[SquareTask]) -> list[tuple[int, list[float], float, str]]:
    done = Runner(engine=engine).run(squares, 3, tasks, digest=lambda: "", describe=lambda *_: "")
    assert not done.interrupted
    return [(task.number, d["numbers"].tolist(), d["sum"], d["text"]) for task, d in done.documents.items()]


class EngineLaws:
    """Every test gets `engine`."""

    @pytest.fixture
    def engine(self) -> Engine:
        """Override: the engine."""
        raise NotImplementedError

    def test_results_are_those_of_one_process_in_the_order_of_the_tasks(self, engine: Engine) -> None:
        tasks = [SquareTask(number=k) for k in (7, 1, 5, 0, 3, 2)]
        assert _results(engine, tasks) == _results(in_this_process, tasks)

    def test_every_task_comes_back_once(self, engine: Engine) -> None:
        tasks = [SquareTask(number=k) for k in range(9)]
        found = Counter(task for task, _ in engine(squares, 0, tasks))
        assert found == Counter(tasks)

    def test_no_tasks_are_no_results(self, engine: Engine) -> None:
        assert list(engine(squares, 0, [])) == []

    def test_an_engine_runs_a_second_batch(self, engine: Engine) -> None:
        tasks = [SquareTask(number=2), SquareTask(number=4)]
        assert _results(engine, tasks) == _results(engine, tasks)

    def test_the_error_of_a_task_arrives_as_it_was_raised(self, engine: Engine) -> None:
        with pytest.raises(UnfitError, match="this task fails: 2"):
            list(engine(squares, 0, [SquareTask(number=2, fails=True)]))
