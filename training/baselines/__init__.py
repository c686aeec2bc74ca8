"""The published baselines that every model must beat; `evaluate` always scores them beside the models."""

from interfere.training.baselines.baseline import Baseline
from interfere.training.baselines.regression import BandwidthSum, GavelCompletion, LinearUtilisation, SoftImpute
from interfere.training.baselines.simple import DefaultThroughput, NearestPairs, RooflinePrior, ThreeClassTree
from interfere.training.models.additive import AdditiveModel, MeanModel

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

__all__ = ["BASELINES", "Baseline"]
