"""Gradient-boosted trees on float32 pair features, exported so that every row takes the same branch.

An absent feature (NaN) becomes `ABSENT` before the trees see it, in training and inside the graph alike: LightGBM's own
handling of NaN depends on what each column held in training, and its ONNX converter does not carry all of that over.
Thresholds are float64 midpoints; the graph stores float32. Rounded to nearest, a threshold between two neighbouring
floats can land on the upper one and send its row down the other branch. So each is rounded down to the largest float32
that is not above it: for float32 x, x ≤ t exactly when x ≤ floor32(t). One more step down where t is LightGBM's own
"just below zero": it reads |x| ≤ 1e-35 as 0, which is above that threshold.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from training.dataset import Dataset, Rows
from training.models.onnx_graph import pair_inputs, serialise

ABSENT = np.float32(-1e6)  # below every feature: logs, shares and their sums
LIGHTGBM_ZERO = np.float32(1e-35)  # kZeroThreshold, include/LightGBM/meta.h
THRESHOLDS = re.compile(r"^threshold=(.*)$", re.MULTILINE)
SIZES = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)  # byte lengths of the trees as they were; optional when reading


def floor32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Largest float32 not above each value."""
    near = values.astype(np.float32)
    return np.where(near.astype(np.float64) > values, np.nextafter(near, np.float32(-np.inf)), near)


def filled(pairs: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32[p, f] without NaN."""
    return np.where(np.isnan(pairs), ABSENT, pairs)


def round_thresholds(model_text: str) -> str:
    """The LightGBM model with each threshold rounded down to float32; predicts the same on float32 rows."""

    def rounded(match: re.Match[str]) -> str:
        values = floor32(np.array([float(v) for v in match[1].split()], dtype=np.float64))
        values = np.where(values == -LIGHTGBM_ZERO, np.nextafter(values, np.float32(-np.inf)), values)
        return "threshold=" + " ".join(repr(float(v)) for v in values)

    return THRESHOLDS.sub(rounded, SIZES.sub("", model_text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGbdt:
    """Trees as LightGBM writes them, thresholds as fitted (float64)."""

    name: str
    model_text: str
    columns: int
    rounding: bool = True  # False exports raw thresholds: only to show what the cure cures

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """log slowdown, float64[p]."""
        if len(rows) == 0:
            return np.zeros(0)
        return np.asarray(_booster(self.model_text).predict(filled(rows.pairs), num_threads=1), dtype=np.float64)

    def threshold_rows(self, rows: Rows) -> Rows:
        """For each split (at most 4,000): a given row moved onto the threshold, and one float32 step above it."""
        splits = [s for s in self._splits() if abs(s[1]) < -ABSENT / 2][:4000]
        if not splits or len(rows) == 0:
            return rows.take(np.zeros(0, dtype=np.int64))
        column = np.repeat(np.array([s[0] for s in splits], dtype=np.int64), 3)
        on = floor32(np.array([s[1] for s in splits]))
        near = np.array([s[1] for s in splits]).astype(np.float32)
        moved = rows.take(np.arange(len(column)) % len(rows))
        pairs = moved.pairs.copy()
        pairs[np.arange(len(column)), column] = np.stack([on, np.nextafter(on, np.float32(np.inf)), near], 1).ravel()
        return replace(moved, pairs=pairs)

    def to_onnx(self) -> bytes:
        """Fill what is absent, sum the trees, flatten."""
        import onnx.helper as h
        from onnxmltools.convert import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType

        text = round_thresholds(self.model_text) if self.rounding else self.model_text
        trees = convert_lightgbm(
            _booster(text), initial_types=[("filled", FloatTensorType([None, self.columns]))], zipmap=False
        ).graph
        nodes = [
            h.make_node("IsNaN", ["pairs"], ["missing"]),
            h.make_node("Where", ["missing", "absent", "pairs"], ["filled"]),
            *trees.node,
            h.make_node("Reshape", [trees.output[0].name, "flat"], ["log_slowdown"]),
        ]
        assert not trees.initializer, "a regression ensemble keeps its trees in attributes"
        constants: dict[str, NDArray[Any]] = {"absent": np.array(ABSENT), "flat": np.array([-1], dtype=np.int64)}
        return serialise(nodes, pair_inputs(), {"log_slowdown": ["p"]}, constants)

    def _splits(self) -> list[tuple[int, float]]:
        """(column, threshold) of every inner node, in order."""
        found: list[tuple[int, float]] = []

        def walk(node: dict[str, Any]) -> None:
            if "threshold" in node:
                found.append((int(node["split_feature"]), float(node["threshold"])))
                walk(node["left_child"])
                walk(node["right_child"])

        for tree in _booster(self.model_text).dump_model()["tree_info"]:
            walk(tree["tree_structure"])
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class GbdtModel:
    """Small trees, strong shrinkage: tables here hold hundreds to thousands of rows."""

    rounds: int = 400
    learning_rate: float = 0.06
    leaves: int = 16
    min_rows: int = 4  # per leaf
    column_share: float = 0.25
    row_share: float = 0.8
    l2: float = 1.0
    name: ClassVar[str] = "gbdt"

    def fit(self, dataset: Dataset, seed: int) -> FittedGbdt:
        """Fixed number of rounds: with a few hundred rows the best round of a held-out group is noise."""
        import lightgbm

        data = lightgbm.Dataset(
            filled(dataset.rows.pairs), dataset.log_slowdown, weight=dataset.weight, params={"min_data_in_bin": 1}
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
        return FittedGbdt(name=self.name, model_text=booster.model_to_string(), columns=dataset.rows.pairs.shape[1])


def _booster(model_text: str) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=model_text)
