"""Observations: stored, then acknowledged; the online model is their fold.

Law: the model's state is the fold of the stored observations, in their order, also after a write that failed
and after a restart. The fold is against the model and profiles of now: a better model is corrected less.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from interfere.client.queries import ObservationAnswer, OnlineState, Reported, Unreadable
from interfere.predict.residual import OnlineModel
from interfere.protocols import Predictor
from interfere.records import ObservationResult, PairBatch, Progress
from interfere.store.protocol import ObservationBook
from interfere.store.rows import window_text
from serving.metrics import Metrics
from serving.profiles import ProfileCatalogue

_KEPT = (ObservationResult.APPLIED, ObservationResult.PENDING_SOLO)


class ObservationLedger:
    """Not thread-safe: the caller holds one lock."""

    def __init__(
        self, predictor: Predictor, book: ObservationBook, profiles: ProfileCatalogue, metrics: Metrics
    ) -> None:
        self._predictor, self._book, self._profiles, self._metrics = predictor, book, profiles, metrics
        self.model = self._folded()

    def _folded(self) -> OnlineModel:
        model = OnlineModel(self._predictor)
        for window in self._book.all():
            model.observe(window, self._profiles.of_workload)
        return model

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """Each answered by itself. What was applied or waits is stored before this returns; rejected ones are not,
        so that they can be sent again once their reason is gone."""
        seen = self._book.find(one.observation_id for one in reported)
        kept: list[Progress] = []
        errors: list[float] = []
        answers = []
        try:
            for one in reported:
                answer, error = self._observe_one(one, seen)
                answers.append(answer)
                if isinstance(one, Progress) and answer.result in _KEPT:
                    kept.append(one)
                    seen[one.observation_id] = one
                    errors.append(error)
            if kept:
                self._book.append(kept)
        except BaseException:
            self.model = self._folded()  # forget what was folded in but not stored
            raise
        for answer in answers:
            self._metrics.observed(answer.result)
        for error in errors:
            if not math.isnan(error):
                self._metrics.predicted(error)
        return tuple(answers)

    def _observe_one(self, one: Reported, seen: Mapping[str, Progress]) -> tuple[ObservationAnswer, float]:
        """The answer, and the relative error of the prediction that stood before it."""
        result, reason, error = ObservationResult.REJECTED, "", math.nan
        if isinstance(one, Unreadable):
            reason = one.reason
        elif one.observation_id not in seen:
            error = self._error(one)
            result, reason = self.model.observe(one, self._profiles.of_workload)
        elif window_text(seen[one.observation_id]) == window_text(one):
            result, reason = ObservationResult.DUPLICATE, "this id was stored before; nothing changed"
        else:
            reason = "this id was stored with other content; give every observation an id of its own"
        return ObservationAnswer(observation_id=one.observation_id, result=result, reason=reason), error

    def _error(self, window: Progress) -> float:
        """|measured / predicted - 1| of a pair whose slowdown the caller measured; else NaN."""
        if math.isnan(window.slowdown) or len(window.company) != 1:
            return math.nan
        victim, neighbour = (
            self._profiles.of_workload(name, window.device_type) for name in (window.workload, window.company[0])
        )
        if victim is None or neighbour is None:
            return math.nan
        one = np.zeros(1, dtype=np.int64)
        said = self.model.predict_pairs(
            PairBatch(
                jobs=(victim, neighbour),
                victim=one,
                neighbour=one + 1,
                device_type=window.device_type,
                mode=window.mode,
            )
        )
        return abs(window.slowdown / float(said.median[0]) - 1.0)

    def state(self) -> OnlineState:
        """Counts: stored observations and what they taught."""
        summary = self.model.summary()
        return OnlineState(
            observations=self._book.count(),
            pending_solo=summary["pending_solo"],
            solo_rates=summary["solo_rates"],
            corrected_jobs=summary["corrected_jobs"],
            corrected_pairs=summary["corrected_pairs"],
        )
