"""How far off a transfer is on pairs that it has not seen: each measured pair hidden in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.tables import Table
from interfere.predict.transfer.device_transfer import fit_transfer
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus

MIN_PAIRS = 3  # unordered: below, an error says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPairScore:
    """Errors on measured pairs, each predicted from the others. NaN below `MIN_PAIRS`."""

    pairs: int  # unordered
    speed_error: float  # mean absolute error of 1 / slowdown
    coverage: float  # share of slowdowns inside their 90 % interval


def leave_one_pair_out(
    sources: Sequence[Table], profiles: Sequence[JobProfile], measured: Sequence[PairMeasurement]
) -> HiddenPairScore:
    """Hide each unordered pair in turn, both directions at once."""
    ok = [pair for pair in measured if pair.status is PairStatus.OK]
    unordered = sorted({tuple(sorted((pair.victim, pair.neighbour))) for pair in ok})
    if len(unordered) < MIN_PAIRS:
        return HiddenPairScore(pairs=len(unordered), speed_error=NAN, coverage=NAN)
    errors: list[float] = []
    inside: list[bool] = []
    for names in unordered:
        hidden = [pair for pair in ok if tuple(sorted((pair.victim, pair.neighbour))) == names]
        others = [pair for pair in ok if tuple(sorted((pair.victim, pair.neighbour))) != names]
        transfer = fit_transfer(sources, profiles, others)
        answers = transfer.predict([(pair.victim, pair.neighbour) for pair in hidden])
        for pair, answer in zip(hidden, answers, strict=True):
            errors.append(abs(1.0 / answer.slowdown - 1.0 / pair.slowdown))
            inside.append(answer.lower <= pair.slowdown <= answer.upper)
    return HiddenPairScore(pairs=len(unordered), speed_error=float(np.mean(errors)), coverage=float(np.mean(inside)))
