"""Online correction: an observed pair changes later predictions of this pair and of other pairs of its jobs.

The state is a pure fold over observation windows: equal windows in equal order give an equal state, whatever their
timestamps. `OnlineModel` wraps a `Predictor`; `interfere.predict.online.window_learning` learns from windows,
`interfere.predict.online.belief` defines the learned state, and `interfere.predict.online.pair_corrections` reads it.

With the median m, a quantile q of the wrapped model and the correction c of a pair, its corrected quantile is
m · exp(c ± √((ratio · log(q / m))² + z² · extra)), where z is the standard normal quantile of the same level. Observed
pairs that are too novel for the model are answered from its extrapolation, where learning began.

Laws: a window by itself never moves the prediction of its pair away from the observed slowdown, nor past it. Pairs that
share no job with it keep their predictions, unless the window shows that the software stack of their device type has
changed, or the model was never trained on that device type. A direction that nobody observed stays without an answer,
and so does a domain that the model never saw. Every few windows of a device type, all its recent ones are explained
together (`interfere.predict.field.smoothing`): then reporters, devices and jobs are told apart.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups import GroupComposition, composition_of
from interfere.predict.measured import StepTimes, contradicts
from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.pair_corrections import Corrections, PairCorrections, PairPlaces
from interfere.predict.online.prior import Floats, ResidualPrior, WorkloadKey, default_prior
from interfere.predict.online.stand_in_profiles import ResolveElsewhere, StandInProfiles
from interfere.predict.online.unseen_device import JobCoordinates, no_coordinates
from interfere.predict.online.window_learning import LearningResult, WindowLearner
from interfere.predict.teaching import ProbeChoice, choose_probes, taught_shares
from interfere.protocols import Predictor
from interfere.records import (
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    Prediction,
    Progress,
    ReporterWeight,
    Source,
)
from interfere.sharing_modes import SharingMode

# A device is told as odd where its jobs are slower by this much, and by so many standard deviations.
LEAST_ODD, CERTAIN = math.log(1.1), 4.0
MAX_LOG_CORRECTION = math.log(20.0)  # beyond twentyfold, the model or the measurement is broken
LOWER_LEVEL, UPPER_LEVEL = 0.05, 0.95  # quantiles of a Prediction's interval
# Observed ordered pairs after which a device type that the model never saw is answered, with intervals that say how
# little is known: on Gavel's table they hold .94 to 1.00 of the other pairs from 5 pairs on.
MIN_DOMAIN_PAIRS = 5


class OnlineModel:
    """A `Predictor` that learns from `Progress` reports. One thread learns; other threads may read a `snapshot`
    meanwhile.

    The objects owned by a model do not refer back to the model, so that reference counting frees an unused snapshot at
    once, without the cyclic garbage collector, which stops all threads.
    """

    def __init__(
        self,
        inner: Predictor,
        prior: ResidualPrior | None = None,
        *,
        measured: Iterable[tuple[str, str, str, SharingMode]] = (),
        step_times: StepTimes | None = None,
        coordinates: JobCoordinates = no_coordinates,
        elsewhere: ResolveElsewhere = lambda _: None,
    ) -> None:
        """Wrap the model `inner`, with nothing learned yet.

        `prior` is the prior on the errors of `inner`, None for the default. `measured` lists (victim, neighbour, device
        type, mode) of the pairs that `inner` answers from a measurement; the model's errors do not affect them unless a
        profile contradicts the `step_times` of the measured jobs. `coordinates` gives job coordinates on device types
        without training data, which tell similar pairs. `elsewhere` finds a workload's profile on any device type.
        """
        self._inner, self._elsewhere, self._coordinates = inner, elsewhere, coordinates
        self._step_times = step_times or {}
        self._saved: BeliefState | None = None
        self.belief = Belief(prior or default_prior(), BeliefState(), _is_trained_on(inner))
        self._base_predictions = BasePredictions(inner, self.belief.effects, measured, self._step_times, coordinates)
        self.stand_ins = StandInProfiles(self.belief.effects, elsewhere)
        self._connect()

    def _connect(self) -> None:
        """Create the learner that updates the state and the corrections that read it."""
        self._learner = WindowLearner(self.belief, self._base_predictions, self.stand_ins)
        self._corrections = PairCorrections(self.belief.effects)

    @property
    def state(self) -> BeliefState:
        """Return everything learned so far."""
        return self.belief.state

    @state.setter
    def state(self, state: BeliefState) -> None:
        self.belief.effects.state = state

    @property
    def version(self) -> str:
        """Return the version of the wrapped model, which corrections do not change."""
        return self._inner.version

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return "" where the wrapped model knows the domain or enough pairs of it were observed, else the reason."""
        unknown_domain = self._inner.knows(device_type, mode)
        domain = self.state.domains.get((device_type, mode))
        if not unknown_domain or (domain is not None and domain.pair_count >= MIN_DOMAIN_PAIRS):
            return ""
        observed = f"; {domain.pair_count} of {MIN_DOMAIN_PAIRS} pairs were observed" if domain else ""
        return unknown_domain + observed

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """Return how the wrapped model composes pair slowdowns into the slowdown of a group, for a domain."""
        return composition_of(self._inner, device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one observation window and return what was learned. See `WindowLearner.observe`."""
        return self._learner.observe(window, resolve)

    def weigh_reporter(self, order: ReporterWeight) -> None:
        """Set the weight of a reporter's later windows."""
        self._learner.weigh_reporter(order)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Predict all pairs of these windows in one batch, so that `observe` finds the predictions in the cache."""
        self._learner.prefetch(windows, resolve)

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self, elsewhere: ResolveElsewhere | None = None) -> "OnlineModel":
        """Return a copy with the present state for concurrent readers; later learning does not change it.

        The time grows with the number of jobs, not of windows. `elsewhere`: the readers' profile lookup as in the
        constructor; None keeps that of this model.
        """
        copied = OnlineModel.__new__(OnlineModel)
        copied._inner, copied._saved, copied._elsewhere = self._inner, None, elsewhere or self._elsewhere
        copied._step_times, copied._coordinates = self._step_times, self._coordinates
        copied.belief = Belief(self.belief.prior, self.state.copy(), _is_trained_on(self._inner))
        copied._base_predictions = self._base_predictions
        copied.stand_ins = self.stand_ins.of_snapshot(copied.belief.effects, copied._elsewhere)
        copied._connect()
        return copied

    def set_savepoint(self) -> None:
        """Mark the present state; `restore_savepoint` returns to it."""
        self._saved = self.state.copy()

    def restore_savepoint(self) -> None:
        """Discard everything learned since the savepoint, for use when the windows could not be stored."""
        if self._saved is not None:
            self.state, self._saved = self._saved, None

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Return the wrapped model's slowdowns times exp(correction), with intervals from the learned posterior."""
        batch = replace(batch, allow_extrapolation=self._may_extrapolate(batch))
        answer = self._inner.predict_pairs(batch)
        if len(batch) == 0 or not (self.state.domains or self.stand_ins.mask(batch.jobs).any()):
            return answer
        pairs = PairPlaces(_keys(batch.jobs, batch), batch.victim, batch.neighbour)
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = self._with_observed_pairs(answer, batch, pairs)
        lower, median, upper = answer.lower.copy(), answer.median.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        for (place,), slowdowns in self._unprofiled(pairs, batch.jobs, (LOWER_LEVEL, 0.5, UPPER_LEVEL)):
            lower[place], median[place], upper[place] = slowdowns
            source[place], reason[place] = Source.MODEL, ""
        # 2. The correction.
        corrections = self._corrections_of(pairs, batch.jobs, median)
        for k in np.flatnonzero(corrections.applies & np.isfinite(median)).tolist():
            if source[k] is Source.MEASURED:  # a measurement that was corrected since is no longer the table's
                source[k] = Source.MODEL
        return replace(
            answer,
            median=corrected_median(median, corrections),
            lower=corrected_quantile(lower, median, corrections, LOWER_LEVEL),
            upper=corrected_quantile(upper, median, corrections, UPPER_LEVEL),
            source=tuple(source),
            reason=tuple(reason),
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return the wrapped model's slowdowns of both directions, each corrected like a pair."""
        batch = replace(batch, allow_extrapolation=self._may_extrapolate(batch))
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        jobs = (*batch.victims, *batch.neighbours)
        if answer.victim_slowdown.size == 0 or not (self.state.domains or self.stand_ins.mask(jobs).any()):
            return answer
        pairs = PairPlaces.matrix(_keys(batch.victims, batch), _keys(batch.neighbours, batch))
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        extrapolated = replace(batch, allow_extrapolation=True)
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = self._with_observed_cells(answer, extrapolated, pairs, quantile)
        median = answer if quantile == 0.5 else self._inner.predict_matrix(extrapolated)
        sides = (
            (pairs, answer.victim_slowdown, median.victim_slowdown),
            (pairs.transposed, answer.neighbour_slowdown.T, median.neighbour_slowdown.T),
        )
        # 2. The correction, in both directions.
        corrected = []
        for places, of_level, of_median in sides:
            for k, (at_level, at_median) in self._unprofiled(places, jobs, (quantile, 0.5)):
                of_level[k], of_median[k] = at_level, at_median
            corrections = self._corrections_of(places, jobs, of_median, with_variances=quantile != 0.5)
            exact = of_median.astype(np.float64)
            corrected.append(
                corrected_median(exact, corrections)
                if quantile == 0.5
                else corrected_quantile(of_level.astype(np.float64), exact, corrections, quantile)
            )
        return replace(
            answer,
            victim_slowdown=corrected[0].astype(np.float32),
            neighbour_slowdown=np.ascontiguousarray(corrected[1].T.astype(np.float32)),
        )

    def _may_extrapolate(self, batch: PairBatch | MatrixBatch) -> bool:
        """Return whether the wrapped model may extrapolate: on request, or with enough observed pairs of the domain."""
        domain = batch.device_type, batch.mode
        return batch.allow_extrapolation or bool(self._inner.knows(*domain) and not self.knows(*domain))

    def _corrections_of(
        self,
        pairs: PairPlaces,
        jobs: Sequence[JobProfile],
        median: NDArray[np.floating],
        *,
        with_variances: bool = True,
    ) -> Corrections:
        """Return the corrections of pairs of jobs; `median` is the model's predicted slowdown."""
        return self._corrections.of(
            pairs,
            [job.family for job in jobs],
            np.log(median.astype(np.float64)),
            self._are_measured(pairs, jobs),
            self._coordinates_of(jobs, *pairs.keys[0][1:]),
            with_variances=with_variances,
        )

    def _are_measured(self, pairs: PairPlaces, jobs: Sequence[JobProfile]) -> NDArray[np.bool_]:
        """Return whether the wrapped model answers each pair from a measurement that its profiles agree with."""
        is_current = np.array([not contradicts(job, self._step_times) for job in jobs])
        both_current = is_current[pairs.victim] & is_current[pairs.neighbour]
        measured = np.zeros(both_current.shape, dtype=bool)
        measured[pairs.among(self._base_predictions.measured_neighbours)] = True
        return np.asarray(measured & both_current)

    def _coordinates_of(self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> Floats:
        """Return float64[n, C]: coordinates of jobs on a device type without training data; C is 0 on trained types."""
        if (device_type, mode) not in self.state.unseen_devices:
            return np.zeros((len(jobs), 0))
        return self._coordinates(jobs, device_type, mode)

    def _unprofiled(
        self, pairs: PairPlaces, jobs: Sequence[JobProfile], levels: Sequence[float]
    ) -> list[tuple[tuple[int, ...], list[float]]]:
        """Return the index of each pair with an unprofiled job, and the quantiles of its slowdown at these levels.

        Without means of the domain there are none.
        """
        unprofiled = self.stand_ins.mask(jobs)
        if not unprofiled.any():
            return []
        found = np.nonzero(unprofiled[pairs.victim] | unprofiled[pairs.neighbour])
        asked = pairs.at(found)
        ends = zip(asked.victim.tolist(), asked.neighbour.tolist(), strict=True)
        slowdowns = [
            [
                self.stand_ins.slowdown(pairs.keys[i], pairs.keys[j], (bool(unprofiled[i]), bool(unprofiled[j])), level)
                for level in levels
            ]
            for i, j in ends
        ]
        places = zip(*(each.tolist() for each in found), strict=True)
        return [(place, own) for place, own in zip(places, slowdowns, strict=True) if math.isfinite(own[0])]

    def _with_observed_pairs(self, answer: Prediction, batch: PairBatch, pairs: PairPlaces) -> Prediction:
        """Return the answer, with the model's extrapolation for observed pairs on which it abstained."""
        (observed,) = pairs.among(self.state.pairs)
        filled = observed[np.isnan(answer.median[observed])]
        if not len(filled):
            return answer
        extrapolated = self._inner.predict_pairs(
            replace(batch, victim=batch.victim[filled], neighbour=batch.neighbour[filled], allow_extrapolation=True)
        )
        changed: dict[str, object] = {}
        for name in ("median", "lower", "upper", "feasibility"):
            values = getattr(answer, name).copy()
            values[filled] = getattr(extrapolated, name)
            changed[name] = values
        for name in ("source", "reason"):
            texts = dict(enumerate(getattr(answer, name)))
            texts |= dict(zip(filled.tolist(), getattr(extrapolated, name), strict=True))
            changed[name] = tuple(texts.values())
        return replace(answer, **changed)  # type: ignore[arg-type]  # the fields of a prediction, by name

    def _with_observed_cells(
        self, answer: MatrixPrediction, extrapolated: MatrixBatch, pairs: PairPlaces, quantile: float
    ) -> MatrixPrediction:
        """Return the same for a matrix, each direction by itself."""
        fill_victim, fill_neighbour = (np.zeros(answer.victim_slowdown.shape, dtype=bool) for _ in range(2))
        fill_victim[pairs.among(self.state.pairs)] = True
        fill_neighbour.T[pairs.transposed.among(self.state.pairs)] = True
        fill_victim &= np.isnan(answer.victim_slowdown)
        fill_neighbour &= np.isnan(answer.neighbour_slowdown)
        if not (fill_victim.any() or fill_neighbour.any()):
            return answer
        found = self._inner.predict_matrix(extrapolated, quantile=quantile)
        return replace(
            answer,
            victim_slowdown=np.where(fill_victim, found.victim_slowdown, answer.victim_slowdown),
            neighbour_slowdown=np.where(fill_neighbour, found.neighbour_slowdown, answer.neighbour_slowdown),
        )

    # --- what to measure --------------------------------------------------------------------------------------------

    def choose_probes(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode, count: int
    ) -> ProbeChoice:
        """Choose the neighbours beside which a short run of the job teaches most about its other pairs, in order.

        The model extrapolates for a job that is unlike those of its training: for that the probes are.
        """
        return choose_probes(self.belief.effects, self._candidate_pairs(job, neighbours, device_type, mode), count)

    def teaches(self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode) -> Floats:
        """Return float64[n]: the share of what is not known of the job's pairs that a run beside each neighbour would
        teach."""
        return taught_shares(self.belief.effects, self._candidate_pairs(job, neighbours, device_type, mode))

    def _candidate_pairs(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> list[tuple[PairObservation, PairObservation]]:
        """Return the windows that would confirm the model's own answers: of the job beside each neighbour, and of that
        beside the job."""
        jobs, n = (job, *neighbours), len(neighbours)
        job_first = np.arange(2 * n) < n
        other = np.tile(np.arange(1, n + 1), 2)
        batch = PairBatch(
            jobs=jobs,
            victim=np.where(job_first, 0, other),
            neighbour=np.where(job_first, other, 0),
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
        pairs = PairPlaces(_keys(jobs, batch), batch.victim, batch.neighbour)
        log_median = np.log(self._inner.predict_pairs(batch).median)
        for k, (slowdown,) in self._unprofiled(pairs, jobs, (0.5,)):
            log_median[k] = math.log(slowdown)
        measured = self._are_measured(pairs, jobs)
        coordinates = [tuple(row) for row in self._coordinates_of(jobs, device_type, mode).tolist()]
        windows = [
            PairObservation(
                victim=pairs.keys[i],
                neighbour=pairs.keys[j],
                log_predicted=float(log_median[k]),
                log_observed=float(log_median[k]),
                measured=bool(measured[k]),
                families=(jobs[i].family, jobs[j].family),
                coordinates=(coordinates[i], coordinates[j]),
            )
            for k, (i, j) in enumerate(zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True))
        ]
        return list(zip(windows[:n], windows[n:], strict=True))

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def alarm_count(self) -> int:
        """Return the number of changes detected so far in pairs, jobs and domains."""
        return self.state.alarm_count

    def drifting_workloads(self) -> tuple[str, ...]:
        """Return, sorted, the workloads whose recent windows suggest a change that is not yet confirmed."""
        return tuple(sorted({key[0] for key, history in self.state.histories.items() if history.is_changing}))

    def reporter_factor(self, reporter: str) -> float:
        """Return how many times as slow a reporter reports jobs as the other reporters of the same jobs do.

        Of several domains, that in which it is furthest off.
        """
        found = [
            nuisances.reporters[reporter].mean
            for nuisances in self.state.nuisances.values()
            if reporter in nuisances.reporters
        ]
        return math.exp(max(found, key=abs, default=0.0))

    def odd_devices(self) -> tuple[tuple[str, str, float], ...]:
        """Return (device, device type, how many times as slow jobs are there as on others of its type), sorted."""
        found = {
            (device, domain[0]): effect
            for domain, nuisances in self.state.nuisances.items()
            for device, effect in nuisances.devices.items()
            if abs(effect.mean) > max(LEAST_ODD, CERTAIN * math.sqrt(effect.variance))
        }
        return tuple((*key, math.exp(effect.mean)) for key, effect in sorted(found.items(), key=lambda item: item[0]))

    def summary(self) -> dict[str, int]:
        """Return counts of observations, corrected jobs and pairs, and detected changes, for the GetModel call."""
        state = self.state
        return {
            "observations": state.observation_count,
            "pending_solo": sum(map(len, state.pending.values())),
            "solo_rates": len(state.solo_rates),
            "corrected_jobs": len(state.own_shift),
            "corrected_pairs": state.pair_count,
            "quarantined": state.down_weighted_count,
            "alarms": state.alarm_count,
        }


def _keys(jobs: Sequence[JobProfile], batch: PairBatch | MatrixBatch) -> list[WorkloadKey]:
    """Return the keys of jobs in the domain of a batch."""
    return [(job.workload, batch.device_type, batch.mode) for job in jobs]


def _is_trained_on(inner: Predictor) -> Callable[[str, SharingMode], bool]:
    """Return a function that tells whether a model was trained on a device type and mode."""
    return lambda device_type, mode: not inner.knows(device_type, mode)


def corrected_median(median: Floats, corrections: Corrections) -> Floats:
    """Return the medians times the exponential of their corrections."""
    corrected = median * np.exp(np.clip(corrections.mean, -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION))
    return np.asarray(np.where(corrections.applies, corrected, median))


def corrected_quantile(quantile: Floats, median: Floats, corrections: Corrections, level: float) -> Floats:
    """Return the quantile at `level` that belongs to the corrected medians."""
    z = NormalDist().inv_cdf(level)
    log_ratio = corrections.sd_ratio * np.log(quantile / median)
    width = np.copysign(np.sqrt(log_ratio**2 + z * z * corrections.extra_var), z)
    corrected = corrected_median(median, corrections) * np.exp(width)
    return np.asarray(np.where(corrections.applies, corrected, quantile))
