"""All models by name, the simplest first: of two models with equal scores the earlier one is preferred."""

import inspect
from collections.abc import Mapping, Sequence
from typing import cast

from interfere.errors import InvalidInputError
from interfere.extensions import ExtensionKind, find_extension
from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.completed import CompletedModel
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.estimator import EstimatorModel, OwnFeature, estimator_model
from interfere.training.models.gbdt import GbdtModel
from interfere.training.models.gp.model import GpModel
from interfere.training.models.mlp import MlpModel
from interfere.training.models.protocols import ModelSettings, ScoredModel

FEATURE_MODELS: tuple[ModelSettings, ...] = (GbdtModel(), MlpModel(), GpModel(), EnsembleModel())
ALL_MODELS: tuple[ModelSettings, ...] = (
    MeanModel(),
    AdditiveModel(),
    *(CompletedModel(inner=model) for model in FEATURE_MODELS),
)
MODELS: Mapping[str, ModelSettings] = {model.name: model for model in ALL_MODELS}


def scored_models(names: str = "", features: Sequence[str] = ()) -> tuple[ScoredModel, ...]:
    """Return the models of a comma-separated list: ours in catalogue order, then those of other packages as listed.

    An empty list selects all of ours. A model of another package has the name of an entry point, or is
    `package:Class`; an estimator reads `features`, functions by their names, beside our columns. Raises
    InvalidInputError on an unknown name, UnfitError where one cannot be loaded.
    """
    requested = dict.fromkeys(filter(None, map(str.strip, names.split(",")))) or dict.fromkeys(MODELS)
    own_features = tuple(map(OwnFeature.named, features))
    others = [_other_model(name, own_features) for name in requested if name not in MODELS]
    return (*(model for name, model in MODELS.items() if name in requested), *others)


def select_models(names: str = "") -> tuple[ModelSettings, ...]:
    """Return the models of a list, all of which can be published. Raises InvalidInputError as `scored_models` does."""
    selected: list[ModelSettings] = []
    for model in scored_models(names):
        if isinstance(model, EstimatorModel):
            remedy = "score it with interfere evaluate; docs/architecture.md shows a model that exports itself"
            raise InvalidInputError("a model without an ONNX graph is not published", value=model.name, remedy=remedy)
        selected.append(cast(ModelSettings, model))
    return tuple(selected)


def _other_model(name: str, features: Sequence[OwnFeature]) -> ScoredModel:
    """Return a model of another package: settings as `ModelSettings` describes them, or an estimator."""
    found = find_extension(ExtensionKind.MODEL, name, MODELS)
    if hasattr(found, "name") and "seed" in inspect.signature(getattr(found, "fit", print)).parameters:
        made: ScoredModel = found() if isinstance(found, type) else found
        return made
    return estimator_model(name, found, features)
