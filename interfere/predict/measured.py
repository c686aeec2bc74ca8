"""A pair that was measured is answered by its measurement, the rest by the model inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from interfere.predict.manifest import Manifest
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source


class PairKey(NamedTuple):
    """An ordered pair of workloads in one domain."""

    victim: str
    neighbour: str
    device_type: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured slowdown with its 95 % interval of the mean."""

    slowdown: float
    lower: float
    upper: float

    @property
    def repeated(self) -> bool:
        """Is there an interval of its own? One measurement has none."""
        return self.lower < self.upper


def measured_table(folder: Path, manifest: Manifest) -> dict[PairKey, Measured]:
    """The measured rows that a published folder carries (`arrays.npz`)."""
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
        for victim, neighbour, domain, slowdown, lower, upper in rows:
            where = manifest.domains[int(domain)]
            key = PairKey(
                manifest.workloads[int(victim)], manifest.workloads[int(neighbour)], where.device_type, where.mode
            )
            table[key] = Measured(slowdown=float(slowdown), lower=float(lower), upper=float(upper))
        return table


class MeasuredPredictor:
    """Wraps a `Predictor`: measured pairs of workloads first, whatever profile a job brings."""

    def __init__(self, inner: Predictor, table: Mapping[PairKey, Measured]) -> None:
        self._inner, self._table = inner, table

    @property
    def version(self) -> str:
        """Version of the model inside."""
        return self._inner.version

    def knows(self, device_type: str, mode: str) -> str:
        """As the model inside."""
        return self._inner.knows(device_type, mode)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Measured values replace the model's."""
        answer = self._inner.predict_pairs(batch)
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        names = [job.workload for job in batch.jobs]
        for k, (i, j) in enumerate(zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)):
            row = self._table.get(PairKey(names[i], names[j], batch.device_type, batch.mode))
            if row is None:
                continue
            if row.repeated or np.isnan(median[k]):
                lower[k], upper[k] = row.lower, row.upper
            else:  # measured once: as far off as the model may be is the best that is known
                lower[k], upper[k] = row.slowdown * lower[k] / median[k], row.slowdown * upper[k] / median[k]
            median[k], source[k], reason[k] = row.slowdown, Source.MEASURED, ""
        return replace(answer, median=median, lower=lower, upper=upper, source=tuple(source), reason=tuple(reason))

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Measured values replace the model's, in both directions and at every quantile."""
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        spread = (np.ones_like(answer.victim_slowdown), np.ones_like(answer.neighbour_slowdown))
        if quantile != 0.5 and not all(row.repeated for row in self._table.values()):
            middle = self._inner.predict_matrix(replace(batch, allow_extrapolation=True))
            spread = (
                np.nan_to_num(answer.victim_slowdown / middle.victim_slowdown, nan=1.0),
                np.nan_to_num(answer.neighbour_slowdown / middle.neighbour_slowdown, nan=1.0),
            )
        places = _places(batch.victims), _places(batch.neighbours)
        for (victim, neighbour, device, how), row in self._table.items():
            if (device, how) != (batch.device_type, batch.mode):
                continue
            value = float(np.interp(quantile, (0.025, 0.5, 0.975), (row.lower, row.slowdown, row.upper)))
            for rows, columns, target, model in (
                (places[0].get(victim), places[1].get(neighbour), answer.victim_slowdown, spread[0]),
                (places[0].get(neighbour), places[1].get(victim), answer.neighbour_slowdown, spread[1]),
            ):
                if rows is not None and columns is not None:
                    cells = np.ix_(rows, columns)
                    target[cells] = value if row.repeated else row.slowdown * model[cells]
        return answer


def _places(jobs: Sequence[JobProfile]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for k, job in enumerate(jobs):
        found.setdefault(job.workload, []).append(k)
    return found
