"""Online correction: an observed pair changes later predictions of this pair and of other pairs of its jobs.

The state is a pure fold over observation windows: equal windows in equal order give an equal state, whatever their
timestamps. `OnlineModel` wraps a `Predictor`; `interfere.predict.online.window_learning` learns from windows,
`interfere.predict.online.belief` defines the learned state; `interfere.predict.corrected_predictions` applies it.

Laws: a window by itself never moves the prediction of its pair away from the observed slowdown, nor past it. Pairs that
share no job with it keep their predictions, unless the window shows that the software stack of their device type has
changed, or the model was never trained on that device type. Every few windows of a device type, all its recent ones are
explained together (`interfere.predict.field.smoothing`): then reporters, devices and jobs are told apart.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.corrected_predictions import CorrectedPredictor
from interfere.predict.groups import GroupComposition, composition_of
from interfere.predict.measured import StepTimes
from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.prior import ResidualPrior, default_prior
from interfere.predict.online.stand_in_profiles import ResolveElsewhere, StandInProfiles
from interfere.predict.online.unseen_device import JobCoordinates, no_coordinates
from interfere.predict.online.window_learning import LearningResult, WindowLearner
from interfere.predict.teaching import ProbeChoice, choose_probes, taught_shares
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Progress, ReporterWeight
from interfere.sharing_modes import SharingMode

# A device is told as odd where its jobs are slower by this much, and by so many standard deviations.
LEAST_ODD, CERTAIN = math.log(1.1), 4.0


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
        """Create the learner that updates the state and the predictor that reads it."""
        self._learner = WindowLearner(self.belief, self._base_predictions, self.stand_ins)
        self._corrected = CorrectedPredictor(
            self._inner,
            self.belief.effects,
            self._base_predictions,
            self.stand_ins,
            step_times=self._step_times,
            coordinates=self._coordinates,
        )

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
        return self._corrected.knows(device_type, mode)

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """Return how the wrapped model composes pair slowdowns into the slowdown of a group, for a domain."""
        return composition_of(self._inner, device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one observation window and return what was learned.

        A solo window teaches the job's solo rate; a shared window of a job without a known solo rate stays pending
        until then. Windows of a muted reporter are ignored.
        """
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
        return self._corrected.predict_pairs(batch)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return the wrapped model's slowdowns of both directions, each corrected like a pair."""
        return self._corrected.predict_matrix(batch, quantile=quantile)

    # --- what to measure --------------------------------------------------------------------------------------------

    def choose_probes(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode, count: int
    ) -> ProbeChoice:
        """Choose the neighbours beside which a short run of the job teaches most about its other pairs, in order.

        The model extrapolates for a job that is unlike those of its training: for that the probes are.
        """
        return choose_probes(self.belief.effects, self._candidate_pairs(job, neighbours, device_type, mode), count)

    def teaches(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> NDArray[np.float64]:
        """Return float64[n]: the share of what is not known of the job's pairs that a run beside each neighbour would
        teach."""
        return taught_shares(self.belief.effects, self._candidate_pairs(job, neighbours, device_type, mode))

    def _candidate_pairs(
        self, job: JobProfile, neighbours: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> list[tuple[PairObservation, PairObservation]]:
        """Return the windows that would confirm the model: of the job beside each neighbour, and of it beside the
        job."""
        places = np.arange(1, len(neighbours) + 1)
        job_places = np.zeros_like(places)
        batch = PairBatch(
            jobs=(job, *neighbours),
            victim=np.concatenate([job_places, places]),
            neighbour=np.concatenate([places, job_places]),
            device_type=device_type,
            mode=mode,
        )
        windows = self._corrected.confirming_windows(batch)
        return list(zip(windows[: len(places)], windows[len(places) :], strict=True))

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


def _is_trained_on(inner: Predictor) -> Callable[[str, SharingMode], bool]:
    """Return a function that tells whether a model was trained on a device type and mode."""
    return lambda device_type, mode: not inner.knows(device_type, mode)
