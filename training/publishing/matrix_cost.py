"""The matrix limit of a model that predicts pair by pair, from what one of its pairs costs.

The estimate is in CPU microseconds of one core, from the size of the model alone, so that equal models state equal
limits on every machine. `tests/bench/test_model_forms.py` compares it with what a pair takes.
"""

from interfere.predict.graphs.matrix_limit import MatrixLimit
from interfere.training.dataset import Dataset
from interfere.training.evaluation.feature_contributions import trees_of
from interfere.training.models.completed import exported_form
from interfere.training.models.protocols import FittedModel

MATRIX_TIME_S = 5.0  # half the time that clients wait by default
ENCODING_US, TREE_US = 1.0, 0.03  # of a pair: 400 trees take 7 to 13 µs on one core
UNKNOWN_KIND_US = 50.0  # of a model without trees that does not factorise: none of ours


def matrix_limit(model: FittedModel, dataset: Dataset) -> MatrixLimit | None:
    """The limit of a fitted model, in two digits; None for one that factorises over jobs."""
    exported, _ = exported_form(model, dataset)
    if hasattr(exported, "to_matrix_onnx"):
        return None
    pairs = MATRIX_TIME_S * 1e6 / pair_cost_us(model)
    step = 10 ** max(len(str(int(pairs))) - 2, 0)
    return MatrixLimit(pairs=int(pairs // step) * step, seconds=MATRIX_TIME_S)


def pair_cost_us(model: FittedModel) -> float:
    """Estimated CPU time of one pair among many, in microseconds."""
    trees = trees_of(model)
    return UNKNOWN_KIND_US if trees is None else ENCODING_US + TREE_US * trees.model_text.count("\nTree=")
