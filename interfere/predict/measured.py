"""Answers measured pairs from their measurements, and all other pairs by the wrapped model.

Law: where a job's profile contradicts the profile that was measured under the same workload name, no measurement is
used for this job.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.groups import GroupComposition, composition_of
from interfere.predict.manifest import REMEDY, Manifest
from interfere.protocols import Predictor
from interfere.records import NAN, JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.sharing_modes import SharingMode

MAX_STEP_TIME_RATIO = 1.25  # above, the profile is of another job: repeated profiles of one job differ by a few %

StepTimes = Mapping[tuple[str, str], float]
"""Step time, s, with which each (workload, device type) was measured."""

ROUNDING = 1.0 + 1e-9  # a logarithm and its exponential differ by 1e-16 from the number
INTERVAL_LEVELS = (0.025, 0.5, 0.975)  # quantiles that lower, slowdown and upper of a measurement stand for


class PairKey(NamedTuple):
    """An ordered pair of workloads (victim, neighbour) in one domain."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSlowdown:
    """A measured slowdown with the 95 % confidence interval of its mean."""

    slowdown: float
    lower: float
    upper: float

    @property
    def has_interval(self) -> bool:
        """Return whether the pair was measured more than once; a single measurement has no confidence interval."""
        return self.lower < self.upper


def read_measured_table(folder: Path, manifest: Manifest) -> dict[PairKey, MeasuredSlowdown]:
    """Return the measured pairs that a published model folder contains in `arrays.npz`.

    Raises ModelError where a measurement is not finite, outside its interval, or of no workload or domain of the model.
    """
    with np.load(folder / "arrays.npz") as arrays:
        rows = zip(
            arrays["measured_victim"],
            arrays["measured_neighbour"],
            arrays["measured_domain"],
            np.exp(arrays["measured_log"]),
            arrays["measured_lower"],
            arrays["measured_upper"],
            strict=True,
        )
        table = {}
        for victim, neighbour, domain_index, slowdown, lower, upper in rows:
            places = ((victim, manifest.workloads), (neighbour, manifest.workloads), (domain_index, manifest.domains))
            in_order = 0.0 < lower <= slowdown * ROUNDING and slowdown <= upper * ROUNDING < np.inf
            if not (in_order and all(0 <= place < len(known) for place, known in places)):
                raise ModelError(
                    "a measured pair of the model folder is no measurement",
                    value=f"{slowdown:.4g} in [{lower:.4g}, {upper:.4g}], workloads {victim}, {neighbour}",
                    remedy=REMEDY,
                )
            domain = manifest.domains[int(domain_index)]
            key = PairKey(
                manifest.workloads[int(victim)], manifest.workloads[int(neighbour)], domain.device_type, domain.mode
            )
            table[key] = MeasuredSlowdown(slowdown=float(slowdown), lower=float(lower), upper=float(upper))
        return table


def contradicts(profile: JobProfile, step_times: StepTimes) -> bool:
    """Return whether a profile's step time differs so much from the measured job's that measurements do not apply."""
    measured = step_times.get((profile.workload, profile.device_type), NAN)
    ratio = profile.step_time_s / measured
    return ratio > MAX_STEP_TIME_RATIO or ratio < 1.0 / MAX_STEP_TIME_RATIO


