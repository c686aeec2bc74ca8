"""The published baselines that every model must beat; `evaluate` always scores them beside the models."""

from interfere.training.baselines.baseline import Baseline
from interfere.training.baselines.fixed_rules import DefaultThroughput, RooflinePrior
from interfere.training.baselines.job_classes import ThreeClassTree
from interfere.training.baselines.matrix_completion import GavelCompletion, SoftImpute
from interfere.training.baselines.nearest_pairs import NearestPairs
from interfere.training.baselines.utilisation_regression import BandwidthSum, LinearUtilisation
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
