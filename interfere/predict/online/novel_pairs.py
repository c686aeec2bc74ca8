"""Answers for observed pairs that are too novel for the model: its extrapolation is where learning began.

Law: a direction that nobody observed stays without an answer, and so does a domain that the model never saw.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from interfere.predict.online.belief_state import BeliefState
from interfere.predict.online.pair_corrections import indices_by_workload
from interfere.predict.online.prior import WorkloadKey
from interfere.protocols import Predictor
from interfere.records import MatrixPrediction, PairBatch, Prediction


def with_observed_pairs(
    answer: Prediction, batch: PairBatch, keys: Sequence[WorkloadKey], state: BeliefState, model: Predictor
) -> Prediction:
    """The answer, with the model's extrapolation for observed pairs on which it abstained.

    `keys`: of the jobs of the batch.
    """
    filled = [
        k
        for k in np.flatnonzero(np.isnan(answer.median)).tolist()
        if keys[batch.neighbour[k]][0] in state.pairs.get(keys[batch.victim[k]], ())
    ]
    if not filled:
        return answer
    extrapolated = model.predict_pairs(
        replace(batch, victim=batch.victim[filled], neighbour=batch.neighbour[filled], allow_extrapolation=True)
    )
    median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
    feasibility, source, reason = answer.feasibility.copy(), list(answer.source), list(answer.reason)
    median[filled], lower[filled], upper[filled] = extrapolated.median, extrapolated.lower, extrapolated.upper
    feasibility[filled] = extrapolated.feasibility
    for index, k in enumerate(filled):
        source[k], reason[k] = extrapolated.source[index], extrapolated.reason[index]
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
    rows: Sequence[WorkloadKey],
    columns: Sequence[WorkloadKey],
    state: BeliefState,
    extrapolate: Callable[[], MatrixPrediction],
) -> MatrixPrediction:
    """The same for a matrix, each direction by itself; `extrapolate` is called only where an observed cell needs it."""
    fill_victim, fill_neighbour = (np.zeros(answer.victim_slowdown.shape, dtype=bool) for _ in range(2))
    for victims, neighbours, cells in ((rows, columns, fill_victim), (columns, rows, fill_neighbour.T)):
        indices = indices_by_workload(neighbours)
        for i, victim in enumerate(victims):
            for workload in state.pairs.get(victim, {}).keys() & indices.keys():
                cells[i, indices[workload]] = True
    fill_victim &= np.isnan(answer.victim_slowdown)
    fill_neighbour &= np.isnan(answer.neighbour_slowdown)
    if not (fill_victim.any() or fill_neighbour.any()):
        return answer
    extrapolated = extrapolate()
    return replace(
        answer,
        victim_slowdown=np.where(fill_victim, extrapolated.victim_slowdown, answer.victim_slowdown),
        neighbour_slowdown=np.where(fill_neighbour, extrapolated.neighbour_slowdown, answer.neighbour_slowdown),
    )
