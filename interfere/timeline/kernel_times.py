"""Predicted kernel times: for each kernel identity its mean run time SK and mean gap SG (FIKIT's two tables).

FIKIT measures a job's first rounds alone and then knows these means only. A table may also tell the launches of one
identity in a round apart by their place in the round: steps of a model repeat their launches in the same order.
Laws: a table made from a timeline predicts the timeline's total time exactly, and each launch as well as equal
identities take equal times; an identity that the table has never seen is refused, never guessed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np

from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import NAN
from interfere.timeline.records import MIN_KERNEL_S, KernelIdentity, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Mean times of one kernel identity, and their spread."""

    identity: KernelIdentity
    launches: int
    run_s: float  # SK
    run_sd_s: float  # NaN for one launch
    gap_s: float  # SG
    gap_sd_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """How far the means of a table are from the individual launches."""

    launches: int
    identities: int
    total_error_frac: float  # of the sum of run times: predicted ÷ measured - 1
    run_error_frac: float  # mean |predicted - measured| over the mean run time
    gap_error_frac: float  # the same for gaps; NaN where there are none


class KernelTimeTable:
    """Mean run times and gaps by kernel identity, or by identity and place in the round."""

    def __init__(self, rows: Mapping[tuple[KernelIdentity, int], KernelTimes], *, by_place: bool = False) -> None:
        self._rows, self._by_place = dict(rows), by_place

    @classmethod
    def from_timeline(cls, timeline: Timeline) -> "KernelTimeTable":
        """The means over the launches of a profiled run."""
        return cls.from_rounds([timeline])

    @classmethod
    def from_rounds(cls, rounds: Sequence[Timeline], *, by_place: bool = False) -> "KernelTimeTable":
        """The means over several measured rounds of a job: FIKIT's measurement stage."""
        times_by_key: dict[tuple[KernelIdentity, int], list[tuple[float, float]]] = {}
        for timeline in rounds:
            for key, kernel in zip(_keys(timeline, by_place), timeline.kernels, strict=True):
                times_by_key.setdefault(key, []).append((kernel.duration_s, kernel.gap_s))
        return cls({key: _mean_times(key[0], times) for key, times in times_by_key.items()}, by_place=by_place)

    @property
    def rows(self) -> tuple[KernelTimes, ...]:
        """The rows in order of first launch."""
        return tuple(self._rows.values())

    def row(self, identity: KernelIdentity, place: int = 0) -> KernelTimes:
        """The row of one identity. Raises NotFoundError for a kernel that was never measured."""
        if (identity, place) not in self._rows:
            raise NotFoundError(
                "no such kernel in the table", value=identity.name, remedy="profile the job that launches it first"
            )
        return self._rows[identity, place]

    def predict(self, timeline: Timeline) -> Timeline:
        """The timeline as a scheduler predicts it: each launch takes the mean times of its identity."""
        rows = [self.row(*key) for key in _keys(timeline, self._by_place)]
        return replace(
            timeline,
            kernels=tuple(
                replace(kernel, duration_s=row.run_s, gap_s=row.gap_s)
                for kernel, row in zip(timeline.kernels, rows, strict=True)
            ),
            gaps=f"means by identity{' and place in the round' if self._by_place else ''}",
        )

    def prediction_error(self, timeline: Timeline) -> PredictionError:
        """The error of the table's predictions for these launches, which need not be those it was made from."""
        predicted = self.predict(timeline)
        pairs = list(zip(predicted.kernels, timeline.kernels, strict=True))
        gap_s = math.fsum(kernel.gap_s for kernel in timeline.kernels)
        return PredictionError(
            launches=len(pairs),
            identities=len(self._rows),
            total_error_frac=predicted.busy_s / timeline.busy_s - 1,
            run_error_frac=math.fsum(abs(a.duration_s - b.duration_s) for a, b in pairs) / timeline.busy_s,
            gap_error_frac=math.fsum(abs(a.gap_s - b.gap_s) for a, b in pairs) / gap_s if gap_s else NAN,
        )


def with_prediction_errors(timeline: Timeline, error_frac: float, seed: int) -> Timeline:
    """The timeline as a scheduler with errors predicts it.

    Each run time and gap is multiplied by an independent log-normal factor of median 1 and coefficient of variation
    `error_frac`.
    """
    if not (math.isfinite(error_frac) and error_frac >= 0):
        raise InvalidInputError("a relative error must be finite and ≥ 0", value=error_frac, remedy="such as 0.2")
    sigma = math.sqrt(math.log1p(error_frac**2))  # of a log-normal with this coefficient of variation
    factors = np.exp(sigma * np.random.default_rng(seed).standard_normal((len(timeline.kernels), 2)))
    return replace(
        timeline,
        kernels=tuple(
            replace(
                kernel,
                duration_s=max(MIN_KERNEL_S, kernel.duration_s * float(run_factor)),
                gap_s=kernel.gap_s * float(gap_factor),
            )
            for kernel, (run_factor, gap_factor) in zip(timeline.kernels, factors, strict=True)
        ),
    )


def _keys(timeline: Timeline, by_place: bool) -> list[tuple[KernelIdentity, int]]:
    """(identity, number of its launches before in the round) of each launch; the number is 0 unless `by_place`."""
    launches = Counter[KernelIdentity]()
    keys = []
    for kernel in timeline.kernels:
        keys.append((kernel.identity, launches[kernel.identity] if by_place else 0))
        launches[kernel.identity] += 1
    return keys


def _mean_times(identity: KernelIdentity, times: list[tuple[float, float]]) -> KernelTimes:
    runs_s, gaps_s = [run_s for run_s, _ in times], [gap_s for _, gap_s in times]
    repeated = len(times) > 1
    return KernelTimes(
        identity=identity,
        launches=len(times),
        run_s=fmean(runs_s),
        run_sd_s=stdev(runs_s) if repeated else NAN,
        gap_s=fmean(gaps_s),
        gap_sd_s=stdev(gaps_s) if repeated else NAN,
    )
