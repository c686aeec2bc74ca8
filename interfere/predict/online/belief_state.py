"""The state of the online belief: immutable values in dictionaries that are copied, never changed while they are read.

Law: every value is replaced, never changed in place, so a shallow copy of the dictionaries is a snapshot that readers
use without a lock, and restoring a snapshot undoes everything learned since.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Self

from interfere.predict.field.gaussian import Scales
from interfere.predict.online.change_points import JobHistory
from interfere.predict.online.noise import StreamKey, StreamNoise
from interfere.predict.online.prior import Floats, WorkloadKey
from interfere.predict.online.unseen_device import Coordinates, DeviceBelief
from interfere.records import Progress
from interfere.records.solo_rates import SoloKey, SoloRate
from interfere.sharing_modes import SharingMode

DomainKey = tuple[str, SharingMode]  # device type, mode
USUAL_PAIR_VAR = 0.1**2  # of a pair's log observed - log predicted, where a correction is told without its jobs


@dataclass(frozen=True, slots=True)
class Posterior:
    """Posterior of one job's vector of model errors in one role."""

    mean: Floats  # float64[d]
    covariance: Floats  # float64[d, d]
    prior: Floats  # float64[d, d], its covariance before any observation


@dataclass(frozen=True, slots=True, kw_only=True)
class PairObservation:
    """Predicted and observed log slowdown of a pair in one window; derived for each pair in a window of a group."""

    victim: WorkloadKey
    neighbour: WorkloadKey
    log_predicted: float  # by the wrapped model or by the measured table, before any correction
    log_observed: float
    measured: bool = False  # True: the prediction is a measurement of this pair, which has no model error
    reporter: str = ""
    device: str = ""  # the device instance that it ran on
    families: tuple[str, str] = ("", "")  # of victim and neighbour; "" where unknown
    weight: float = 1.0  # the operator's weight of the reporter, in (0, 1], times the pair's share of a group's window
    composition_var: float = 0.0  # variance of the error of composing a group from its pairs
    coordinates: tuple[Coordinates, Coordinates] = ((), ())  # of victim and neighbour, on an unseen device type


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The error and weight of one window, from which every affected posterior is updated."""

    error: float  # log observed - log expected
    variance: float  # predictive variance of the error, including the window's noise
    weight: float  # of the window, between 0 and 1
    forgetting: float  # fraction of the usual forgetting per window: a noisy window causes less forgetting
    share: float = 1.0  # the covariance of a term with the window, divided by the term's variance

    @property
    def gain(self) -> float:
        """Return the change of the mean of a term of variance v, divided by v."""
        return self.share * self.weight * self.error / self.variance

    @property
    def shrink(self) -> float:
        """Return the decrease of the variance v of a term, divided by v²."""
        return self.share**2 * self.weight / self.variance


class PairEvidence(NamedTuple):
    """The evidence of an ordered pair's windows on the pair's own error, which the effects of its two jobs do not
    explain.

    The evidence is a normal likelihood of the pair's log observed - log predicted - shift, in information form.
    """

    information: float  # 1 ÷ variance of the likelihood
    weighted_mean: float  # information × mean of the likelihood
    shift_var: float  # variance of the pair's shift after its newest window; any excess was added later
    extra_var: float  # variance of the pair's level beyond that of all its effects, since its level changed
    epoch: int  # of its domain, after its newest window

    @property
    def mean(self) -> float:
        """Return the estimate of the pair's log observed - log predicted from its own windows, shrunk if few."""
        return self.weighted_mean * self.variance

    @property
    def variance(self) -> float:
        """Return the variance of `mean`."""
        return 1.0 / (self.information + 1.0 / USUAL_PAIR_VAR)


@dataclass(frozen=True, slots=True)
class LevelShift:
    """Normal posterior of a constant shift of log slowdown since the measurements and the model were made."""

    mean: float
    variance: float
    epoch: int  # of its domain, when it was last updated


@dataclass(frozen=True, slots=True)
class RecentWindow:
    """One window of a domain in the form that the test for a change of the software stack reads."""

    observation: PairObservation
    error: float  # log observed - log predicted at its arrival
    variance: float  # of the prediction at its arrival, without noise


@dataclass(frozen=True, slots=True)
class DomainBelief:
    """The posterior of a device type and mode: its noise, and the shift common to all of its jobs."""

    noise_var: float  # of the log slowdown of one window; the median of all who report
    is_unseen: bool = False  # the model never saw this device type and mode
    epoch: int = 0  # number of changes of the software stack that were found
    mean: tuple[float, float] = (0.0, 0.0)  # constant, and factor of the predicted log slowdown
    covariance: tuple[float, float, float] = (0.0, 0.0, 0.0)  # variance, covariance, variance of the two
    window_count: int = 0
    pair_count: int = 0  # ordered pairs with windows
    smoothed_at: int = 0  # window count at the last smoothing
    smoothing_interval: int = 16  # windows until the next one
    contradictions: int = 0  # windows since then that were hardly believed
    is_settled: bool = False  # the last comparison spoke clearly against a change of the stack
    scales: Scales = field(default_factory=dict)  # of the prior variances, as the last smoothing learned them
    scale_groups: Scales = field(default_factory=dict)  # effects that these scales were learned from
    recent: tuple[RecentWindow, ...] = ()

    @property
    def drift_scale(self) -> float:
        """Return how fast the levels of its jobs drift, relative to the usual."""
        return self.scales.get("drift", 1.0)

    @property
    def pair_scale(self) -> float:
        """Return the variance of single pairs after a change of the stack, relative to the usual."""
        return self.scales.get("pair", 1.0)


