"""The cheap predictors that every model must beat; `evaluate` always prints them."""

from training.baselines.baseline import Baseline
from training.baselines.classes import ThreeClassTree
from training.baselines.completion import GavelCompletion, SoftImpute
from training.baselines.effects import AdditiveModel, FittedAdditive, MeanModel
from training.baselines.nearest import NearestPairs
from training.baselines.rules import DefaultThroughput, RooflinePrior
from training.baselines.utilisation import BandwidthSum, LinearUtilisation

BASELINES: tuple[Baseline, ...] = (
    MeanModel(),
    AdditiveModel(),
    LinearUtilisation(),
    BandwidthSum(),
    ThreeClassTree(),
    GavelCompletion(),
    SoftImpute(),
    NearestPairs(),
    DefaultThroughput(),
    RooflinePrior(),
)

__all__ = ["BASELINES", "AdditiveModel", "Baseline", "FittedAdditive", "MeanModel"]
