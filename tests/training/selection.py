"""The model that a training on some rows would publish."""

from collections.abc import Sequence

from interfere.training.dataset import Dataset
from interfere.training.evaluation.candidates import nested_validations, selected_model
from interfere.training.evaluation.cross_validation import cross_validate
from interfere.training.models.protocols import ModelSettings


def select_on_training_rows(dataset: Dataset, models: Sequence[ModelSettings], seed: int) -> str:
    """Return the name of the model that training on these rows alone selects."""
    return selected_model(cross_validate(nested_validations(dataset, models, seed)), models)
