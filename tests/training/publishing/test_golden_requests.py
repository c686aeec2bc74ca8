"""A folder whose graphs do not answer as the fitted model is not published."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import RequestKind, read_goldens
from interfere.training.dataset import Dataset, read_source_tables
from interfere.training.evaluation.candidates import REQUEST, Candidates
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import MODELS
from interfere.training.publishing.publication import Publication, build_publication, publish


@pytest.fixture
def publication(small_dataset: Dataset, small_folder: Path) -> Publication:
    evaluations = [replace(one, model="additive") for one in evaluate_models(small_dataset, [MODELS["mean"]])]
    candidates = Candidates(
        dataset=small_dataset,
        settings=MODELS,
        fitted={"additive": MODELS["additive"].fit(small_dataset, 0)},
        evaluations=tuple(evaluations),
        champion="additive",
        selected_by=REQUEST,
        seed=0,
    )
    return build_publication(candidates, read_source_tables([small_folder]), FeatureEncoder())


def test_unmeasured_pairs_are_asked_where_there_are_any(publication: Publication, small_dataset: Dataset) -> None:
    names, rows = small_dataset.workloads, small_dataset.rows
    measured = {(names[i - 1], names[j - 1]) for i, j in zip(rows.victim, rows.neighbour, strict=True)}
    (golden,) = (each for each in publication.goldens if each.request.name == "list")
    known = [job if isinstance(job, str) else "" for job in golden.request.jobs]
    asked = {(known[i], known[j]) for i, j in zip(golden.request.victims, golden.request.neighbours, strict=True)}
    assert {name for pair in asked for name in pair} >= set(names)
    for name in names:
        if any((name, other) not in measured for other in names if other != name):
            assert any(pair[0] == name and pair[1] and pair not in measured for pair in asked), name


def test_equal_models_write_equal_goldens(publication: Publication, tmp_path: Path) -> None:
    assert publish(tmp_path / "a", publication) == publish(tmp_path / "b", publication)
    (goldens, stated), (again, _) = read_goldens(tmp_path / "a"), read_goldens(tmp_path / "b")
    assert stated.least < 1.0 < stated.most
    assert [each.request for each in goldens] == [each.request for each in again]
    for written, made in zip(goldens, publication.goldens, strict=True):
        for name, values in made.expected.items():
            np.testing.assert_allclose(written.expected[name], values, rtol=1e-8)
    assert {each.request.kind for each in goldens} == set(RequestKind)


def test_a_graph_that_differs_from_the_fitted_model_is_not_published(publication: Publication, tmp_path: Path) -> None:
    version = publish(tmp_path / "model", publication)
    graph = onnx.load_from_string(publication.pair_graph)
    for tensor in graph.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.01), tensor.name))
    with pytest.raises(ModelError, match="golden request"):
        publish(tmp_path / "model", replace(publication, pair_graph=graph.SerializeToString()))
    assert version in (tmp_path / "model" / "manifest.json").read_text()  # the folder of before stays
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
