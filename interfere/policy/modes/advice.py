"""Which sharing mode a set of jobs should have on a device, and what to measure to be surer.

1. What every mode that the device can have would do, as far as it is known. 2. Those that the memory and the risk of
missing a latency target allow. 3. Of these the one with the highest expected throughput within targets, if it exceeds
what the jobs do one after the other. 4. The expected gain from knowing each mode exactly: how much better the choice
would then be.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.devices import possible_modes
from interfere.policy.modes.outlook import GroupPredictor, JobToAdvise, ModeScenarios, outlook_of
from interfere.records import NAN
from interfere.records.limits import DEFAULT_RISK
from interfere.records.mode_advice import (
    ModeAdvice,
    ModeMeasurement,
    ModeOutlook,
    ModeReasonKind,
    ModeRecommendation,
)
from interfere.sharing_modes import OptionalSharingMode, SharingMode

Floats = NDArray[np.float64]
ONE_AFTER_ANOTHER: OptionalSharingMode = ""  # in place of a mode
PROBABLY_FITS = 0.5  # least probability that the jobs fit the memory
LEAST_GAIN = 0.001  # of relative throughput: a measurement that gains less is not worth its time
_SEED = 0  # of the order in which the scenarios of different modes meet


def advise(
    jobs: Sequence[JobToAdvise],
    device_type: str,
    predict: GroupPredictor,
    *,
    risk: float = DEFAULT_RISK,
    modes: Sequence[SharingMode] | None = None,
) -> ModeAdvice:
    """Return the advice for these jobs on one device of a type.

    `risk`: the largest probability with which a job may miss a latency target that it keeps alone; below it the risk
    of a miss is weighed against throughput. `modes`: those that are compared; None: all that the device can have.
    """
    candidates = possible_modes(device_type) if modes is None else modes
    scenarios = [outlook_of(mode, jobs, device_type, predict) for mode in candidates]
    choice = _Choice.of(scenarios, jobs, risk)
    certainty, gains = choice.certainty(), choice.gains()
    outlooks = tuple(_with_certainty(each.outlook, certainty, gains) for each in scenarios)
    recommendation = choice.recommendation(certainty)
    return ModeAdvice(
        device_type=device_type,
        modes=outlooks,
        recommendation=replace(recommendation, reason=render_recommendation(recommendation)),
        measure=_most_useful_first(outlooks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The known modes, the modes that may be taken, and the best mode."""

    known: tuple[ModeScenarios, ...]
    fitting: tuple[ModeScenarios, ...]  # of these, those that probably fit the memory
    allowed: tuple[ModeScenarios, ...]  # of these, those that keep the latency targets but for the risk
    values: Mapping[
        OptionalSharingMode, Floats
    ]  # of what may be taken, one after another too: float64[s] or float64[1]
    best: OptionalSharingMode  # the mode, or ONE_AFTER_ANOTHER
    jobs: tuple[JobToAdvise, ...]
    risk: float

    @classmethod
    def of(cls, modes: Sequence[ModeScenarios], jobs: Sequence[JobToAdvise], risk: float) -> "_Choice":
        """Return the choice among these modes and running one after the other."""
        known = tuple(each for each in modes if each.outlook.known)
        fitting = tuple(each for each in known if not each.outlook.feasibility < PROBABLY_FITS)
        allowed = tuple(each for each in fitting if not largest_miss(each.outlook, jobs) > risk)
        # Each has the device for one k-th of the time, at its full speed.
        in_turn = np.full(1, np.mean([job.slowdown_cap >= 1.0 for job in jobs]))
        values: dict[OptionalSharingMode, Floats] = {ONE_AFTER_ANOTHER: in_turn}
        values |= {each.outlook.mode: each.within_targets for each in allowed}
        best = max(values, key=lambda mode: float(values[mode].mean()))
        return cls(known=known, fitting=fitting, allowed=allowed, values=values, best=best, jobs=tuple(jobs), risk=risk)

    @property
    def throughput(self) -> float:
        """Expected throughput within targets of the best."""
        return float(self.values[self.best].mean())

    def certainty(self) -> dict[OptionalSharingMode, float]:
        """Probability of everything that may be taken that nothing else does more, modes being independent."""
        rng, size = np.random.default_rng(_SEED), max(map(len, self.values.values()))
        samples = {mode: rng.permutation(np.resize(values, size)) for mode, values in self.values.items()}
        return {
            mode: float(np.mean(np.all([values >= samples[other] for other in samples if other != mode], axis=0)))
            for mode, values in samples.items()
        }

    def gains(self) -> dict[OptionalSharingMode, float]:
        """Return the expected value of perfect information about each mode that fits: the gain in throughput of
        choosing after the truth of that mode is known.

        A mode that turns out to break a target is then not taken, and one that turns out to keep them all may be.
        """
        gains: dict[OptionalSharingMode, float] = {}
        for each in self.fitting:
            mode = each.outlook.mode
            others = max(float(values.mean()) for name, values in self.values.items() if name != mode)
            revealed = np.where(each.keeps_targets, each.within_targets, -np.inf)
            gains[mode] = max(0.0, float(np.maximum(revealed, others).mean()) - self.throughput)
        return gains

    def recommendation(self, certainty: Mapping[OptionalSharingMode, float]) -> ModeRecommendation:
        """Return the mode to take with the reason, not yet in words."""
        kind, candidates = self._reason()
        other = max(candidates, key=lambda each: each.expected, default=None)
        told = next((each for each in self.known if each.outlook.mode == self.best), other)
        if kind is ModeReasonKind.NOTHING_KNOWN:
            return ModeRecommendation(kind=kind, risk=self.risk)
        return ModeRecommendation(
            kind=kind,
            mode=self.best,
            throughput=self.throughput,
            other_mode=other.outlook.mode if other else "",
            other_throughput=other.expected if other else NAN,
            probability_best=certainty[self.best],
            miss_probability=largest_miss(told.outlook, self.jobs) if told else NAN,
            risk=self.risk,
        )

    def _reason(self) -> tuple[ModeReasonKind, Sequence[ModeScenarios]]:
        """Return why the best is the best, and the modes with which it is compared."""
        excluded = [each for each in self.fitting if each.outlook.mode not in self.values]
        gaining = [each for each in excluded if float(each.throughput.mean()) > self.throughput]
        if self.best != ONE_AFTER_ANOTHER:
            others = [each for each in self.allowed if each.outlook.mode != self.best]
            only = len(self.known) == 1
            return (ModeReasonKind.ONLY_KNOWN_MODE if only else ModeReasonKind.HIGHEST_THROUGHPUT), others
        if not self.known:
            return ModeReasonKind.NOTHING_KNOWN, ()
        if not self.fitting:
            return ModeReasonKind.DOES_NOT_FIT, ()
        if gaining:
            return ModeReasonKind.TARGETS_EXCLUDE_MODES, gaining
        return ModeReasonKind.SHARING_LOSES, self.fitting


