"""Online correction: what the scheduler measured moves the next prediction of that job and of that pair.

State is a pure fold over observations: the same observations in the same order give the same state.
With e = log(measured) - log(model) of one shared window (clipped), a job's correction is the shrunken mean of its own
e, and a pair's is the shrunken mean of what the job's leaves over::

    job[v]     = Σ e            / (count + JOB_PRIOR)
    pair[v, c] = Σ (e - job[v]) / (count + PAIR_PRIOR)
    corrected  = model · exp(job[v] + pair[v, c])

Law: an observation never moves a prediction away from what was observed, nor past it.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.protocols import Predictor
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    JobProfile,
    MatrixPrediction,
    ObservationResult,
    PairBatch,
    Prediction,
    Progress,
    Source,
)

# Unshrunk, one unlucky window would mislead every other pair of the job; so one moves its pair by 5/8 of the error.
JOB_PRIOR = 3.0
PAIR_PRIOR = 1.0
CLIP = math.log(3.0)  # one window never counts as more than a threefold error
PENDING_LIMIT = 100_000  # shared windows kept while their job's solo rate is unknown; the store keeps them all

Resolve = Callable[[str, str], JobProfile | None]
"""(workload, device type) -> its profile, when there is one."""


@dataclass(slots=True)
class _Sum:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    def shrunk(self, prior: float) -> float:
        return self.total / (self.count + prior)


@dataclass(slots=True)
class _Rate:
    steps: float = 0.0
    seconds: float = 0.0

    @property
    def per_s(self) -> float:
        return self.steps / self.seconds if self.seconds > 0 and self.steps > 0 else NAN


_Where = tuple[str, str, str]  # victim workload, device type, mode


class OnlineModel:
    """Wraps a `Predictor` and learns from `Progress`. Not thread-safe: the caller holds one lock."""

    def __init__(self, inner: Predictor) -> None:
        self._inner = inner
        self._solo: dict[tuple[str, str], _Rate] = {}
        self._job: dict[_Where, _Sum] = {}
        self._pair: dict[tuple[_Where, str], _Sum] = {}
        self._pending: dict[tuple[str, str], deque[Progress]] = {}
        self._seen = 0

    @property
    def version(self) -> str:
        """Version of the model inside; corrections do not change it."""
        return self._inner.version

    def knows(self, device_type: str, mode: str) -> str:
        """As the model inside."""
        return self._inner.knows(device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: Resolve) -> tuple[ObservationResult, str]:
        """Fold one window in. A window alone teaches the solo rate; a shared one without a solo rate waits for it."""
        home = (window.workload, window.device_type)
        self._seen += 1
        if not window.company:
            return self._learn_solo(window, home, resolve)
        if math.isnan(window.slowdown) and math.isnan(self._solo_rate(home)):
            waiting = self._pending.setdefault(home, deque(maxlen=PENDING_LIMIT))
            waiting.append(window)
            return ObservationResult.PENDING_SOLO, (
                f"no window of {window.workload} alone on {window.device_type} yet: it is applied once one arrives"
            )
        return self._learn_shared(window, resolve)

    def _learn_solo(self, window: Progress, home: tuple[str, str], resolve: Resolve) -> tuple[ObservationResult, str]:
        if math.isnan(window.steps):
            return ObservationResult.REJECTED, "a window alone has no slowdown: send steps"
        if window.steps <= 0:
            return ObservationResult.REJECTED, "a window alone without a step teaches no rate: send a longer window"
        rate = self._solo.setdefault(home, _Rate())
        rate.steps += window.steps
        rate.seconds += window.end_s - window.start_s
        for waiting in self._pending.pop(home, ()):
            self._learn_shared(waiting, resolve)
        return ObservationResult.APPLIED, ""

    def _learn_shared(self, window: Progress, resolve: Resolve) -> tuple[ObservationResult, str]:
        if len(window.company) != 1:
            return (
                ObservationResult.REJECTED,
                f"groups of {len(window.company) + 1} teach no pair: send windows of pairs",
            )
        measured = self._measured(window)
        if not MIN_SLOWDOWN <= measured <= MAX_SLOWDOWN:
            return ObservationResult.REJECTED, (
                f"slowdown {measured:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate"
            )
        predicted = self._model_median(window, resolve)
        if math.isnan(predicted):
            return ObservationResult.REJECTED, (
                f"nothing to correct: no prediction of {window.workload} beside {window.company[0]} on "
                f"{window.device_type}/{window.mode}; register profiles of both"
            )
        error = min(max(math.log(measured / predicted), -CLIP), CLIP)
        where = (window.workload, window.device_type, window.mode)
        self._job.setdefault(where, _Sum()).add(error)
        self._pair.setdefault((where, window.company[0]), _Sum()).add(error)
        return ObservationResult.APPLIED, ""

    def _solo_rate(self, home: tuple[str, str]) -> float:
        rate = self._solo.get(home)
        return rate.per_s if rate else NAN

    def _measured(self, window: Progress) -> float:
        if not math.isnan(window.slowdown):
            return window.slowdown
        seconds = window.end_s - window.start_s
        solo = self._solo_rate((window.workload, window.device_type))
        return solo * seconds / window.steps if window.steps > 0 else math.inf

    def _model_median(self, window: Progress, resolve: Resolve) -> float:
        jobs = [resolve(name, window.device_type) for name in (window.workload, window.company[0])]
        if jobs[0] is None or jobs[1] is None:
            return NAN
        one = np.array([0], dtype=np.int64)
        batch = PairBatch(
            jobs=(jobs[0], jobs[1]), victim=one, neighbour=one + 1, device_type=window.device_type, mode=window.mode,
            allow_extrapolation=True,
        )  # fmt: skip
        return float(self._inner.predict_pairs(batch).median[0])

    # --- predicting -------------------------------------------------------------------------------------------------

    def correction(self, victim: str, neighbour: str, device_type: str, mode: str) -> float:
        """Log correction of one ordered pair of workloads; 0 where nothing was observed."""
        where = (victim, device_type, mode)
        own = self._job.get(where)
        if own is None:
            return 0.0
        job = own.shrunk(JOB_PRIOR)
        pair = self._pair.get((where, neighbour), _Sum())
        return job + (pair.total - pair.count * job) / (pair.count + PAIR_PRIOR)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The inner answer times exp(correction), its interval moved along."""
        answer = self._inner.predict_pairs(batch)
        if not self._job:
            return answer
        names = [job.workload for job in batch.jobs]
        shift = np.array([
            self.correction(names[i], names[j], batch.device_type, batch.mode)
            for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
        ])  # fmt: skip
        scale = np.exp(shift)
        # A measurement that was corrected since is no longer the table's: it is the model's best estimate.
        source = tuple(
            Source.MODEL if moved and s is Source.MEASURED else s
            for s, moved in zip(answer.source, shift != 0, strict=True)
        )
        return replace(
            answer, median=answer.median * scale, lower=answer.lower * scale, upper=answer.upper * scale, source=source
        )

    def predict_matrix(
        self,
        victims: Sequence[JobProfile],
        neighbours: Sequence[JobProfile],
        device_type: str,
        mode: str,
        *,
        quantile: float = 0.5,
        device_memory_bytes: float = NAN,
        allow_extrapolation: bool = False,
    ) -> MatrixPrediction:
        """Both matrices of the inner answer, corrected."""
        answer = self._inner.predict_matrix(
            victims, neighbours, device_type, mode, quantile=quantile, device_memory_bytes=device_memory_bytes,
            allow_extrapolation=allow_extrapolation,
        )  # fmt: skip
        if not self._job:
            return answer
        rows, columns = [job.workload for job in victims], [job.workload for job in neighbours]
        ahead = self._scales(rows, columns, device_type, mode)
        back = self._scales(columns, rows, device_type, mode).T
        return replace(
            answer,
            victim_slowdown=(answer.victim_slowdown * ahead).astype(np.float32),
            neighbour_slowdown=(answer.neighbour_slowdown * back).astype(np.float32),
        )

    def _scales(self, victims: list[str], neighbours: list[str], device_type: str, mode: str) -> NDArray[np.float64]:
        """float64[v, n]: one correction per distinct pair of workloads, spread over the matrix."""
        scale = np.ones((len(victims), len(neighbours)))
        seen: dict[str, NDArray[np.float64]] = {}
        distinct = sorted(set(neighbours))
        column = np.array([distinct.index(name) for name in neighbours], dtype=np.int64)
        for i, victim in enumerate(victims):
            if (victim, device_type, mode) not in self._job:
                continue
            if victim not in seen:
                seen[victim] = np.exp([self.correction(victim, name, device_type, mode) for name in distinct])
            scale[i] = seen[victim][column]
        return scale

    # --- state ------------------------------------------------------------------------------------------------------

    def pending(self) -> int:
        """Shared windows that wait for a solo rate."""
        return sum(len(waiting) for waiting in self._pending.values())

    def observations(self) -> int:
        """Windows folded in so far, whatever became of them."""
        return self._seen

    def summary(self) -> dict[str, int]:
        """Counts for GetModel: what this state was built from."""
        return {
            "observations": self._seen,
            "pending_solo": self.pending(),
            "solo_rates": len(self._solo),
            "corrected_jobs": len(self._job),
            "corrected_pairs": len(self._pair),
        }
