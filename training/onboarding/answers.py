"""What an onboarding tells of every pair: the answers of the model that it published, as a server gives them.

Law: a reported number is the served one. Where no model could be trained it is the measurement, else the belief.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interfere.features.pair import FeatureEncoder
from interfere.predict.measured import MeasuredPredictor, read_measured_table
from interfere.predict.onnx import load_model
from interfere.predict.transfer.excess_scale import Floats
from interfere.predict.transfer.pair_belief import PairBelief
from interfere.predict.transfer.process import all_pairs
from interfere.records import PairBatch, Source
from interfere.sharing_modes import SharingMode

BELIEF = "belief"  # source of an answer that no model published


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAnswer:
    """The slowdown of a victim beside a neighbour: with its 95 % interval if it was measured, else with 90 %."""

    victim: str
    neighbour: str
    slowdown: float
    lower: float
    upper: float
    source: str  # measured, model or belief


def published_answers(folder: Path, jobs: Sequence[str], device_type: str, mode: SharingMode) -> tuple[PairAnswer, ...]:
    """The answers of a published model for all ordered pairs of the jobs, each victim beside all neighbours in turn."""
    model = load_model(folder, FeatureEncoder())
    step_times = {key: profile.step_time_s for key, profile in model.profiles.items()}
    predictor = MeasuredPredictor(model, read_measured_table(folder, model.manifest), step_times)
    victims, neighbours = all_pairs(len(jobs))
    answer = predictor.predict_pairs(
        PairBatch(
            jobs=tuple(model.profiles[name, device_type] for name in jobs),
            victim=victims,
            neighbour=neighbours,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
    )
    return tuple(
        PairAnswer(
            victim=jobs[i],
            neighbour=jobs[j],
            slowdown=float(answer.median[k]),
            lower=float(answer.lower[k]),
            upper=float(answer.upper[k]),
            source=answer.source[k].value,
        )
        for k, (i, j) in enumerate(zip(victims.tolist(), neighbours.tolist(), strict=True))
    )


def believed_answers(known: PairBelief) -> tuple[PairAnswer, ...]:
    """The measurements, and what is believed of all other ordered pairs, in the same order."""
    predicted = known.predict([(victim, neighbour) for victim in known.jobs for neighbour in known.jobs])
    return tuple(
        PairAnswer(
            victim=each.victim,
            neighbour=each.neighbour,
            slowdown=known.measured.get((each.victim, each.neighbour), each.slowdown),
            lower=each.lower,
            upper=each.upper,
            source=Source.MEASURED.value if (each.victim, each.neighbour) in known.measured else BELIEF,
        )
        for each in predicted
    )


def slowdown_matrix(answers: Sequence[PairAnswer], jobs: int) -> Floats:
    """float64[n, n]: the slowdown of the row's job beside the column's."""
    return np.array([each.slowdown for each in answers]).reshape(jobs, jobs)
