"""Gradient-boosted trees (LightGBM) on float32 pair features, exported so that every row takes the same branches.

An absent feature (NaN) is replaced by `ABSENT` before the trees read it, in training and in the graph: LightGBM's own
handling of NaN depends on the training values of each column, and its ONNX converter does not carry all of it over.

Thresholds are float64 midpoints, but the graph stores float32. Rounded to nearest, a threshold between two adjacent
floats can become the upper one and send its row down the other branch. So each threshold is rounded down to the largest
float32 not above it: for float32 x, x ≤ t exactly when x ≤ floor32(t). LightGBM's own threshold just below zero is
lowered by one further step, since LightGBM reads |x| ≤ 1e-35 as 0, which lies above that threshold.

The matrix graph exists for trees that read columns of single jobs only: every leaf is a box of victims times a box of
neighbours. A pair reaches a leaf exactly when its victim meets the leaf's conditions on victim columns and its
neighbour meets those on neighbour columns. With A[l, i] = 1 where victim i meets the victim conditions of leaf l,
B[l, j] likewise for neighbour j, and leaf values w, the sum over all trees is one exact product of matrices:

    log ŝ[i beside j] = Σ_l  w[l] · A[l, i] · B[l, j]
"""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.onnx_graph import MATRIX_INPUTS, PAIR_INPUTS, Graph

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
        graph = Graph(MATRIX_INPUTS)
        members = {
            (jobs, role): self._members(graph, literals, role)
            for jobs in ("victims", "neighbours")
            for literals in [self._literals(graph, jobs, absent)]
            for role in ("victim", "neighbour")
        }

        def product(role: str, other_role: str) -> str:
            rows = graph("Transpose", members["victims", role], perm=[1, 0])
            return graph("MatMul", rows, members["neighbours", other_role])

        return graph.serialised(
            {"log_victim": product("victim", "neighbour"), "log_neighbour": product("neighbour", "victim")}
        )

    def _members(self, graph: Graph, literals: str, role: str) -> str:
        """Add the nodes of float32[K, n]: 1 where a job meets a leaf's conditions for its role, else 0.

        For the role of the victim, the values are multiplied by the leaf values.
        """
        import onnx

        met = ""
        for conditions in getattr(self, role):
            index = graph("Cast", conditions.astype(np.uint16), to=onnx.TensorProto.INT32)  # stored in two bytes each
            holds = graph("Gather", literals, index, axis=0)
            met = graph("And", met, holds) if met else holds
        inside = graph("Cast", met, to=onnx.TensorProto.FLOAT)
        return graph("Mul", inside, self.value[:, None]) if role == "victim" else inside

    def _literals(self, graph: Graph, jobs: str, absent: np.float32) -> str:
        """Add the nodes of bool[2S, n]: the value of every split and its negation for each job."""
        filled = graph("Where", graph("IsNaN", jobs), np.array(absent), jobs)
        of_splits = graph("Gather", graph("Transpose", filled, perm=[1, 0]), self.column, axis=0)
        below = graph("LessOrEqual", of_splits, self.threshold[:, None])
        return graph("Concat", below, graph("Not", below), axis=0)


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


MAX_SPLITS_CHECKED = 4000
ABSENT = np.float32(-1e6)  # below every feature, which are logarithms, shares and their sums
LIGHTGBM_ZERO = np.float32(1e-35)  # kZeroThreshold, include/LightGBM/meta.h
THRESHOLD_LINE = re.compile(r"^threshold=(.*)$", re.MULTILINE)
# Byte lengths of the trees, which no longer hold after rounding; LightGBM reads a text without them.
TREE_SIZES_LINE = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)


def floor32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that is not above each value."""
    nearest = values.astype(np.float32)
    return np.where(nearest.astype(np.float64) > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def fill_missing(pairs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32[p, f] with NaN replaced by `ABSENT`."""
    return np.where(np.isnan(pairs), ABSENT, pairs)


