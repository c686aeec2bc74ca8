"""Every engine: the results of one process, also where a worker is killed; errors of tasks arrive as raised."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from interfere import load_table
from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnavailableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.study.engine import Engine, Runner, in_this_process
from interfere.study.engines.catalogue import engine_of, in_processes
from interfere.study.engines.folder import HEAD, in_folder, work_in_folder
from interfere.testing.engines import EngineLaws
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import select_models
from tests.study.counting_tasks import Count, count, count_after_kills, count_never, count_until_told, refuse
from tests.study.test_engine import plain
from tests.study.test_replays import inputs as sweep_inputs
from tests.study.test_replays import ran, without_times
from tests.study.test_replays import tasks as sweep_tasks
from tests.waiting import PATIENCE_S, wait_until

LEASE_S = 1.5
TASKS = [Count(up_to=k) for k in range(8)]
WORKER = """
import sys
from pathlib import Path
from interfere.study.engines.folder import work_in_folder
while True:
    work_in_folder(Path(sys.argv[1]), idle_s=60, lease_s=float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def small_dataset() -> Dataset:
    """The pairs of six workloads of the shipped table."""
    table = load_table("cpu")
    names = {job.workload for job in table.jobs[:6]}
    pairs = tuple(pair for pair in table.pairs if {pair.victim, pair.neighbour} <= names)
    return build_dataset([Table(name="small", jobs=table.jobs[:6], pairs=pairs)], FeatureEncoder())


@contextmanager
def workers(folder: Path, count_: int = 2) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that work in the folder; one that is killed is followed by another, as under a batch system."""
    over, running = threading.Event(), []

    def keep_one() -> None:
        while not over.is_set():
            running.append(subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(LEASE_S)]))
            running[-1].wait()

    threads = [threading.Thread(target=keep_one) for _ in range(count_)]
    for thread in threads:
        thread.start()
    try:
        yield running
    finally:
        over.set()
        for process in running:
            process.kill()
        for thread in threads:
            thread.join()


@pytest.fixture(params=["processes", "folder"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with ExitStack() as ends:
        if request.param == "processes":
            yield in_processes(2)
        else:
            ends.enter_context(workers(tmp_path / "shared"))
            yield in_folder(tmp_path / "shared", lease_s=LEASE_S)


@pytest.mark.journey
def test_an_engine_gives_the_results_of_one_process_also_where_a_worker_is_killed(
    engine: Engine, tmp_path: Path
) -> None:
    def run(engine_: Engine, marks: Path) -> str:
        runner = Runner(engine=engine_)
        return plain(runner.run(count_after_kills, marks, TASKS, digest=lambda: "", describe=lambda *_: ""))

    here = Runner(engine=in_this_process).run(count, 0, TASKS, digest=lambda: "", describe=lambda *_: "")
    assert run(engine, tmp_path) == plain(here)
    assert (tmp_path / "killed").exists()
    assert run(engine, tmp_path) == plain(here)  # a second batch, nobody killed


@pytest.mark.journey
def test_a_sweep_and_the_folds_of_a_training_are_those_of_one_process(engine: Engine, small_dataset: Dataset) -> None:
    made, models = sweep_inputs(), select_models("mean,additive,gbdt")
    assert without_times(ran(made, sweep_tasks(), Runner(engine=engine))) == without_times(ran(made, sweep_tasks()))
    there = evaluate_models(small_dataset, models, runner=Runner(engine=engine))
    for one, other in zip(evaluate_models(small_dataset, models), there, strict=True):
        assert (one.predicted_log == other.predicted_log).all()


def test_an_error_of_a_task_is_raised_as_it_was(engine: Engine) -> None:
    with pytest.raises(UnfitError, match=r"(?s)too few rows: 0.*measure more"):
        list(engine(refuse, 0, TASKS[:1]))


@pytest.mark.journey
def test_a_task_that_kills_every_worker_is_an_error(engine: Engine) -> None:
    with pytest.raises(UnavailableError, match=r"(workers were lost at one task|processes were killed)"):
        list(engine(count_never, 0, TASKS[:1]))


def test_a_batch_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    with workers(folder, 1):
        assert len(list(in_folder(folder)(count, 0, TASKS))) == len(TASKS)
        assert list(in_folder(folder)(count, 0, [])) == []
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.journey
def test_a_worker_that_is_told_to_end_gives_its_task_back(tmp_path: Path) -> None:
    """SIGTERM, as Slurm and Kubernetes send it: another worker has the task at once, not after a lease."""
    folder, results = tmp_path / "shared", []
    run = threading.Thread(target=lambda: results.extend(in_folder(folder)(count_until_told, tmp_path, TASKS[:1])))
    run.start()
    command = [sys.executable, "-m", "interfere", "work", str(folder), "--idle-s", "60"]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "at-work-0").exists, "the first has it")
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 128 + signal.SIGTERM
    (tmp_path / "go").touch()
    second = subprocess.run([*command[:-1], "1"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    run.join(PATIENCE_S)
    assert len(results) == 1
    assert "1 tasks" in second.stdout


def test_a_worker_leaves_tasks_of_another_version(tmp_path: Path) -> None:
    folder, notes = tmp_path / "shared", list[str]()
    engine = in_folder(folder)(count, 0, TASKS)
    run = threading.Thread(target=lambda: list(engine), daemon=True)
    run.start()
    wait_until(lambda: any(folder.glob(f"[!.]*/{HEAD}")), "the batch is there")
    (head,) = folder.glob(f"[!.]*/{HEAD}")
    whole = head.read_text()
    head.write_text('{"version": "0.0.1"}')
    assert work_in_folder(folder, idle_s=0.5, report=notes.append) == 0
    assert len(notes) == 1
    assert "of interfere 0.0.1" in notes[0]
    head.write_text(whole)
    assert work_in_folder(folder, idle_s=0.5) == len(TASKS)
    run.join(PATIENCE_S)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_to_is_refused_by_both_sides(tmp_path: Path, mode: int) -> None:
    """Its content is executed."""
    (tmp_path / "shared").mkdir()
    os.chmod(tmp_path / "shared", mode)
    with pytest.raises(UnfitError, match="chmod go-w"):
        list(in_folder(tmp_path / "shared")(count, 0, TASKS))
    with pytest.raises(UnfitError, match="chmod go-w"):
        work_in_folder(tmp_path / "shared", idle_s=0.0)


def test_an_engine_is_found_by_name_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert engine_of(1) is in_this_process
    assert engine_of(1, "interfere.study.engine:in_this_process") is in_this_process
    assert callable(engine_of(1, f"folder:{tmp_path}"))
    for name in ("cloud", "cloud:address", "interfere.study:cloud"):
        with pytest.raises(InvalidInputError, match=r"(?s)no such engine.*folder:PATH, ray.*package:Object"):
            engine_of(1, name)
    with pytest.raises(InvalidInputError, match="folder:PATH"):
        engine_of(1, "folder")


class TestEveryEngine(EngineLaws):
    """The suite that engines of other packages are held to."""

    @pytest.fixture(params=["this process", "processes"])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        return in_this_process if request.param == "this process" else in_processes(2)
