"""Exports torch modules as ONNX pair graphs and matrix graphs."""

import io
import logging
import warnings
from collections.abc import Sequence
from typing import Any

from interfere.training.models.onnx_graph import OPSET

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