class MeasuredPredictor:
    """A `Predictor` that answers measured pairs from a table and passes all other pairs to a wrapped model."""

    def __init__(
        self,
        inner: Predictor,
        table: Mapping[PairKey, MeasuredSlowdown],
        step_times: StepTimes | None = None,
        *,
        feasibility: Callable[[PairBatch], NDArray[np.float64]] | None = None,
    ) -> None:
        """Wrap the model `inner`.

        `step_times` are those of the measured jobs; a job whose profile contradicts them is answered by `inner`.
        `feasibility` returns float64[p], the probability that each pair fits in memory, without a slowdown prediction
        by `inner`.
        """
        self._inner, self.table, self._feasibility = inner, table, feasibility
        self._step_times = step_times or {}
        self._by_pair: dict[tuple[str, ...], MeasuredSlowdown] = {tuple(key): row for key, row in table.items()}

    @property
    def version(self) -> str:
        """Return the version of the wrapped model."""
        return self._inner.version

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return "" where the wrapped model knows the domain, else the reason and the remedy."""
        return self._inner.knows(device_type, mode)

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """Return how the wrapped model composes pair slowdowns into the slowdown of a group, for a domain."""
        return composition_of(self._inner, device_type, mode)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Return the slowdown of each pair: the measured value where there is one, else the wrapped model's prediction.

        A pair measured once gets the relative interval of the model's answer around its measurement.
        """
        rows = self._rows(batch)
        measured = [row for row in rows if row is not None and row.has_interval]
        if measured and len(measured) == len(rows) and self._feasibility is not None:
            lower, median, upper = np.array([(row.lower, row.slowdown, row.upper) for row in measured]).T.copy()
            return Prediction(
                median=median,
                lower=lower,
                upper=upper,
                feasibility=self._feasibility(batch),
                source=(Source.MEASURED,) * len(rows),
                reason=("",) * len(rows),
            )
        answer = self._inner.predict_pairs(batch)
        if not any(rows):
            return answer
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        for k, row in enumerate(rows):
            if row is None:
                continue
            if row.has_interval or np.isnan(median[k]):
                lower[k], upper[k] = row.lower, row.upper
            else:
                lower[k], upper[k] = row.slowdown * lower[k] / median[k], row.slowdown * upper[k] / median[k]
            median[k], source[k], reason[k] = row.slowdown, Source.MEASURED, ""
        return replace(answer, median=median, lower=lower, upper=upper, source=tuple(source), reason=tuple(reason))

    def _rows(self, batch: PairBatch) -> list[MeasuredSlowdown | None]:
        """Return the measurement of each pair, None where there is none that applies."""
        names = ["" if contradicts(job, self._step_times) else job.workload for job in batch.jobs]
        find, place = self._by_pair.get, (batch.device_type, batch.mode)
        return [
            find((names[i], names[j], *place))
            for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
        ]

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return the slowdowns of both directions, measured where possible; a measured value replaces any quantile."""
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        # 1. Quantile ÷ median of the model's answers: the interval of a pair that was measured once.
        victim_ratio, neighbour_ratio = np.ones_like(answer.victim_slowdown), np.ones_like(answer.neighbour_slowdown)
        if quantile != 0.5 and not all(row.has_interval for row in self.table.values()):
            median = self._inner.predict_matrix(replace(batch, allow_extrapolation=True))
            victim_ratio = np.nan_to_num(answer.victim_slowdown / median.victim_slowdown, nan=1.0)
            neighbour_ratio = np.nan_to_num(answer.neighbour_slowdown / median.neighbour_slowdown, nan=1.0)
        # 2. Every measured pair of this domain replaces its cells, where it is a row's victim and where a column's.
        row_indices, column_indices = (self._indices_by_workload(jobs) for jobs in (batch.victims, batch.neighbours))
        for (victim, neighbour, device_type, mode), row in self.table.items():
            if (device_type, mode) != (batch.device_type, batch.mode):
                continue
            value = float(np.interp(quantile, INTERVAL_LEVELS, (row.lower, row.slowdown, row.upper)))
            for rows, columns, target, ratio in (
                (row_indices.get(victim), column_indices.get(neighbour), answer.victim_slowdown, victim_ratio),
                (row_indices.get(neighbour), column_indices.get(victim), answer.neighbour_slowdown, neighbour_ratio),
            ):
                if rows is not None and columns is not None:
                    cells = np.ix_(rows, columns)
                    target[cells] = value if row.has_interval else row.slowdown * ratio[cells]
        return answer

    def _indices_by_workload(self, jobs: Sequence[JobProfile]) -> dict[str, list[int]]:
        """Return the indices of the jobs to which measurements apply, by workload."""
        indices: dict[str, list[int]] = {}
        for k, job in enumerate(jobs):
            if not contradicts(job, self._step_times):
                indices.setdefault(job.workload, []).append(k)
        return indices