def round_thresholds(model_text: str) -> str:
    """Return the LightGBM model text with thresholds rounded down to float32; float32 rows get equal predictions."""

    def round_line(match: re.Match[str]) -> str:
        values = floor32(np.array([float(v) for v in match[1].split()], dtype=np.float64))
        values = np.where(values == -LIGHTGBM_ZERO, np.nextafter(values, np.float32(-np.inf)), values)
        return "threshold=" + " ".join(repr(float(v)) for v in values)

    return THRESHOLD_LINE.sub(round_line, TREE_SIZES_LINE.sub("", model_text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGbdt:
    """Fitted trees as LightGBM's model text, with float64 thresholds."""

    name: str
    model_text: str
    columns: int  # the trees read the first `columns` columns of a pair
    round_on_export: bool = True  # False exports the float64 thresholds as they are: tests show that this fails

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Return predicted log slowdowns, float64[p]."""
        if len(rows) == 0:
            return np.zeros(0)
        filled = fill_missing(rows.pairs[:, : self.columns])
        return np.asarray(_booster(self.model_text).predict(filled, num_threads=1), dtype=np.float64)

    def threshold_rows(self, rows: PairRows) -> PairRows:
        """Return three rows for each split, of at most `MAX_SPLITS_CHECKED` splits, to test the exported graph.

        In each, the split column of a given row is set to the float32 below, next above or nearest to the threshold.
        """
        splits = [split for split in self._splits() if abs(split[1]) < -ABSENT / 2][:MAX_SPLITS_CHECKED]
        if not splits or len(rows) == 0:
            return rows.take(np.zeros(0, dtype=np.int64))
        thresholds = np.array([threshold for _, threshold in splits])
        below, nearest = floor32(thresholds), thresholds.astype(np.float32)
        above = np.nextafter(below, np.float32(np.inf))
        column = np.repeat(np.array([column for column, _ in splits], dtype=np.int64), 3)
        moved = rows.take(np.arange(len(column)) % len(rows))
        pairs = moved.pairs.copy()
        pairs[np.arange(len(column)), column] = np.stack([below, above, nearest], 1).ravel()
        return replace(moved, pairs=pairs)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`: replace absent features, sum the trees, flatten."""
        from onnxmltools.convert import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType

        text = round_thresholds(self.model_text) if self.round_on_export else self.model_text
        graph = Graph(PAIR_INPUTS)
        first, end, axis, flat = (np.array([value], dtype=np.int64) for value in (0, self.columns, 1, -1))
        read = graph("Slice", "pairs", first, end, axis)
        filled = graph("Where", graph("IsNaN", read), np.array(ABSENT), read)
        trees = convert_lightgbm(
            _booster(text), initial_types=[(filled, FloatTensorType([None, self.columns]))], zipmap=False
        ).graph
        assert not trees.initializer, "a regression ensemble keeps its trees in attributes"
        graph.add_nodes(trees.node)
        return graph.serialised({"log_slowdown": graph("Reshape", trees.output[0].name, flat)})

    def factors(self, job_columns: int) -> TreeFactors:
        """Return each leaf as a box of victims times a box of neighbours, for trees over columns of single jobs."""
        assert self.columns == 2 * job_columns, "trees that read no column of the pair"
        return factorise(_booster(round_thresholds(self.model_text)), job_columns)

    def _splits(self) -> list[tuple[int, float]]:
        """Return the distinct (column, threshold) of the inner nodes, in tree order."""
        splits: list[tuple[int, float]] = []

        def collect(node: dict[str, Any]) -> None:
            if "threshold" in node:
                splits.append((int(node["split_feature"]), float(node["threshold"])))
                collect(node["left_child"])
                collect(node["right_child"])

        for tree in _booster(self.model_text).dump_model()["tree_info"]:
            collect(tree["tree_structure"])
        return list(dict.fromkeys(splits))


@dataclass(frozen=True, slots=True, kw_only=True)
class GbdtModel:
    """Settings of the trees: small trees and strong shrinkage, for tables of hundreds to thousands of rows."""

    rounds: int = 400
    learning_rate: float = 0.06
    leaves: int = 16
    min_rows: int = 4  # per leaf
    column_share: float = 0.25
    row_share: float = 0.8
    l2: float = 1.0
    contention: bool = True  # True: the trees read contention columns of the pair; False: they factorise over jobs
    name: ClassVar[str] = "gbdt"

    def fit(self, dataset: Dataset, seed: int) -> FittedGbdt:
        """Fit a fixed number of rounds: with a few hundred rows, early stopping on a held-out group follows noise."""
        import lightgbm

        columns = dataset.rows.pairs.shape[1] if self.contention else 2 * len(dataset.job_columns)
        data = lightgbm.Dataset(
            fill_missing(dataset.rows.pairs[:, :columns]),
            dataset.log_slowdown,
            weight=dataset.weight,
            params={"min_data_in_bin": 1},
        )
        parameters = {
            "objective": "regression",
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": min(self.min_rows, max(1, len(dataset) // 4)),
            "min_sum_hessian_in_leaf": 1e-3,
            "feature_fraction": self.column_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "lambda_l2": self.l2,
            "min_data_in_bin": 1,
            "use_missing": False,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "seed": seed,
            "verbosity": -1,
        }
        booster = lightgbm.train(parameters, data, num_boost_round=self.rounds)
        return FittedGbdt(name=self.name, model_text=booster.model_to_string(), columns=columns)


def trees_of(model: object) -> FittedGbdt | None:
    """Return the trees of a model: itself, or the member of an ensemble; None for a model without trees."""
    if isinstance(model, FittedGbdt):
        return model
    inner = getattr(model, "gbdt", getattr(model, "inner", None))
    return None if inner is None else trees_of(inner)


def _booster(model_text: str) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=model_text)
