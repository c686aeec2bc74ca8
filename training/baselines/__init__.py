"""The cheap predictors that every model must beat; `evaluate` always prints them."""

from training.baselines.baseline import Baseline
from training.baselines.effects import AdditiveModel, FittedAdditive, MeanModel

BASELINES: tuple[Baseline, ...] = (MeanModel(), AdditiveModel())

__all__ = ["BASELINES", "AdditiveModel", "Baseline", "FittedAdditive", "MeanModel"]
