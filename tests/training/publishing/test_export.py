"""Every model is exported as a graph that equals it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import open_session
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.catalogue import MODELS
from interfere.training.models.completed import ExportedGraph, export_matrix_graph, export_pair_graph, random_jobs
from interfere.training.models.onnx_graph import run_matrix_graph
from interfere.training.models.protocols import FittedModel


@pytest.fixture(scope="module")
def fitted(dataset: Dataset) -> Mapping[str, FittedModel]:
    return {name: settings.fit(dataset, 0) for name, settings in MODELS.items()}


@pytest.fixture(scope="module")
def exported(
    fitted: Mapping[str, FittedModel], dataset: Dataset, encoder: FeatureEncoder
) -> Mapping[str, ExportedGraph]:
    return {name: export_pair_graph(model, dataset, encoder) for name, model in fitted.items()}


@pytest.fixture(scope="module")
def matrices(
    fitted: Mapping[str, FittedModel], dataset: Dataset, encoder: FeatureEncoder
) -> Mapping[str, ExportedGraph]:
    return {name: export_matrix_graph(fitted[name], dataset, encoder) for name in ("mean", "additive", "mlp")}


@pytest.mark.parametrize("name", MODELS)
def test_pair_graphs_equal_their_models(
    name: str, exported: Mapping[str, ExportedGraph], dataset: Dataset, encoder: FeatureEncoder
) -> None:
    made = exported[name]
    assert made.max_error <= 1e-5
    assert made.rows_compared >= len(dataset) + 1024
    graph = onnx.load_from_string(made.content)
    assert {p.key: p.value for p in graph.metadata_props} == {"fingerprint": encoder.fingerprint}
    domain = ["domain"] if name not in ("gbdt", "mlp") else []
    assert [i.name for i in graph.graph.input] == ["pairs", "victim", "neighbour", *domain]
    assert [o.name for o in graph.graph.output] == ["log_slowdown"]


@pytest.mark.parametrize("name", ["mean", "additive", "mlp"])
def test_matrix_graphs_equal_their_models_in_both_directions(
    name: str, matrices: Mapping[str, ExportedGraph], dataset: Dataset, encoder: FeatureEncoder
) -> None:
    made = matrices[name]
    assert made.max_error <= 1e-5
    graph = onnx.load_from_string(made.content)
    assert {p.key: p.value for p in graph.metadata_props} == {"fingerprint": encoder.fingerprint}
    assert [o.name for o in graph.graph.output] == ["log_victim", "log_neighbour"]
    jobs, ids = random_jobs(dataset, 3)
    session = open_session(made.content)
    for v, n in ((1, 1), (1, 5), (5, 1)):  # one job is not a special case
        ahead, back = run_matrix_graph(session, jobs[:v], ids[:v], jobs[:n], ids[:n], 1)
        assert ahead.shape == back.shape == (v, n)


def test_a_graph_carries_no_trace_of_the_machine_it_was_made_on(
    exported: Mapping[str, ExportedGraph], matrices: Mapping[str, ExportedGraph]
) -> None:
    for content in (exported["mlp"].content, matrices["mlp"].content):
        assert b"site-packages" not in content
        assert b".py" not in content


@dataclass(frozen=True)
class Impostor:
    """Exports another model than the one that predicts."""

    real: FittedModel
    other: FittedModel
    name: str = "impostor"

    def predict(self, rows: PairRows) -> np.ndarray:
        return self.real.predict(rows)

    def to_onnx(self) -> bytes:
        return self.other.to_onnx()

    def to_matrix_onnx(self) -> bytes:
        return self.other.to_matrix_onnx()


def test_the_parity_check_refuses_a_graph_of_another_model(
    fitted: Mapping[str, FittedModel], dataset: Dataset, encoder: FeatureEncoder
) -> None:
    false = Impostor(real=fitted["additive"], other=fitted["mean"])
    with pytest.raises(ModelError, match="nothing was published"):
        export_pair_graph(false, dataset, encoder)
    with pytest.raises(ModelError, match=r"matrix\.onnx of impostor"):
        export_matrix_graph(false, dataset, encoder)


def test_the_parity_check_detects_swapped_directions(
    fitted: Mapping[str, FittedModel], dataset: Dataset, encoder: FeatureEncoder
) -> None:
    turned = onnx.load_from_string(fitted["additive"].to_matrix_onnx())
    for node in turned.graph.node:
        for k, name in enumerate(node.output):
            node.output[k] = {"log_victim": "log_neighbour", "log_neighbour": "log_victim"}.get(name, name)

    @dataclass(frozen=True)
    class Turned(Impostor):
        def to_matrix_onnx(self) -> bytes:
            return turned.SerializeToString()

    with pytest.raises(ModelError):
        export_matrix_graph(Turned(real=fitted["additive"], other=fitted["additive"]), dataset, encoder)
