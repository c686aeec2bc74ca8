"""Explains a predicted slowdown by occlusion: replaces one fact of a job by a typical value and predicts again.

    effect of fact g of job j  =  log s(v, n) - log s(v, n with g of j := r_g),
    r_g  =  median of g over the model's stored profiles of the device type (of all types where the type has none).

A timeline or a kernel table has no median; its reference comes from the profile with the median displayed number.
Law 1: a fact that the model does not read has an effect of exactly 0. Law 2: a fact that the job or all references lack
is left out. Effects do not add up to the prediction, because facts interact.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interfere.protocols import Predictor
from interfere.records import COUNTERS, NAN, JobProfile, PairBatch
from interfere.sharing_modes import SharingMode

UNKNOWN_WORKLOAD = "\N{EMPTY SET}"  # a name that no workload of training data has


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact that a profile can state about its job; `value` returns its number in `unit`, NaN where it is absent."""

    name: str
    fields: tuple[str, ...]  # fields of a profile that are replaced together
    unit: str
    value: Callable[[JobProfile], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactEffect:
    """The effect of one fact of the victim or neighbour; `log_change` is the effect by the module's formula."""

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
# What the model learned about this workload by name, beyond its facts; an unknown workload is the reference.
IDENTITY = "being a workload of the training data"


class Occlusion:
    """Predicts the slowdown of a pair of jobs with one fact replaced at a time."""

    def __init__(self, model: Predictor, references: Iterable[JobProfile]) -> None:
        """Set the model to explain and the `references`, the profiles from which typical facts are taken.

        `model` must be without a table of measured pairs, which answers by workload name and ignores facts.
        """
        self._model, self._references = model, tuple(references)

    def log_slowdown(self, victim: JobProfile, neighbour: JobProfile, device_type: str, mode: SharingMode) -> float:
        """Return the model's predicted log slowdown, even for a pair from which the model would abstain."""
        return float(self._log_slowdowns([victim, neighbour], [(0, 1)], device_type, mode)[0])

    def effects(
        self, victim: JobProfile, neighbour: JobProfile, device_type: str, mode: SharingMode
    ) -> tuple[FactEffect, ...]:
        """Return the effect of every fact that both the job and a reference have, largest first."""
        effects: list[FactEffect] = []
        jobs, pairs = [victim, neighbour], [(0, 1)]
        for of_victim, profile in ((True, victim), (False, neighbour)):
            for name, unit, value, reference, changes in self._replacements(profile, device_type):
                jobs.append(replace(profile, **changes))
                pairs.append((len(jobs) - 1, 1) if of_victim else (0, len(jobs) - 1))
                effects.append(
                    FactEffect(
                        of_victim=of_victim, fact=name, value=value, reference=reference, unit=unit, log_change=NAN
                    )
                )
        answers = self._log_slowdowns(jobs, pairs, device_type, mode)
        changed = (
            replace(effect, log_change=float(answers[0] - answer))
            for effect, answer in zip(effects, answers[1:], strict=True)
        )
        return tuple(sorted(changed, key=lambda effect: -abs(effect.log_change)))

    def _replacements(
        self, profile: JobProfile, device_type: str
    ) -> Iterable[tuple[str, str, float, float, dict[str, Any]]]:
        """Yield (name, unit, value, reference, changed fields) for each fact that can be replaced."""
        for fact in FACTS:
            value = fact.value(profile)
            if math.isnan(value):
                continue
            reference = self._reference(fact, device_type)
            if reference is not None:
                yield fact.name, fact.unit, value, reference[0], reference[1]
        yield IDENTITY, "", NAN, NAN, {"workload": UNKNOWN_WORKLOAD}

    def _reference(self, fact: Fact, device_type: str) -> tuple[float, dict[str, Any]] | None:
        """Return the reference number and profile fields of a fact, or None where no reference profile has it."""
        candidates = [profile for profile in self._references if profile.device_type == device_type] or self._references
        values = sorted(
            ((fact.value(profile), profile) for profile in candidates if not math.isnan(fact.value(profile))),
            key=lambda value_and_profile: value_and_profile[0],
        )
        if not values:
            return None
        if len(fact.fields) == 1 and fact.fields != ("kernels",):
            median = float(np.median([value for value, _ in values]))
            return median, {fact.fields[0]: median}
        value, profile = values[(len(values) - 1) // 2]
        return value, {name: getattr(profile, name) for name in fact.fields}

    def _log_slowdowns(
        self, jobs: list[JobProfile], pairs: list[tuple[int, int]], device_type: str, mode: SharingMode
    ) -> Any:
        """Return float64[p]: the log slowdown of each pair of indices into `jobs`, extrapolated where necessary."""
        indices = np.array(pairs, dtype=np.int64)
        answer = self._model.predict_pairs(
            PairBatch(
                jobs=tuple(jobs),
                victim=indices[:, 0],
                neighbour=indices[:, 1],
                device_type=device_type,
                mode=mode,
                allow_extrapolation=True,
            )
        )
        return np.log(answer.median)
