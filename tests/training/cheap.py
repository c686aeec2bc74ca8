"""Models that fit in a moment, for tests of what happens around a training."""

from collections.abc import Mapping

from training.baselines import AdditiveModel, MeanModel
from training.gbdt import GbdtModel
from training.gp import GpModel
from training.model import ModelSettings

CHEAP: Mapping[str, ModelSettings] = {
    "mean": MeanModel(),
    "additive": AdditiveModel(),
    "gbdt": GbdtModel(rounds=40),
    "gp": GpModel(steps=3),
}
ONLY_MEAN: Mapping[str, ModelSettings] = {"mean": MeanModel()}
