"""Asks a new model about known jobs before it is served: whatever it cannot answer sensibly, it must not serve."""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from interfere.errors import InterfereError, ModelError
from interfere.records import JobProfile, MatrixBatch, PairBatch
from interfere.serving.state import ServedModel
from interfere.sharing_modes import SharingMode

MAX_PROBES = 12  # jobs of a domain: 132 pairs take milliseconds
# Slowdowns beyond these say that a graph is broken, not that jobs interfere: measurements lie in [0.2, 100].
LEAST, MOST = 0.01, 1e4


def probe(model: ServedModel, registered: Iterable[JobProfile]) -> None:
    """Predict pairs and matrices in every domain of the model; this warms it too.

    Raises ModelError where an answer is not finite, absurd, or outside of its interval.
    """
    profiles = [*model.shipped.values(), *registered]
    for domain in model.manifest.domains:
        jobs = tuple(islice((job for job in profiles if job.device_type == domain.device_type), MAX_PROBES))
        if jobs:
            try:
                _probe_domain(model, jobs, domain.device_type, domain.mode)
            except InterfereError:
                raise
            except Exception as error:  # whatever a broken graph makes ONNX Runtime or numpy raise
                raise _refusal(f"{domain.device_type}/{domain.mode}: {error!r}"[:300]) from None


def _probe_domain(model: ServedModel, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> None:
    n = len(jobs)
    victim, neighbour = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    pairs = model.predictor.predict_pairs(
        PairBatch(
            jobs=tuple(jobs),
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
    )
    matrix = model.predictor.predict_matrix(
        MatrixBatch(
            victims=tuple(jobs), neighbours=tuple(jobs), device_type=device_type, mode=mode, allow_extrapolation=True
        )
    )
    ordered = (pairs.lower <= pairs.median * (1 + 1e-9)) & (pairs.median <= pairs.upper * (1 + 1e-9))
    sensible = (pairs.median > LEAST) & (pairs.median < MOST) & ordered
    if not sensible.all():
        k = int(np.flatnonzero(~sensible)[0])
        names = f"{jobs[victim[k]].workload} beside {jobs[neighbour[k]].workload}"
        interval = f"{pairs.median[k]:.3g} in [{pairs.lower[k]:.3g}, {pairs.upper[k]:.3g}]"
        raise _refusal(f"{names} on {device_type}/{mode}: {interval}")
    for slowdown in (matrix.victim_slowdown, matrix.neighbour_slowdown):
        if not ((slowdown > LEAST) & (slowdown < MOST)).all():
            raise _refusal(f"a matrix on {device_type}/{mode}")


def _refusal(value: str) -> ModelError:
    return ModelError(
        "the model gives no sensible answer about known jobs", value=value, remedy="look at its card; train again"
    )