def largest_miss(outlook: ModeOutlook, jobs: Sequence[JobToAdvise]) -> float:
    """Return the largest probability that a job misses its latency target, of jobs that meet it when they run alone.

    NaN where no job has such a target.
    """
    probabilities = [
        under.miss_probability
        for under, job in zip(outlook.jobs, jobs, strict=True)
        if not np.isnan(under.miss_probability) and job.slowdown_cap >= 1
    ]
    return max(probabilities, default=NAN)


def _with_certainty(
    outlook: ModeOutlook, certainty: Mapping[OptionalSharingMode, float], gains: Mapping[OptionalSharingMode, float]
) -> ModeOutlook:
    """The mode with the probability that it is best, and with what measuring it would gain, where that is worth it."""
    gain = gains.get(outlook.mode, NAN)
    measure = tuple(replace(each, expected_gain=gain) for each in outlook.measure if not gain < LEAST_GAIN)
    return replace(outlook, probability_best=certainty.get(outlook.mode, NAN), measure=measure)


def _most_useful_first(outlooks: Sequence[ModeOutlook]) -> tuple[ModeMeasurement, ...]:
    """Return what to measure, by expected gain; what nothing is known of comes last."""
    measurements = dict.fromkeys(each for outlook in outlooks for each in outlook.measure)
    gain_first = sorted(measurements, key=lambda each: -np.nan_to_num(each.expected_gain))
    return tuple(gain_first)


def render_recommendation(recommendation: ModeRecommendation) -> str:
    """Return the recommendation as one sentence for a person."""
    mode, other = recommendation.mode, recommendation.other_mode
    throughput, than = f"{recommendation.throughput:.2f}", f"{recommendation.other_throughput:.2f}"
    misses = recommendation.miss_probability
    risk = "" if math.isnan(misses) else f"; the largest probability of a missed latency target is {misses:.2f}"
    match recommendation.kind:
        case ModeReasonKind.HIGHEST_THROUGHPUT:
            beside = f", {than} under {other}" if other else ""
            return f"{mode}: relative throughput {throughput}{beside}, 1 one after the other{risk}"
        case ModeReasonKind.ONLY_KNOWN_MODE:
            return f"{mode}, the only mode of which anything is known: relative throughput {throughput}{risk}"
        case ModeReasonKind.SHARING_LOSES:
            return f"run the jobs one after the other: {than} under {other}, the best known mode, is no gain"
        case ModeReasonKind.TARGETS_EXCLUDE_MODES:
            return (
                f"run the jobs one after the other: {other} would break a latency target with probability {misses:.2f}"
            )
        case ModeReasonKind.DOES_NOT_FIT:
            return "run the jobs one after the other: together the jobs do not fit the memory of the device"
        case ModeReasonKind.NOTHING_KNOWN:
            return "nothing is known of any mode: measure one of those listed"
