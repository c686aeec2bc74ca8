"""ONNX graphs with the inputs, outputs and metadata that the server expects: built, exported from torch, and run."""

import io
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.graphs import select_feeds
from interfere.training.dataset import PairRows

OPSET = 18  # oldest that torch exports; onnxruntime ≥ 1.22 runs it
ML_OPSET = 3  # TreeEnsembleRegressor as the LightGBM converter writes it
IR_VERSION = 10  # what onnxruntime 1.22 reads at most

Inputs = Mapping[str, tuple[type[np.generic], Sequence[str | int]]]
"""Name → type and shape."""
PAIR_INPUTS: Inputs = {
    "pairs": (np.float32, ("p", "f")),
    "victim": (np.int64, ("p",)),
    "neighbour": (np.int64, ("p",)),
    "domain": (np.int64, ("p",)),
}
MATRIX_INPUTS: Inputs = {  # all pairs of a matrix have one domain
    "victims": (np.float32, ("v", "F")),
    "victim_id": (np.int64, ("v",)),
    "neighbours": (np.float32, ("n", "F")),
    "neighbour_id": (np.int64, ("n",)),
    "domain": (np.int64, (1,)),
}


class Graph:
    """An ONNX graph under construction, with the inputs of `pair.onnx` or `matrix.onnx`.

    A call adds a node, and returns the name of its output. Operands are such names, names of inputs, or arrays, which
    become constants.
    """

    def __init__(self, inputs: Inputs) -> None:
        """Start a graph without nodes. Of the inputs, `domain` is left out where no node reads it."""
        import onnx.helper as h

        self._inputs = {
            name: h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
            for name, (dtype, shape) in inputs.items()
        }
        self._output_shape = ["p"] if inputs is PAIR_INPUTS else ["v", "n"]
        self._opsets = {"": OPSET, "ai.onnx.ml": ML_OPSET}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._constant_names: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def __call__(self, operator: str, *operands: str | NDArray[Any], **attributes: Any) -> str:
        """Add a node of this operator."""
        import onnx.helper as h

        output = f"{operator}_{len(self._nodes)}"
        names = [each if isinstance(each, str) else self._constant(each) for each in operands]
        self._nodes.append(h.make_node(operator, names, [output], **attributes))
        return output

    def lookup(self, table: NDArray[Any], *indices: str) -> str:
        """Add the nodes of `table[indices]`; the indices broadcast."""
        place = indices[0]
        for width, index in zip(table.shape[1:], indices[1:], strict=True):
            place = self("Add", self("Mul", place, np.array([width], dtype=np.int64)), index)
        return self("Gather", np.ascontiguousarray(table).reshape(-1), place)

    def as_rows(self, values: str) -> str:
        """Add a node that makes values [v] a column [v, 1], so that they vary along the rows of a matrix."""
        return self("Unsqueeze", values, np.array([1], dtype=np.int64))

    def add_nodes(self, nodes: Iterable[Any]) -> None:
        """Add nodes that another program made."""
        self._nodes.extend(nodes)

    def include(self, prefix: str, graph: bytes) -> None:
        """Add all of another graph. Its inputs keep their names; the prefix is put before all other names."""
        import onnx
        from onnx import compose

        model = compose.add_prefix(onnx.load_from_string(graph), prefix, rename_inputs=False)
        assert all(self._opsets.setdefault(each.domain, each.version) == each.version for each in model.opset_import)
        self._inputs |= {value.name: value for value in model.graph.input if value.name not in self._inputs}
        self._nodes.extend(model.graph.node)
        self._constants.extend(model.graph.initializer)

    def serialised(self, outputs: Mapping[str, str]) -> bytes:
        """Return the checked ONNX model. `outputs`: name of each float32 output → name of the node's output."""
        import onnx
        import onnx.helper as h

        read = {name for node in self._nodes for name in node.input}
        renamed = {value: name for name, value in outputs.items()}
        for node in self._nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        graph = h.make_graph(
            self._nodes,
            "interfere",
            [value for name, value in self._inputs.items() if name != "domain" or name in read],
            [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self._output_shape) for name in outputs],
            self._constants,
        )
        opsets = [h.make_opsetid(domain, number) for domain, number in self._opsets.items()]
        model = h.make_model(graph, opset_imports=opsets, producer_name="interfere", ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _constant(self, value: NDArray[Any]) -> str:
        """Return the name of a constant; equal arrays are one constant."""
        from onnx import numpy_helper

        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constant_names:
            self._constant_names[key] = f"constant_{len(self._constant_names)}"
            self._constants.append(numpy_helper.from_array(array, self._constant_names[key]))
        return self._constant_names[key]


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
