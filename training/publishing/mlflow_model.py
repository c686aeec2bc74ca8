"""Logs exported pair graphs as MLflow models, with signature and input example.

`mlflow.pyfunc.load_model` and `mlflow.onnx.load_model` both load them. They read rows with completed facts, as the
server's graphs do.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.completed import exported_form
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.tracking import Run

MODEL_ARTIFACT = "model"  # name of the logged model in its run
EXAMPLE_ROWS = 2  # of the input example

Example = Mapping[str, NDArray[Any]]  # one array for each input that a pair graph may have


def input_example(model: FittedModel, dataset: Dataset) -> Example:
    """The first training rows, as the exported graph of the model reads them."""
    _, read_rows = exported_form(model, dataset)
    rows = read_rows.rows.take(np.arange(EXAMPLE_ROWS))
    return {field: getattr(rows, field) for field in PairRows.__dataclass_fields__}


def log_pair_graph(run: Run, graph: bytes, example: Example) -> Any:
    """Log `pair.onnx` as the MLflow model of a run; returns MLflow's description of it."""
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    model = onnx.load_from_string(graph)
    inputs = {value.name: example[value.name] for value in model.graph.input}
    return run.mlflow.onnx.log_model(
        model,
        name=MODEL_ARTIFACT,
        signature=ModelSignature(
            inputs=Schema([TensorSpec(value.dtype, (-1, *value.shape[1:]), name) for name, value in inputs.items()]),
            outputs=Schema([TensorSpec(np.dtype(np.float32), (-1,), "log_slowdown")]),
        ),
        input_example=inputs,
        pip_requirements=["onnxruntime", "numpy"],  # given, so that MLflow does not start a process to infer them
        save_as_external_data=False,
    )
