"""ONNX graphs with the inputs, outputs and metadata that the server expects: built, exported from torch, and run."""

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.graphs import select_feeds
from interfere.training.dataset import PairRows

OPSET = 18  # oldest that torch exports; onnxruntime ≥ 1.22 runs it
ML_OPSET = 3  # TreeEnsembleRegressor as the LightGBM converter writes it
IR_VERSION = 10  # what onnxruntime 1.22 reads at most

Shape = Sequence[str | int | None]


def pair_inputs(*, domain: bool = False) -> dict[str, tuple[type[np.generic], Shape]]:
    """Return names, types and shapes of the inputs of `pair.onnx`; `domain` adds the input of per-domain terms."""
    return {
        "pairs": (np.float32, ["p", "f"]),
        "victim": (np.int64, ["p"]),
        "neighbour": (np.int64, ["p"]),
        **({"domain": (np.int64, ["p"])} if domain else {}),
    }


def matrix_inputs(*, domain: bool = False) -> dict[str, tuple[type[np.generic], Shape]]:
    """Return names, types and shapes of the inputs of `matrix.onnx`, where all pairs have one domain."""
    return {
        "victims": (np.float32, ["v", "F"]),
        "victim_id": (np.int64, ["v"]),
        "neighbours": (np.float32, ["n", "F"]),
        "neighbour_id": (np.int64, ["n"]),
        **({"domain": (np.int64, [1])} if domain else {}),
    }


