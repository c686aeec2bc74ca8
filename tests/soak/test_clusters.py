"""Processes, a folder, Ray and Dask on two nodes: the results of one process, also where a worker is killed midway."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interfere import load_table
from interfere.data.loading import shipped_table
from interfere.errors import UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.study.engine import Engine, Runner, in_this_process
from interfere.study.engines.catalogue import engine_of
from interfere.study.engines.folder import in_folder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.models.catalogue import select_models
from interfere.training.pipeline import TrainingResult, train
from tests.study.counting_tasks import Count, count, count_after_kills, refuse, work_after_a_kill
from tests.study.test_engine import plain
from tests.study.test_replays import inputs, ran, tasks, without_times
from tests.training.mlflow_databases import copied_databases

__all__ = ["copied_databases"]  # a fixture
pytestmark = pytest.mark.timeout(900)
TASKS = [Count(up_to=k) for k in range(16)]
MAX_KILLS = 3  # of workers, over all tests of one engine
MODELS = select_models("gbdt,mlp,gp,mean")
TRAINED = {model.name: model for model in select_models("mean,additive")}


@pytest.fixture(scope="module", params=["processes", "folder", "ray", "dask"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The engine on two workers, or a cluster of two nodes with one core each."""
    with ExitStack() as ends:
        if request.param == "processes":
            yield engine_of(2)
        elif request.param == "folder":
            folder = tmp_path_factory.mktemp("shared") / "tasks"
            for _ in range(1 + MAX_KILLS):  # a killed one does not come back
                command = [sys.executable, "-m", "interfere", "work", str(folder), "--idle-s", "900"]
                worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                ends.callback(worker.wait)
                ends.callback(worker.kill)
            yield in_folder(folder, lease_s=6.0)  # of a killed one its task is given back sooner than by default
        elif request.param == "ray":
            pytest.importorskip("ray", reason="the extra ray is not installed")
            from ray.cluster_utils import Cluster

            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
            ends.callback(cluster.shutdown)
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            yield engine_of(1, f"ray:{cluster.address}")
        else:
            distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
            local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
            cluster = ends.enter_context(distributed.LocalCluster(**local))
            yield engine_of(1, f"dask:{cluster.scheduler_address}")


# --- what one process gives, computed once for all engines ------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return build_dataset([load_table("cpu")], FeatureEncoder())


@pytest.fixture(scope="module")
def replayed_here() -> str:
    return without_times(ran(inputs(), tasks()))


@pytest.fixture(scope="module")
def evaluated_here(dataset: Dataset) -> list[Evaluation]:
    return list(evaluate_models(dataset, MODELS))


def trained(work: Path, engine: Engine | None) -> TrainingResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "0")  # of the manifest
        return train([shipped_table("cpu")], work, models=TRAINED, engine=engine)


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return trained(tmp_path_factory.mktemp("here"), None)


# --- the engines ------------------------------------------------------------------------------------------------------


def test_a_cluster_gives_the_results_of_one_process_also_where_a_worker_is_killed(
    engine: Engine, tmp_path: Path
) -> None:
    def run(engine_: Engine) -> str:
        runner = Runner(engine=engine_)
        return plain(runner.run(count_after_kills, tmp_path, TASKS, digest=lambda: "", describe=lambda *_: ""))

    here = Runner(engine=in_this_process).run(count, 0, TASKS, digest=lambda: "", describe=lambda *_: "")
    assert run(engine) == plain(here)
    assert (tmp_path / "killed").exists()
    assert run(engine) == plain(here)


def with_a_kill(engine: Engine, marks: Path) -> Engine:
    """The engine, of which one worker is killed in the fourth task that is begun."""
    return lambda work, made, wanted: engine(work_after_a_kill, (work, made, marks), wanted)


def test_a_sweep_is_that_of_one_process_also_where_a_worker_is_killed(
    engine: Engine, replayed_here: str, tmp_path: Path
) -> None:
    made = inputs()
    assert without_times(ran(made, tasks(), Runner(engine=engine))) == replayed_here
    assert without_times(ran(made, tasks(), Runner(engine=with_a_kill(engine, tmp_path)))) == replayed_here
    assert (tmp_path / "killed").exists()


def test_folds_and_scores_are_those_of_one_process(
    engine: Engine, dataset: Dataset, evaluated_here: list[Evaluation]
) -> None:
    there = evaluate_models(dataset, MODELS, runner=Runner(engine=engine))
    for one, other in zip(evaluated_here, there, strict=True):
        assert one.scores == other.scores
        assert (one.predicted_log == other.predicted_log).all()


def test_a_training_publishes_the_model_of_one_process_also_where_a_worker_is_killed(
    engine: Engine, trained_here: TrainingResult, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    there, killed = trained(tmp_path / "there", engine), trained(tmp_path / "kill", with_a_kill(engine, marks))
    assert (marks / "killed").exists()
    here = trained_here
    for other in (there, killed):
        assert (other.champion, other.version, other.scores) == (here.champion, here.version, here.scores)
        for file in here.folder.iterdir():
            assert (other.folder / file.name).read_bytes() == file.read_bytes(), file.name


def test_an_error_of_a_task_is_raised_as_it_was(engine: Engine) -> None:
    with pytest.raises(UnfitError, match=r"(?s)too few rows: 0.*measure more"):
        list(engine(refuse, 0, TASKS[:1]))
