"""What moves a prediction: each fact of a job replaced by what is usual, and the served model asked again.

    effect of fact g of job j  =  log s(v, n) - log s(v, n with g of j := r_g),
    r_g  =  median of g over the model's own profiles of the device type (of all types where it has none there).

A timeline or a kernel table has no median: the one of the profile in the middle, by the number shown for it, stands in.
Law 1: a fact that the model does not read has an effect of exactly 0. Law 2: a fact that the job does not have, or that
no reference has, has no effect to speak of and is left out. Effects do not add up to the prediction: facts interact.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interfere.protocols import Predictor
from interfere.records import COUNTERS, NAN, JobProfile, PairBatch

UNKNOWN = "\N{EMPTY SET}"  # a workload that no model was trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a profile says of its job. `value` is its number in `unit`, NaN where it is absent."""

    name: str
    fields: tuple[str, ...]  # of a profile, replaced together
    unit: str
    value: Callable[[JobProfile], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One fact of the victim or of its neighbour. `log_change` as defined above."""

    of_victim: bool
    fact: str
    value: float
    reference: float
    unit: str
    log_change: float


def _number(name: str, field: str, unit: str) -> Fact:
    return Fact(name=name, fields=(field,), unit=unit, value=lambda profile: float(getattr(profile, field)))


FACTS = (
    _number("step time alone", "step_time_s", "s"),
    _number("spread of its step time", "step_time_sd_s", "s"),
    _number("share of time on the device", "busy_frac", "share"),
    Fact(
        name="busy and idle stretches (mean busy one)",
        fields=("busy_s", "idle_s"),
        unit="s",
        value=lambda profile: math.fsum(profile.busy_s) / len(profile.busy_s) if profile.busy_s else NAN,
    ),
    Fact(
        name="kernels (launches a step)",
        fields=("kernels",),
        unit="launches",
        value=lambda profile: math.fsum(k.count for k in profile.kernels) if profile.kernels else NAN,
    ),
    _number("floating-point operations a step", "flops_per_step", "FLOP"),
    _number("memory traffic a step", "bytes_per_step", "bytes"),
    _number("peak memory", "memory_peak_bytes", "bytes"),
    _number("memory touched a step", "memory_working_set_bytes", "bytes"),
    _number("parameters", "memory_model_bytes", "bytes"),
    _number("activations", "memory_activation_bytes", "bytes"),
    _number("gradients", "memory_gradient_bytes", "bytes"),
    _number("optimizer state", "memory_optimizer_bytes", "bytes"),
    _number("step time of a static trace", "static_step_time_s", "s"),
    _number("peak memory of a static trace", "static_memory_peak_bytes", "bytes"),
    *(
        _number(name, field, "share")
        for name, field in zip(
            (
                "device utilisation",
                "memory utilisation",
                "multiprocessors active",
                "multiprocessor occupancy",
                "tensor cores active",
                "device memory active",
            ),
            COUNTERS,
            strict=True,
        )
    ),
    _number("power", "power_w", "W"),
)
# What the model learned of this very workload by name, beyond its facts; a stranger is the reference.
IDENTITY = "being a workload of the training data"


class Occlusion:
    """Asks a model about a pair with one fact at a time replaced."""

    def __init__(self, model: Predictor, references: Iterable[JobProfile]) -> None:
        """`model` as it is inside, without tables of measurements: those hear workloads, not facts."""
        self._model, self._references = model, tuple(references)

    def log_slowdown(self, victim: JobProfile, neighbour: JobProfile, device_type: str, mode: str) -> float:
        """What the model alone answers, also where it would rather abstain."""
        return float(self._ask([victim, neighbour], [(0, 1)], device_type, mode)[0])

    def effects(self, victim: JobProfile, neighbour: JobProfile, device_type: str, mode: str) -> tuple[Effect, ...]:
        """Of every fact that both the job and a reference have; largest first."""
        found: list[Effect] = []
        jobs, pairs = [victim, neighbour], [(0, 1)]
        for of_victim, profile in ((True, victim), (False, neighbour)):
            for name, unit, value, reference, changes in self._replacements(profile, device_type):
                jobs.append(replace(profile, **changes))
                pairs.append((len(jobs) - 1, 1) if of_victim else (0, len(jobs) - 1))
                found.append(
                    Effect(of_victim=of_victim, fact=name, value=value, reference=reference, unit=unit, log_change=NAN)
                )
        answers = self._ask(jobs, pairs, device_type, mode)
        moved = (replace(e, log_change=float(answers[0] - to)) for e, to in zip(found, answers[1:], strict=True))
        return tuple(sorted(moved, key=lambda effect: -abs(effect.log_change)))

    def _replacements(
        self, profile: JobProfile, device_type: str
    ) -> Iterable[tuple[str, str, float, float, dict[str, Any]]]:
        """(name, unit, value, reference, changed fields) of each fact that can be replaced."""
        for fact in FACTS:
            value = fact.value(profile)
            if math.isnan(value):
                continue
            usual = self._usual(fact, device_type)
            if usual is not None:
                yield fact.name, fact.unit, value, usual[0], usual[1]
        yield IDENTITY, "", NAN, NAN, {"workload": UNKNOWN}

    def _usual(self, fact: Fact, device_type: str) -> tuple[float, dict[str, Any]] | None:
        """The reference's number and fields; None where no profile has the fact."""
        here = [one for one in self._references if one.device_type == device_type] or self._references
        known = sorted(
            ((fact.value(one), one) for one in here if not math.isnan(fact.value(one))), key=lambda pair: pair[0]
        )
        if not known:
            return None
        if len(fact.fields) == 1 and fact.fields != ("kernels",):
            middle = float(np.median([value for value, _ in known]))
            return middle, {fact.fields[0]: middle}
        value, profile = known[(len(known) - 1) // 2]
        return value, {name: getattr(profile, name) for name in fact.fields}

    def _ask(self, jobs: list[JobProfile], pairs: list[tuple[int, int]], device_type: str, mode: str) -> Any:
        """float64[p] of log slowdowns."""
        places = np.array(pairs, dtype=np.int64)
        answer = self._model.predict_pairs(
            PairBatch(
                jobs=tuple(jobs),
                victim=places[:, 0],
                neighbour=places[:, 1],
                device_type=device_type,
                mode=mode,
                allow_extrapolation=True,
            )
        )
        return np.log(answer.median)
