"""The matrix graph of trees that read columns of single jobs only: every leaf is a box of victims times a box of
neighbours.

A pair reaches a leaf exactly when its victim meets the leaf's conditions on victim columns and its neighbour meets the
leaf's conditions on neighbour columns. With A[l, i] = 1 where victim i meets the victim conditions of leaf l, B[l, j]
likewise for neighbour j, and leaf values w, the sum over all trees is

    log ŝ[i beside j] = Σ_l  w[l] · A[l, i] · B[l, j],

one product of matrices, exact. Thresholds are float32 as in `pair.onnx`, so that both graphs take the same branches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.training.models.onnx_graph import matrix_inputs, serialise_graph

ALWAYS = (0, np.float32(np.inf))  # a condition that every job meets: pads leaves with few conditions

Condition = tuple[int, np.float32, bool]  # (job column, threshold, whether the column must be ≤ the threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFactors:
    """All `K` leaves of the trees over `S` distinct splits; a literal is a split (k) or its negation (S + k)."""

    column: NDArray[np.int32]  # int32[S]: job column of each split
    threshold: NDArray[np.float32]  # float32[S]
    victim: NDArray[np.int32]  # int32[D, K]: literals that the victim of a pair in the leaf meets
    neighbour: NDArray[np.int32]  # int32[D', K]
    value: NDArray[np.float32]  # float32[K]

    def matrix_graph(self, absent: np.float32) -> bytes:
        """Return the serialised `matrix.onnx`; absent features are read as the value `absent`."""
        import onnx.helper as h

        nodes = [
            *self._membership("victims", "victim"),
            *self._membership("victims", "neighbour"),
            *self._membership("neighbours", "victim"),
            *self._membership("neighbours", "neighbour"),
            h.make_node("Transpose", ["victims_as_victim"], ["victim_rows"], perm=[1, 0]),
            h.make_node("Transpose", ["victims_as_neighbour"], ["neighbour_rows"], perm=[1, 0]),
            h.make_node("MatMul", ["victim_rows", "neighbours_as_neighbour"], ["log_victim"]),
            h.make_node("MatMul", ["neighbour_rows", "neighbours_as_victim"], ["log_neighbour"]),
        ]
        shape: list[Any] = ["v", "n"]
        constants: dict[str, NDArray[Any]] = {
            "absent": np.array(absent),
            "column": self.column,
            "threshold": self.threshold[:, None],
            "value": self.value[:, None],
        }
        for role in ("victim", "neighbour"):
            literals: NDArray[np.int32] = getattr(self, role)
            constants |= {f"{role}_literals_{d}": row.astype(np.uint16) for d, row in enumerate(literals)}
        return serialise_graph(nodes, matrix_inputs(), {"log_victim": shape, "log_neighbour": shape}, constants)

    def _membership(self, jobs: str, role: str) -> list[Any]:
        """Return ONNX nodes of float32[K, n]: 1 where a job meets a leaf's conditions for its role, else 0.

        For the role of the victim, the values are multiplied by the leaf values.
        """
        import onnx
        import onnx.helper as h

        name, depth = f"{jobs}_as_{role}", len(getattr(self, role))
        nodes = [] if role == "neighbour" else self._literals(jobs)
        for d in range(depth):
            literals = f"{name}_literals_{d}"  # stored in two bytes each
            nodes.append(h.make_node("Cast", [f"{role}_literals_{d}"], [literals], to=onnx.TensorProto.INT32))
            nodes.append(h.make_node("Gather", [f"{jobs}_literals", literals], [f"{name}_{d}"], axis=0))
            if d:
                nodes.append(h.make_node("And", [f"{name}_met_{d - 1}", f"{name}_{d}"], [f"{name}_met_{d}"]))
            else:
                nodes.append(h.make_node("Identity", [f"{name}_0"], [f"{name}_met_0"]))
        met = f"{name}_met_{depth - 1}"
        if role == "neighbour":
            return [*nodes, h.make_node("Cast", [met], [name], to=onnx.TensorProto.FLOAT)]
        nodes.append(h.make_node("Cast", [met], [f"{name}_met"], to=onnx.TensorProto.FLOAT))
        return [*nodes, h.make_node("Mul", [f"{name}_met", "value"], [name])]

    def _literals(self, jobs: str) -> list[Any]:
        """Return ONNX nodes of bool[2S, n]: the value of every split and its negation for each job."""
        import onnx.helper as h

        return [
            h.make_node("IsNaN", [jobs], [f"{jobs}_missing"]),
            h.make_node("Where", [f"{jobs}_missing", "absent", jobs], [f"{jobs}_filled"]),
            h.make_node("Transpose", [f"{jobs}_filled"], [f"{jobs}_columns"], perm=[1, 0]),
            h.make_node("Gather", [f"{jobs}_columns", "column"], [f"{jobs}_of_splits"], axis=0),
            h.make_node("LessOrEqual", [f"{jobs}_of_splits", "threshold"], [f"{jobs}_below"]),
            h.make_node("Not", [f"{jobs}_below"], [f"{jobs}_above"]),
            h.make_node("Concat", [f"{jobs}_below", f"{jobs}_above"], [f"{jobs}_literals"], axis=0),
        ]


def factorise(booster: Any, job_columns: int) -> TreeFactors:
    """Return the leaves of a LightGBM model, in tree order, over `job_columns` of the victim and of the neighbour."""
    # 1. List the leaves with the conditions on either job.
    leaves: list[tuple[float, list[Condition], list[Condition]]] = []

    def collect(node: dict[str, Any], victim: list[Condition], neighbour: list[Condition]) -> None:
        if "threshold" not in node:
            leaves.append((float(node["leaf_value"]), victim, neighbour))
            return
        side, column = divmod(int(node["split_feature"]), job_columns)
        for child, is_below in (("left_child", True), ("right_child", False)):
            condition = (column, np.float32(node["threshold"]), is_below)
            collect(
                node[child],
                [*victim, condition] if side == 0 else victim,
                [*neighbour, condition] if side == 1 else neighbour,
            )

    for tree in booster.dump_model()["tree_info"]:
        collect(tree["tree_structure"], [], [])
    # 2. Number the distinct splits; the first is met by every job.
    conditions = [condition for _, victim, neighbour in leaves for condition in (*victim, *neighbour)]
    splits = [ALWAYS, *dict.fromkeys((column, threshold) for column, threshold, _ in conditions)]
    assert 2 * len(splits) <= np.iinfo(np.uint16).max, "literals are stored in two bytes"
    place = {split: k for k, split in enumerate(splits)}

    def literals(sides: list[list[Condition]]) -> NDArray[np.int32]:
        padded = np.zeros((max(1, *(len(side) for side in sides)), len(sides)), dtype=np.int32)
        for k, side in enumerate(sides):
            for d, (column, threshold, is_below) in enumerate(side):
                padded[d, k] = place[column, threshold] + (0 if is_below else len(splits))
        return padded

    return TreeFactors(
        column=np.array([column for column, _ in splits], dtype=np.int32),
        threshold=np.array([threshold for _, threshold in splits], dtype=np.float32),
        victim=literals([victim for _, victim, _ in leaves]),
        neighbour=literals([neighbour for _, _, neighbour in leaves]),
        value=np.array([value for value, _, _ in leaves], dtype=np.float32),
    )
