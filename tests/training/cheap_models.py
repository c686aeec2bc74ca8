"""Models that fit and export in a moment, for tests of the steps around a training."""

from collections.abc import Mapping

from interfere.training.models.additive import AdditiveModel, MeanModel
from interfere.training.models.protocols import ModelSettings

CHEAP_MODELS: Mapping[str, ModelSettings] = {"mean": MeanModel(), "additive": AdditiveModel()}
ONLY_MEAN: Mapping[str, ModelSettings] = {"mean": MeanModel()}
