"""Online correction: what the scheduler measured moves the next prediction of that pair, and of its jobs elsewhere.

State is a pure fold over observations: the same observations in the same order give the same state, whatever their
clocks say. What is learned is in `interfere.predict.online.effects`; this wraps it around a `Predictor`.

Laws: an observation never moves the prediction of its pair away from what was observed, nor past it; what was not
observed, and shares no job with it, stays as it is; intervals never widen.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from interfere.predict.online.base_predictions import Bases, Resolve
from interfere.predict.online.drift import SETTLED, Verdict, Watch, global_watch, job_watch
from interfere.predict.online.effects import Effects, Window
from interfere.predict.online.matrix_corrections import MOST, corrected
from interfere.predict.online.novel_pairs import with_observed_cells, with_observed_pairs
from interfere.predict.online.prior import Home, ResidualPrior, default_prior
from interfere.predict.online.revertible import UndoDict
from interfere.predict.online.solo_rates import SoloRates
from interfere.predict.online.unprofiled_jobs import ColdJobs
from interfere.protocols import Predictor
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    MatrixBatch,
    MatrixPrediction,
    ObservationResult,
    PairBatch,
    Prediction,
    Progress,
    Source,
)

LOW, HIGH = 0.05, 0.95  # of a Prediction's interval


class Learned(NamedTuple):
    """What became of a window, and |measured / predicted - 1| of the prediction that stood before it."""

    result: ObservationResult
    reason: str = ""
    error_ratio: float = NAN


_FRESH = job_watch()


class OnlineModel:
    """Wraps a `Predictor` and learns from `Progress`. Not thread-safe: the caller holds one lock."""

    def __init__(
        self,
        inner: Predictor,
        prior: ResidualPrior | None = None,
        *,
        measured: Iterable[tuple[str, str, str, str]] = (),
    ) -> None:
        """`measured`: (victim, neighbour, device type, mode) of the pairs that `inner` answers by a measurement: what
        jobs are off by elsewhere does not move those. Without a prior of its own, the default one."""
        self._inner = inner
        self.effects = Effects(prior or default_prior())
        self.solo = SoloRates()
        self.watches: UndoDict[Home, Watch] = UndoDict()
        self.drifting: UndoDict[Home, Watch] = UndoDict()  # those that are frozen
        self.alarms = 0  # drift alarms so far, of single jobs and of all together
        self.everyone = global_watch()
        self.seen = 0
        self.held = 0
        self._marked = (self.everyone, self.seen, self.held, self.alarms)
        self._bases = Bases(inner, self.effects, measured)
        self.cold = ColdJobs(self.effects)

    @property
    def version(self) -> str:
        """Version of the model inside; corrections do not change it."""
        return self._inner.version

    def knows(self, device_type: str, mode: str) -> str:
        """As the model inside."""
        return self._inner.knows(device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: Resolve) -> Learned:
        """Fold one window in. A window alone teaches the solo rate; a shared one without a solo rate waits for it."""
        self.seen += 1
        if not window.company:
            return self._learn_solo(window, resolve)
        if math.isnan(self.solo.slowdown(window)) and len(window.company) == 1:
            self.solo.wait(window)
            return Learned(
                ObservationResult.PENDING_SOLO,
                f"no window of {window.workload} alone on {window.device_type} yet: it is applied once one arrives",
            )
        return self._learn_shared(window, resolve)

    def prepare(self, windows: Sequence[Progress], resolve: Resolve) -> None:
        """Ask the model inside about all pairs of a batch at once, so that `observe` need not ask one by one."""
        wanted: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for window in windows:
            if len(window.company) == 1:
                pair = (window.workload, window.company[0])
                wanted.setdefault((window.device_type, window.mode), {})[pair] = None
        for (device_type, mode), pairs in wanted.items():
            self._bases.ask(list(pairs), device_type, mode, resolve)

    def _learn_solo(self, window: Progress, resolve: Resolve) -> Learned:
        if math.isnan(window.steps):
            return Learned(ObservationResult.REJECTED, "a window alone has no slowdown: send steps")
        if window.steps <= 0:
            return Learned(
                ObservationResult.REJECTED, "a window alone without a step teaches no rate: send a longer window"
            )
        for waiting in self.solo.learn(window):
            self._learn_shared(waiting, resolve)
        return Learned(ObservationResult.APPLIED)

    def _learn_shared(self, window: Progress, resolve: Resolve) -> Learned:
        if len(window.company) != 1:
            return Learned(
                ObservationResult.REJECTED, f"groups of {len(window.company) + 1} teach no pair: send windows of pairs"
            )
        measured = self.solo.slowdown(window)
        if not MIN_SLOWDOWN <= measured <= MAX_SLOWDOWN:
            return Learned(
                ObservationResult.REJECTED,
                f"slowdown {measured:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate",
            )
        pair = (window.workload, window.company[0])
        (base,) = self._bases.ask([pair], window.device_type, window.mode, resolve)
        if math.isnan(base.log_median):
            return Learned(
                ObservationResult.REJECTED,
                f"nothing to correct: no prediction of {window.workload} beside {window.company[0]} on "
                f"{window.device_type}/{window.mode}; register profiles of both",
            )
        return self._fold(
            Window(
                victim=(window.workload, window.device_type, window.mode),
                neighbour=(window.company[0], window.device_type, window.mode),
                log_predicted=base.log_median,
                log_measured=math.log(measured),
                direct=base.direct,
            )
        )

    def _fold(self, window: Window) -> Learned:
        """Ask the watches, then learn, doubt or keep apart."""
        surprise = self.effects.surprise(window)
        error_ratio = abs(math.expm1(surprise.error))
        before = self.everyone.alarms, self.watches.get(window.victim, _FRESH)
        everyone = Verdict.LEARN
        if before[1].windows >= SETTLED:  # many new jobs, off in one direction, are no drift: they are being learned
            self.everyone, everyone = self.everyone.judge(surprise.z)
        job, verdict = before[1].judge(surprise.z)
        self.alarms += job.alarms - before[1].alarms + self.everyone.alarms - before[0]
        self.watches[window.victim] = job
        if job.frozen:
            self.drifting[window.victim] = job
        elif window.victim in self.drifting:
            self.drifting.take(window.victim)
        if everyone is Verdict.HOLD and self.everyone.frozen:
            return self._hold("all jobs drift from what was learned: nothing is learned until they settle", error_ratio)
        if verdict is Verdict.HOLD:
            far = f"{math.exp(surprise.error):.3g} × what was expected"
            if job.frozen:
                why = f"{window.victim[0]} drifts ({far}): nothing is learned of it until it settles"
                return self._hold(why, error_ratio)
            return self._hold(f"{far}, {abs(surprise.z):.0f} standard deviations: kept apart as absurd", error_ratio)
        if everyone is Verdict.LEARN_ANEW:
            for home in {*self.effects.own, *self.effects.aggressor}:
                self.effects.reset(home)
        if verdict is Verdict.LEARN_ANEW:
            self.effects.reset(window.victim)
        self.effects.learn(window)
        return Learned(ObservationResult.APPLIED, "", error_ratio)

    def _hold(self, why: str, error_ratio: float) -> Learned:
        self.held += 1
        return Learned(ObservationResult.QUARANTINED, why, error_ratio)

    # --- taking back ------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """What is known now can be had back by `take_back`, until the next mark."""
        for book in self._books():
            book.mark()
        self._marked = (self.everyone, self.seen, self.held, self.alarms)

    def take_back(self) -> None:
        """Unlearn everything since the mark: what could not be stored must not be known."""
        for book in self._books():
            book.take_back()
        self.everyone, self.seen, self.held, self.alarms = self._marked

    def _books(self) -> tuple[UndoDict[Any, Any], ...]:
        return (*self.effects.books(), self.watches, self.drifting, self.solo.rates, self.solo.waiting)

    # --- predicting -------------------------------------------------------------------------------------------------

    @property
    def _moved(self) -> bool:
        return bool(self.effects.own or self.effects.aggressor or self.effects.pairs)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The inner answer times exp(correction), its interval moved along and tightened."""
        answer = self._inner.predict_pairs(batch)
        if not self._moved or len(batch) == 0:
            return answer
        effects = self.effects
        homes: list[Home] = [(job.workload, batch.device_type, batch.mode) for job in batch.jobs]
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_pairs(answer, batch, homes, effects, self._inner)
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        cold = self.cold.among(homes, batch.jobs)
        for k in np.flatnonzero(cold[batch.victim] | cold[batch.neighbour]).tolist():
            pair = homes[batch.victim[k]], homes[batch.neighbour[k]]
            lower[k], median[k], upper[k] = (self.cold.slowdown(*pair, level) for level in (LOW, 0.5, HIGH))
            source[k], reason[k] = Source.MODEL, ""
        direct = np.array(
            [
                homes[j][0] in self._bases.measured.get(homes[i], ())
                for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
            ]
        )
        shift, narrow = effects.at(homes, batch.victim, batch.neighbour, np.log(median), direct)
        middle = median * np.exp(np.clip(shift, -MOST, MOST))
        moved = np.isfinite(median) & ((shift != 0) | (narrow < 1))  # the others stay as they are, to the last bit
        lower = np.where(moved, middle * (lower / median) ** narrow, lower)
        upper = np.where(moved, middle * (upper / median) ** narrow, upper)
        median = np.where(moved, middle, median)
        for k in np.flatnonzero(moved).tolist():
            if source[k] is Source.MEASURED:  # a measurement that was corrected since is no longer the table's
                source[k] = Source.MODEL
        return replace(answer, median=median, lower=lower, upper=upper, source=tuple(source), reason=tuple(reason))

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both matrices of the inner answer, corrected."""
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        if not self._moved or answer.victim_slowdown.size == 0:
            return answer
        rows, columns = (
            [(job.workload, batch.device_type, batch.mode) for job in jobs]
            for jobs in (batch.victims, batch.neighbours)
        )
        extrapolated = replace(batch, allow_extrapolation=True)
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_cells(
                answer,
                rows,
                columns,
                self.effects,
                lambda: self._inner.predict_matrix(extrapolated, quantile=quantile),
            )
        middle = answer
        if quantile != 0.5:
            middle = self._inner.predict_matrix(extrapolated)
        for i, j in zip(
            *np.nonzero(self.cold.among(rows, batch.victims)[:, None] | self.cold.among(columns, batch.neighbours)),
            strict=True,
        ):
            for matrix, level in ((answer, quantile), (middle, 0.5)):
                matrix.victim_slowdown[i, j] = self.cold.slowdown(rows[i], columns[j], level)
                matrix.neighbour_slowdown[i, j] = self.cold.slowdown(columns[j], rows[i], level)
        wide = quantile != 0.5
        back = corrected(
            self.effects,
            self._bases.measured,
            columns,
            rows,
            answer.neighbour_slowdown.T,
            middle.neighbour_slowdown.T,
            tighten=wide,
        )
        return replace(
            answer,
            victim_slowdown=corrected(
                self.effects,
                self._bases.measured,
                rows,
                columns,
                answer.victim_slowdown,
                middle.victim_slowdown,
                tighten=wide,
            ),
            neighbour_slowdown=np.ascontiguousarray(back.T),
        )

    # --- state ------------------------------------------------------------------------------------------------------

    def frozen(self) -> tuple[str, ...]:
        """Workloads that drift: nothing is learned of them until they settle."""
        return tuple(sorted({home[0] for home in self.drifting}))

    def summary(self) -> dict[str, int]:
        """Counts for GetModel: what this state was built from."""
        return {
            "observations": self.seen,
            "pending_solo": self.solo.pending(),
            "solo_rates": len(self.solo.rates),
            "corrected_jobs": len(self.effects.own),
            "corrected_pairs": len(self.effects.pairs),
            "quarantined": self.held,
            "frozen_jobs": len(self.drifting),
            "alarms": self.alarms,
        }