def serialise_graph(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[type[np.generic], Shape]],
    outputs: Mapping[str, Shape],
    constants: Mapping[str, NDArray[Any]],
) -> bytes:
    """Return these nodes as a serialised, checked ONNX model with float32 outputs."""
    import onnx
    import onnx.helper as h
    from onnx import numpy_helper

    graph = h.make_graph(
        list(nodes),
        "interfere",
        [
            h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
            for name, (dtype, shape) in inputs.items()
        ],
        [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape)) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [h.make_opsetid("", OPSET), h.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = h.make_model(graph, opset_imports=opsets, producer_name="interfere", ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def join_graphs(
    graphs: Mapping[str, bytes],
    nodes: Sequence[Any],
    outputs: Mapping[str, Shape],
    *,
    constants: Mapping[str, NDArray[Any]] | None = None,
    inputs: Mapping[str, tuple[type[np.generic], Shape]] | None = None,
) -> bytes:
    """Return one ONNX model of several graphs on shared inputs, followed by `nodes` that combine their outputs.

    `graphs` maps a prefix to a graph; the prefix is added to all names of the graph except inputs. `inputs` are further
    inputs that `nodes` read and the graphs may lack.
    """
    import onnx
    import onnx.helper as h
    from onnx import compose, numpy_helper

    models = [
        compose.add_prefix(onnx.load_from_string(graph), prefix, rename_inputs=False)
        for prefix, graph in graphs.items()
    ]
    found = {value.name: value for model in models for value in model.graph.input}
    for name, (dtype, shape) in (inputs or {}).items():
        found.setdefault(name, h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)))
    opsets = {opset.domain: opset for model in models for opset in model.opset_import}
    assert all(opset.version == opsets[opset.domain].version for model in models for opset in model.opset_import)
    graph = h.make_graph(
        [*(node for model in models for node in model.graph.node), *nodes],
        "interfere",
        list(found.values()),
        [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape)) for name, shape in outputs.items()],
        [
            *(constant for model in models for constant in model.graph.initializer),
            *(numpy_helper.from_array(value, name) for name, value in (constants or {}).items()),
        ],
    )
    model = h.make_model(graph, opset_imports=list(opsets.values()), producer_name="interfere", ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def share_equal_constants(graph: bytes) -> bytes:
    """Return the graph with equal constants merged, since torch's exporter repeats a constant at every use."""
    import onnx

    model = onnx.load_from_string(graph)
    kept: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    for constant in model.graph.initializer:
        name, constant.name = constant.name, ""
        renamed[name] = kept.setdefault(constant.SerializeToString(deterministic=True), name)
        constant.name = name
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    unique = [constant for constant in model.graph.initializer if renamed[constant.name] == constant.name]
    del model.graph.initializer[:]
    model.graph.initializer.extend(unique)
    return bytes(model.SerializeToString(deterministic=True))


def stamp_fingerprint(graph: bytes, fingerprint: str) -> bytes:
    """Return the graph with the encoder's fingerprint as metadata, without the exporting machine's paths."""
    import onnx

    model = onnx.load_from_string(graph)
    onnx.helper.set_model_props(model, {"fingerprint": fingerprint})
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    model.graph.ClearField("metadata_props")
    return bytes(model.SerializeToString(deterministic=True))


def run_pair_graph(session: Any, rows: PairRows) -> NDArray[np.float64]:
    """Return the log slowdowns of a pair graph, float64[p]."""
    feeds = {"pairs": rows.pairs, "victim": rows.victim, "neighbour": rows.neighbour, "domain": rows.domain}
    return np.asarray(session.run(["log_slowdown"], select_feeds(session, feeds))[0], dtype=np.float64)


def run_matrix_graph(
    session: Any,
    victims: NDArray[np.float32],
    victim_id: NDArray[np.int64],
    neighbours: NDArray[np.float32],
    neighbour_id: NDArray[np.int64],
    domain: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log slowdowns of victims beside neighbours and of neighbours beside victims, float64[v, n] each."""
    feeds = {
        "victims": victims,
        "victim_id": victim_id,
        "neighbours": neighbours,
        "neighbour_id": neighbour_id,
        "domain": np.array([domain], dtype=np.int64),
    }
    log_victim, log_neighbour = session.run(["log_victim", "log_neighbour"], select_feeds(session, feeds))
    return np.asarray(log_victim, dtype=np.float64), np.asarray(log_neighbour, dtype=np.float64)


MATRIX_OUTPUTS = ("log_victim", "log_neighbour")


def pair_module_to_onnx(module: Any, columns: int, outputs: list[str], *, domain: bool = True) -> bytes:
    """Return the `pair.onnx` of a torch module with the arguments pairs, victim, neighbour and optionally domain."""
    import torch

    names = ["victim", "neighbour", *(["domain"] if domain else [])]
    inputs = {"pairs": torch.zeros(3, columns), **{name: torch.zeros(3, dtype=torch.int64) for name in names}}
    p = torch.export.Dim("p", min=1)
    return _export(module, inputs, {name: {0: p} for name in inputs}, outputs)


def matrix_module_to_onnx(
    module: Any, columns: int, outputs: Sequence[str] = MATRIX_OUTPUTS, *, domain: bool = True
) -> bytes:
    """Return `matrix.onnx` of a module with arguments victims, victim_id, neighbours, neighbour_id, maybe domain."""
    import torch

    inputs = {
        "victims": torch.zeros(3, columns),
        "victim_id": torch.zeros(3, dtype=torch.int64),
        "neighbours": torch.zeros(4, columns),
        "neighbour_id": torch.zeros(4, dtype=torch.int64),
        **({"domain": torch.zeros(1, dtype=torch.int64)} if domain else {}),
    }
    v, n = torch.export.Dim("v", min=1), torch.export.Dim("n", min=1)
    dynamic = {"victims": {0: v}, "victim_id": {0: v}, "neighbours": {0: n}, "neighbour_id": {0: n}, "domain": {}}
    return _export(module, inputs, {name: dynamic[name] for name in inputs}, list(outputs))


def _export(module: Any, inputs: dict[str, Any], dynamic: dict[str, Any], outputs: list[str]) -> bytes:
    """Return the module as a serialised ONNX graph, with the exporter's warnings and log lines silenced."""
    import torch

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                (),
                kwargs=inputs,
                dynamic_shapes=dynamic,
                output_names=outputs,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    program.save(buffer)
    return buffer.getvalue()
