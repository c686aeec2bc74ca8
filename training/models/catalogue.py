"""All models by name, the simplest first: of two models with equal scores the earlier one is preferred."""

from collections.abc import Mapping

from interfere.errors import InvalidInputError
from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.completed import CompletedModel
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.gbdt import GbdtModel
from interfere.training.models.gp.model import GpModel
from interfere.training.models.mlp import MlpModel
from interfere.training.models.protocols import ModelSettings

FEATURE_MODELS: tuple[ModelSettings, ...] = (GbdtModel(), MlpModel(), GpModel(), EnsembleModel())
ALL_MODELS: tuple[ModelSettings, ...] = (
    MeanModel(),
    AdditiveModel(),
    *(CompletedModel(inner=model) for model in FEATURE_MODELS),
)
MODELS: Mapping[str, ModelSettings] = {model.name: model for model in ALL_MODELS}


def select_models(names: str = "") -> tuple[ModelSettings, ...]:
    """Return the models of a comma-separated list, in catalogue order; an empty list selects all models.

    Raises InvalidInputError on an unknown name.
    """
    requested = [name.strip() for name in names.split(",") if name.strip()] or list(MODELS)
    if unknown := sorted(set(requested) - set(MODELS)):
        raise InvalidInputError("unknown models", value=", ".join(unknown), remedy=f"choose among {', '.join(MODELS)}")
    return tuple(model for name, model in MODELS.items() if name in requested)
