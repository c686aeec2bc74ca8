"""The published baselines that every model must beat; `evaluate` always scores them beside the models."""

from training.baselines.baseline import Baseline
from training.baselines.fixed_rules import DefaultThroughput, RooflinePrior
from training.baselines.job_classes import ThreeClassTree
from training.baselines.matrix_completion import GavelCompletion, SoftImpute
from training.baselines.nearest_pairs import NearestPairs
from training.baselines.utilisation_regression import BandwidthSum, LinearUtilisation
from training.models.additive import AdditiveModel, MeanModel

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
