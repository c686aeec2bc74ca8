"""All models by name, the simplest first: where two are equally good, the earlier one wins."""

from collections.abc import Mapping

from interfere.errors import InvalidInputError
from training.baselines import AdditiveModel, MeanModel
from training.models.ensemble import EnsembleModel
from training.models.gbdt import GbdtModel
from training.models.gp import GpModel
from training.models.mlp import MlpModel
from training.models.model import ModelSettings

MODELS: Mapping[str, ModelSettings] = {
    model.name: model for model in (MeanModel(), AdditiveModel(), GbdtModel(), MlpModel(), GpModel(), EnsembleModel())
}


def chosen(names: str = "") -> tuple[ModelSettings, ...]:
    """Models of a comma-separated list; all when it is empty. Raises InvalidInputError on an unknown name."""
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(MODELS)
    if unknown := sorted(set(wanted) - set(MODELS)):
        raise InvalidInputError("unknown models", value=", ".join(unknown), remedy=f"choose among {', '.join(MODELS)}")
    return tuple(model for name, model in MODELS.items() if name in wanted)
