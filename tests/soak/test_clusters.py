"""Ray and Dask with two nodes on this machine: the results of one process, also where a worker is killed midway."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interfere import load_table
from interfere.errors import UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.study.engine import Engine, Runner, in_this_process
from interfere.study.engines.catalogue import engine_of
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import select_models
from tests.study.counting_tasks import Count, count, count_after_kills, refuse
from tests.study.test_engine import plain
from tests.study.test_replays import inputs, ran, tasks, without_times

pytestmark = pytest.mark.timeout(900)
TASKS = [Count(up_to=k) for k in range(16)]


@pytest.fixture(scope="module", params=["ray", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine on a cluster of two nodes with one core each."""
    with ExitStack() as ends:
        if request.param == "ray":
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


def test_a_sweep_is_that_of_one_process(engine: Engine) -> None:
    made = inputs()
    assert without_times(ran(made, tasks(), Runner(engine=engine))) == without_times(ran(made, tasks()))


def test_folds_and_scores_are_those_of_one_process(engine: Engine) -> None:
    dataset = build_dataset([load_table("cpu")], FeatureEncoder())
    models = select_models("gbdt,mlp,gp,mean")
    here = evaluate_models(dataset, models)
    there = evaluate_models(dataset, models, runner=Runner(engine=engine))
    for one, other in zip(here, there, strict=True):
        assert one.scores == other.scores
        assert (one.predicted_log == other.predicted_log).all()


def test_an_error_of_a_task_is_raised_as_it_was(engine: Engine) -> None:
    with pytest.raises(UnfitError, match=r"(?s)too few rows: 0.*measure more"):
        list(engine(refuse, 0, TASKS[:1]))