@dataclass(frozen=True, slots=True)
class NuisanceEffect:
    """Normal posterior of how much one reporter or device adds to the log slowdown of its windows."""

    mean: float
    variance: float


NO_EFFECT = NuisanceEffect(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class NuisanceEffects:
    """How much the reporters and devices of a domain add to its windows, as the last smoothing found."""

    reporters: Mapping[str, NuisanceEffect] = field(default_factory=dict)
    reporter_jobs: Mapping[tuple[str, str], NuisanceEffect] = field(default_factory=dict)
    reporters_lately: Mapping[str, NuisanceEffect] = field(default_factory=dict)  # in their newest windows
    devices: Mapping[str, NuisanceEffect] = field(default_factory=dict)
    devices_lately: Mapping[str, NuisanceEffect] = field(default_factory=dict)
    seen_by_two: frozenset[str] = frozenset()  # workloads that at least two reporters saw
    on_two_devices: frozenset[str] = frozenset()
    compared_reporters: frozenset[str] = frozenset()  # whose effects are known from most of their jobs
    compared_devices: frozenset[str] = frozenset()

    def of(self, observation: PairObservation) -> NuisanceEffect:
        """Return what a window's reporter and device add to it; nothing where they were compared with nobody."""
        workload, mean, variance = observation.victim[0], 0.0, 0.0
        found = []
        if workload in self.seen_by_two or observation.reporter in self.compared_reporters:
            found += [
                self.reporters.get(observation.reporter, NO_EFFECT),
                self.reporter_jobs.get((observation.reporter, workload), NO_EFFECT),
                self.reporters_lately.get(observation.reporter, NO_EFFECT),
            ]
        if workload in self.on_two_devices or observation.device in self.compared_devices:
            found += [
                self.devices.get(observation.device, NO_EFFECT),
                self.devices_lately.get(observation.device, NO_EFFECT),
            ]
        for effect in found:
            mean, variance = mean + effect.mean, variance + effect.variance
        return NuisanceEffect(mean, variance)


@dataclass(frozen=True, slots=True)
class ReporterRecord:
    """How far the windows of one reporter were believed; the sums decay."""

    weight_sum: float = 0.0
    window_count: float = 0.0

    @property
    def trust(self) -> float:
        """Return the mean weight of the reporter's windows, between 0 and 1; 1 without windows."""
        return self.weight_sum / self.window_count if self.window_count else 1.0


@dataclass(slots=True)
class BeliefState:
    """Everything that was learned from windows; `copy` returns a snapshot."""

    as_victim: dict[WorkloadKey, Posterior] = field(default_factory=dict)
    as_neighbour: dict[WorkloadKey, Posterior] = field(default_factory=dict)
    own_shift: dict[WorkloadKey, LevelShift] = field(default_factory=dict)
    harm_shift: dict[WorkloadKey, LevelShift] = field(default_factory=dict)
    family_shift: dict[tuple[str, str, str, str], LevelShift] = field(default_factory=dict)  # domain, two families
    pairs: dict[WorkloadKey, dict[str, PairEvidence]] = field(default_factory=dict)  # by victim and neighbour
    domains: dict[DomainKey, DomainBelief] = field(default_factory=dict)
    unseen_devices: dict[DomainKey, DeviceBelief] = field(default_factory=dict)  # that the model never saw
    streams: dict[StreamKey, StreamNoise] = field(default_factory=dict)
    histories: dict[WorkloadKey, JobHistory] = field(default_factory=dict)
    reporters: dict[str, ReporterRecord] = field(default_factory=dict)
    reporter_weights: dict[str, float] = field(default_factory=dict)  # weights set by operators; 1 otherwise
    unprofiled: set[WorkloadKey] = field(default_factory=set)  # jobs without facts
    of_new_family: set[WorkloadKey] = field(default_factory=set)  # observed jobs whose family training never saw
    changed_jobs: set[WorkloadKey] = field(default_factory=set)  # whose level changed, though that of others did not
    with_stand_in: set[SoloKey] = field(default_factory=set)  # jobs that were learned without a profile of their own
    solo_rates: dict[SoloKey, SoloRate] = field(default_factory=dict)
    pending: dict[SoloKey, tuple[Progress, ...]] = field(default_factory=dict)
    observation_count: int = 0
    down_weighted_count: int = 0
    alarm_count: int = 0  # changes of level that were found, of single jobs and of whole domains
    pair_count: int = 0
    nuisances: dict[DomainKey, NuisanceEffects] = field(default_factory=dict)
    anchors: dict[DomainKey, "BeliefState"] = field(default_factory=dict)  # before the first recent window of a domain

    def workloads(self) -> set[str]:
        """Return the names of all workloads with learned values or pending windows."""
        names = {key[0] for key in (*self.own_shift, *self.harm_shift, *self.pending, *self.solo_rates)}
        return names | {name for windows in self.pending.values() for window in windows for name in window.company}

    def copy(self) -> Self:
        """Return a snapshot; later changes of either state do not affect the other."""
        copied = copy(self)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, dict | set):
                setattr(copied, each.name, value.copy())
        return copied
