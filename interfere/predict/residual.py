"""Online correction: a measured pair moves the next prediction of that pair, and of its jobs in other pairs.

The state is a pure fold over windows: the same windows in the same order give the same state, whatever their
timestamps. `OnlineModel` wraps a `Predictor`; windows are learned by `interfere.predict.online.window_learning`, what
they teach is defined in `interfere.predict.online.belief`; `interfere.predict.corrected_predictions` makes the answers.

Laws: a window never moves the prediction of its pair away from the observed slowdown, nor past it; pairs that share no
job with it keep their predictions, unless it shows that the software stack of their device type has changed, or the
model never saw that device type.
"""

from collections.abc import Callable, Iterable, Sequence

from interfere.predict.corrected_predictions import CorrectedPredictor
from interfere.predict.groups.composition import GroupComposition, composition_of
from interfere.predict.measured import StepTimes
from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState
from interfere.predict.online.prior import ResidualPrior, default_prior
from interfere.predict.online.stand_in_profiles import ResolveElsewhere, StandInProfiles
from interfere.predict.online.unseen_device import JobCoordinates, no_coordinates
from interfere.predict.online.window_learning import LearningResult, WindowLearner
from interfere.protocols import Predictor
from interfere.records import MatrixBatch, MatrixPrediction, PairBatch, Prediction, Progress, ReporterWeight
from interfere.sharing_modes import SharingMode


class OnlineModel:
    """Wraps a `Predictor` and learns from `Progress`. One caller learns; a `snapshot` may be read meanwhile.

    Nothing that it holds refers to it: a snapshot that nobody reads any longer is freed at once, not by the collector
    of cycles, which stops all threads.
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
        """Wrap `inner`, with nothing learned yet.

        `prior`: of the errors of `inner`; None for the default one. `measured`: (victim, neighbour, device type, mode)
        of the pairs that `inner` answers by a measurement, to which the model's errors do not matter, unless a profile
        contradicts the `step_times` of the measured jobs. `coordinates`: of jobs on device types that `inner` never
        saw, by which pairs there are alike. `elsewhere` finds a workload's profile on any device type.
        """
        self._inner, self._elsewhere, self._coordinates = inner, elsewhere, coordinates
        self._step_times = step_times or {}
        self._saved: BeliefState | None = None
        self.belief = Belief(prior or default_prior(), BeliefState(), _is_trained_on(inner))
        self._base_predictions = BasePredictions(inner, self.belief.effects, measured, self._step_times, coordinates)
        self.stand_ins = StandInProfiles(self.belief.effects, elsewhere)
        self._connect()

    def _connect(self) -> None:
        """Make what learns into the belief and what answers from it."""
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
        """Everything that was learned."""
        return self.belief.state

    @state.setter
    def state(self, state: BeliefState) -> None:
        self.belief.effects.state = state

    @property
    def version(self) -> str:
        """Version of the wrapped model; corrections do not change it."""
        return self._inner.version

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Empty when the wrapped model knows this domain or enough of its pairs were observed, else why not."""
        return self._corrected.knows(device_type, mode)

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """How the wrapped model composes slowdowns of groups in a domain."""
        return composition_of(self._inner, device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one window.

        A solo window teaches the job's solo rate; a shared window without a known solo rate stays pending until then.
        From the windows of a muted reporter nothing is learned.
        """
        return self._learner.observe(window, resolve)

    def weigh_reporter(self, order: ReporterWeight) -> None:
        """Learn from later windows of a reporter with this weight."""
        self._learner.weigh_reporter(order)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Ask the wrapped model about all pairs of these windows at once, so that `observe` finds them in the cache."""
        self._learner.prefetch(windows, resolve)

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self, elsewhere: ResolveElsewhere | None = None) -> "OnlineModel":
        """A model with the present state, for any number of readers: what this one learns later does not reach it.

        Its time grows with the number of jobs, not with that of windows. `elsewhere`: as in the constructor, of the
        catalogue that its readers use; None for that of this model.
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
        """Let `restore_savepoint` return to the present state, until the next savepoint."""
        self._saved = self.state.copy()

    def restore_savepoint(self) -> None:
        """Unlearn everything since the savepoint: what could not be stored must not be known."""
        if self._saved is not None:
            self.state, self._saved = self._saved, None

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The wrapped model's answer times exp(correction), its interval moved along and as wide as the belief."""
        return self._corrected.predict_pairs(batch)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both matrices of the wrapped model, corrected like pairs."""
        return self._corrected.predict_matrix(batch, quantile=quantile)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def alarm_count(self) -> int:
        """Changes found so far: of pairs, of jobs and of whole domains."""
        return self.state.alarm_count

    def drifting_workloads(self) -> tuple[str, ...]:
        """Sorted workloads whose recent windows speak for a change that is not decided yet."""
        return tuple(sorted({key[0] for key, history in self.state.histories.items() if history.is_changing}))

    def summary(self) -> dict[str, int]:
        """Counts of what this state was built from, for GetModel."""
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
    """Whether a model was trained on a device type and mode."""
    return lambda device_type, mode: not inner.knows(device_type, mode)
