"""A pair too novel for the model is answered once it was observed: what the model would say is where learning began.

Law: a direction that nobody observed stays without an answer, and so does a domain that the model never saw.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from interfere.predict.online.effects import Effects
from interfere.predict.online.matrix_corrections import places_of
from interfere.predict.online.prior import Home
from interfere.protocols import Predictor
from interfere.records import MatrixPrediction, PairBatch, Prediction


def with_observed_pairs(
    answer: Prediction, batch: PairBatch, homes: Sequence[Home], effects: Effects, model: Predictor
) -> Prediction:
    """The answer, with what the model extrapolates for observed pairs that it abstained from."""
    far = [
        k
        for k in np.flatnonzero(np.isnan(answer.median)).tolist()
        if (homes[batch.victim[k]], homes[batch.neighbour[k]][0]) in effects.pairs
    ]
    if not far:
        return answer
    said = model.predict_pairs(
        replace(batch, victim=batch.victim[far], neighbour=batch.neighbour[far], allow_extrapolation=True)
    )
    median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
    feasibility, source, reason = answer.feasibility.copy(), list(answer.source), list(answer.reason)
    median[far], lower[far], upper[far] = said.median, said.lower, said.upper
    feasibility[far] = said.feasibility
    for at, k in enumerate(far):
        source[k], reason[k] = said.source[at], said.reason[at]
    return replace(
        answer,
        median=median,
        lower=lower,
        upper=upper,
        feasibility=feasibility,
        source=tuple(source),
        reason=tuple(reason),
    )


def with_observed_cells(
    answer: MatrixPrediction,
    rows: Sequence[Home],
    columns: Sequence[Home],
    effects: Effects,
    extrapolate: Callable[[], MatrixPrediction],
) -> MatrixPrediction:
    """The same for matrices, each direction by itself; the model is asked again only where a pair needs it."""
    ahead, back = (np.zeros(answer.victim_slowdown.shape, dtype=bool) for _ in range(2))
    for victims, neighbours, cells in ((rows, columns, ahead), (columns, rows, back.T)):
        places = places_of(neighbours)
        for i, victim in enumerate(victims):
            for name in effects.company.get(victim, set()) & places.keys():
                cells[i, places[name]] = (victim, name) in effects.pairs
    ahead &= np.isnan(answer.victim_slowdown)
    back &= np.isnan(answer.neighbour_slowdown)
    if not (ahead.any() or back.any()):
        return answer
    said = extrapolate()
    return replace(
        answer,
        victim_slowdown=np.where(ahead, said.victim_slowdown, answer.victim_slowdown),
        neighbour_slowdown=np.where(back, said.neighbour_slowdown, answer.neighbour_slowdown),
    )
