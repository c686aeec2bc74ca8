"""Smoothing of a domain: its recent windows are explained together, with effects of reporters and devices among them.

One window at a time, nobody can tell a reporter that is off from a job that is slow: `Effects.learn` gives each effect
its share. The smoother takes all recent windows of a domain (device type and mode) at once, from what was believed
before the first of them (the anchor), in one field (`gaussian`) of the terms in `window_terms`. What it finds of
reporters and devices corrects their later windows; whether the software stack of the domain has changed is a
comparison of two fields.

Law 1: the state after a smoothing is a function of the anchor and the recent windows. Law 2: keys of other domains, and
of jobs without a recent window, stay as they are.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from interfere.predict.field.gaussian import (
    Posterior,
    Scales,
    determined_groups,
    learn_variances,
    learned_scales,
)
from interfere.predict.field.terms import Floats, Ints, Rows, Term
from interfere.predict.field.window_terms import (
    LEAST_VAR,
    MEDIAN_SQUARE,
    answer_terms,
    first_noise,
    noise_sources,
    nuisance_effects,
    nuisance_terms,
    rows_of,
)
from interfere.predict.online import shifts
from interfere.predict.online.belief_state import (
    BeliefState,
    DomainBelief,
    DomainKey,
    LevelShift,
    PairObservation,
    RecentWindow,
)
from interfere.predict.online.belief_state import Posterior as JobPosterior
from interfere.predict.online.change_points import LevelTest
from interfere.predict.online.effects import FORGETTING, Effects
from interfere.predict.online.noise import USUAL_NOISE_VAR
from interfere.predict.online.prior import WorkloadKey
from interfere.predict.online.unseen_device import DeviceBelief

MAX_RECENT = 256  # rows that are smoothed together: one factorisation of them takes 3 ms
FIRST_SMOOTHING, FIRST_INTERVAL, MAX_INTERVAL = 24, 16, 128  # windows of the domain
CONTRADICTIONS = 3  # windows that are hardly believed, after which the next smoothing comes early
CONTRADICTED_SHARE = 8  # one in so many, at least
EARLY_SHARE = 4  # an early smoothing comes after this fraction of the interval
# Of learning the variances, from few and from many windows: of an upgrade that families feel, shown by a tenth of the
# pairs of Gavel's and Lucid's tables, the errors are .053 and .043; with 3 rounds of learning after it is found, .057
# and .048.
ROUNDS_OF_FEW, ROUNDS_OF_MANY, FEW_WINDOWS = 8, 3, 128
NEW_LEVEL_VAR = 1.0  # of the level of a job or pair that has changed: threefold either way is one standard deviation
# Log marginal likelihood ratios of a changed stack. Distorted tables reach 5 to 12 in 32 to 40 windows, 11 to 20 in 50.
# Noise of 20 % where training saw 2.4 %, and lies that grow to × 5 beside it, reach 7.
MIN_CHANGED_WINDOWS, CHANGED_RATIO, EXPECTED_RATIO, SUSPECT_RATIO, SETTLED_RATIO = 24, 8.0, 3.0, 2.0, -10.0
MIN_VICTIMS = 4  # among whose windows a change of the stack is looked for
NEWEST = (24, 48, 96)  # numbers of newest windows among which a change of the stack is looked for
MIN_SCATTER_WINDOWS = 16  # since the last smoothing, whose errors tell of the noise
MIN_REPORTERS = 3  # with a noise of their own while a change is looked for
NOISE_LOG_SD = 0.5  # of what is known of the noise: threefold is two standard deviations
SOME_ERROR, LARGE_ERROR = 1.0, 2.0  # median |error| of a source ÷ its expected deviation: .67 without any change


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explanation:
    """The posterior of the effects that explain some windows."""

    observations: tuple[PairObservation, ...]
    posterior: Posterior
    scales: Scales
    scale_groups: Scales  # effects that the scale of the pairs was learned from, now and earlier
    device: DeviceBelief | None  # the basis of an unseen device type, with the pairs of the windows

    @property
    def usual_noise_var(self) -> float:
        """Return the median over the sources of the learned variance of their noise."""
        sources = noise_sources(self.observations).tolist()
        return float(np.median(list(dict(zip(sources, self.posterior.rows.noise_var.tolist(), strict=True)).values())))


class Smoother:
    """Smooths the domains of one belief."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    @property
    def _state(self) -> BeliefState:
        return self._effects.state

    def is_due(self, domain: DomainBelief) -> bool:
        """Return whether the recent windows of a domain should be smoothed now; those of one job tell nothing apart."""
        if domain.window_count < FIRST_SMOOTHING:
            return False
        since = domain.window_count - domain.smoothed_at
        early = max(domain.smoothing_interval // EARLY_SHARE, FIRST_INTERVAL // 2)
        contradicted = domain.contradictions >= max(CONTRADICTIONS, since / CONTRADICTED_SHARE)
        if since < domain.smoothing_interval and (since < early or not contradicted):
            return False
        first = domain.recent[0].observation.victim
        several = any(window.observation.victim != first for window in domain.recent)
        return several or len(domain.recent) >= 2 * MAX_RECENT

    def smooth(self, key: DomainKey, domain: DomainBelief) -> tuple[DomainBelief, int]:
        """Explain the recent windows of a domain anew.

        Return its belief, and the number of windows since its software stack changed where that was found now, else 0.
        """
        anchor, windows = self._anchor(key), list(domain.recent)
        before = anchor.state.domains[key]
        # 1. Has the software stack changed, and since when?
        start, changed, is_suspect, is_settled = self._changed_stack(anchor, key, domain, windows)
        is_new_epoch = changed is not None and domain.epoch == before.epoch
        if start > 0:
            anchor = self._moved(anchor, key, before, windows[:start], self._prior_noise_var, start=before.scales)
            windows = windows[start:]
        under = changed or before
        # 2. All windows together.
        noise_var = self._prior_noise_var
        if not is_new_epoch:
            noise_var = max(noise_var, _scatter(windows[domain.smoothed_at - domain.window_count :]))
        scales = {} if is_new_epoch else domain.scales
        explanation = self._explain(anchor, key, under, windows, noise_var=noise_var, start=scales)
        smoothed = self._write(explanation, self._state, key, replace(under, scales=explanation.scales))
        self._state.nuisances[key] = nuisance_effects(explanation.observations, explanation.posterior)
        # 3. Where the windows are many, the older half leaves.
        since = len(windows) if is_new_epoch else 0
        if len(windows) >= MAX_RECENT:
            half = len(windows) // 2
            anchor = self._moved(
                anchor, key, under, windows[:half], explanation.usual_noise_var, start=explanation.scales
            )
            windows = windows[half:]
        self._state.anchors[key] = anchor.state
        interval = domain.smoothing_interval if is_suspect else min(2 * domain.smoothing_interval, MAX_INTERVAL)
        is_young = domain.window_count < MAX_INTERVAL  # every few windows may tell of a change of the stack
        if is_new_epoch or is_young or len(windows) < MIN_CHANGED_WINDOWS:
            interval = FIRST_INTERVAL
        smoothed = replace(
            smoothed,
            noise_var=explanation.usual_noise_var,
            window_count=domain.window_count,
            pair_count=domain.pair_count,
            smoothed_at=domain.window_count,
            smoothing_interval=interval,
            contradictions=0,
            is_settled=is_settled,
            scales=explanation.scales,
            recent=tuple(windows),
        )
        return smoothed, since

    def forget_former_level(self, observation: PairObservation, domain: DomainBelief, test: LevelTest) -> DomainBelief:
        """Drop the recent windows of a job or pair from before its level changed; the anchor no longer knows it."""
        pair = None if test.several_neighbours else observation.neighbour
        left = test.window_count - 1  # of the new level; the newest window is not among the recent ones yet
        kept = []
        for window in reversed(domain.recent):
            seen = window.observation
            if seen.victim == observation.victim and pair in (None, seen.neighbour):
                left -= seen.reporter == observation.reporter
                if left < 0:
                    continue
            kept.append(window)
        key = shifts.domain_of(observation.victim)
        anchor = self._anchor(key)
        anchor = anchor.of_state(anchor.state.copy())
        before = anchor.state.domains[key]
        if pair is None:
            shifts.begin_job_epoch(anchor.state, observation.victim, before, 0.0, NEW_LEVEL_VAR)
        else:
            belief = anchor.of_pair(observation, before)
            evidence = belief.evidence(belief.mean, belief.variance + NEW_LEVEL_VAR, before.epoch)
            anchor.keep_evidence(observation, evidence)
        self._state.anchors[key] = anchor.state
        return replace(domain, recent=tuple(reversed(kept)))

    # --- the anchor -------------------------------------------------------------------------------------------------

    def _anchor(self, key: DomainKey) -> Effects:
        """Return the effects as they were before the first recent window of a domain."""
        stored = self._state.anchors.get(key)
        return self._effects.of_state(stored or BeliefState(domains={key: self._effects.fresh_domain(key)}))

    def _moved(
        self,
        anchor: Effects,
        key: DomainKey,
        domain: DomainBelief,
        windows: Sequence[RecentWindow],
        noise_var: float,
        *,
        start: Scales,
    ) -> Effects:
        """Return the anchor after these windows, which leave the recent ones."""
        moved = anchor.of_state(anchor.state.copy())
        explanation = self._explain(anchor, key, domain, windows, noise_var=noise_var, start=start)
        learned = replace(domain, scales=explanation.scales, scale_groups=explanation.scale_groups)
        moved.state.domains[key] = self._write(explanation, moved.state, key, learned)
        return moved

    # --- the explanation --------------------------------------------------------------------------------------------

    def _explain(
        self,
        anchor: Effects,
        key: DomainKey,
        domain: DomainBelief,
        windows: Sequence[RecentWindow],
        *,
        noise_var: float,
        start: Scales,
    ) -> _Explanation:
        """Return what explains some windows; `domain` says in which epoch of its stack, `noise_var` is expected."""
        observations = tuple(window.observation for window in windows)
        answers, device = answer_terms(anchor, key, domain, observations, noise_var)
        terms = [*answers, *nuisance_terms(observations, noise_var)]
        rows = rows_of(self._effects, observations, noise_var)
        # The prior variance of pairs is what earlier windows told: scales relative to it are those of these windows.
        relative = {name: scale / domain.pair_scale if name == "pair" else scale for name, scale in start.items()}
        posterior = self._learned(rows, terms, noise_sources(observations), start=relative)
        scales = dict(learned_scales(posterior, terms))
        if "pair" in scales:
            scales["pair"] *= domain.pair_scale
        earlier = domain.scale_groups.get("pair", 0.0)
        return _Explanation(
            observations=observations,
            posterior=posterior,
            scales=scales,
            scale_groups={"pair": earlier + determined_groups(posterior, "pair")} if "pair" in scales else {},
            device=device,
        )

    def _learned(
        self,
        rows: Rows,
        terms: Sequence[Term],
        sources: Ints,
        *,
        start: Scales = MappingProxyType({}),
        is_usual_known: bool = True,
    ) -> Posterior:
        """Return the posterior with learned variances and noise."""
        return learn_variances(
            rows,
            terms,
            rounds=ROUNDS_OF_FEW if len(rows) <= FEW_WINDOWS else ROUNDS_OF_MANY,
            robust_rounds=1 if is_usual_known else 0,
            sources=sources,
            start=start,
            start_noise_var=first_noise(rows, terms[0].groups, sources, is_usual_known=is_usual_known),
        )

    @property
    def _prior_noise_var(self) -> float:
        return max(self._effects.prior.noise_var, USUAL_NOISE_VAR)

    # --- a change of the software stack -----------------------------------------------------------------------------

    def _changed_stack(
        self, anchor: Effects, key: DomainKey, domain: DomainBelief, windows: Sequence[RecentWindow]
    ) -> tuple[int, DomainBelief | None, bool, bool]:
        """Return the first window of a changed stack, the belief about the domain since (None without a change),
        whether a change is suspected, and whether the windows speak clearly against one.
        """
        before = anchor.state.domains[key]
        changed = replace(
            before,
            epoch=before.epoch + 1,
            covariance=shifts.epoch_covariance(before),
            scales={name: scale for name, scale in before.scales.items() if name != "pair"},
            scale_groups={},
        )
        if domain.epoch > before.epoch:  # found earlier, and still within the recent windows: is it still believed?
            is_believed = self._ratio(anchor, key, before, changed, windows) > 0.0
            return 0, changed if is_believed else None, False, False
        if len(windows) < MIN_CHANGED_WINDOWS:
            return 0, None, False, False
        if domain.is_settled and not domain.contradictions and not self._looks_changed(windows, domain, SOME_ERROR):
            return 0, None, False, True
        starts = [0]
        if self._looks_changed(windows, domain, LARGE_ERROR):
            starts += [len(windows) - n for n in NEWEST if n < len(windows)]
        ratios = [self._ratio(anchor, key, before, changed, windows[start:]) for start in starts]
        start = starts[int(np.argmax(ratios))]
        victims = {window.observation.victim for window in windows[start:]}
        expected = any(other.epoch > before.epoch for name, other in self._state.domains.items() if name != key)
        if len(victims) < MIN_VICTIMS or max(ratios) <= (EXPECTED_RATIO if expected else CHANGED_RATIO):
            return 0, None, max(ratios) > SUSPECT_RATIO, max(ratios) < SETTLED_RATIO
        return start, changed, True, False

    def _ratio(
        self,
        anchor: Effects,
        key: DomainKey,
        before: DomainBelief,
        changed: DomainBelief,
        windows: Sequence[RecentWindow],
    ) -> float:
        """Return the log marginal likelihood of windows under a changed stack minus that under none.

        Each may choose the noise, at a cost that grows with the distance of the usual noise from what is known of it.
        The variance of single pairs stays as usual: errors that no two pairs share are noise or lies.
        """
        observations = [window.observation for window in windows]
        rows = rows_of(self._effects, observations, self._prior_noise_var)
        sources, evidence = noise_sources(observations), []
        if len({each.reporter for each in observations}) < MIN_REPORTERS:
            sources = np.zeros_like(sources)
        for domain in (before, changed):
            answers, _ = answer_terms(anchor, key, domain, observations, self._prior_noise_var)
            answers = [replace(term, prior_groups=math.inf) if term.name == "pair" else term for term in answers]
            terms = [*answers, *nuisance_terms(observations, self._prior_noise_var)]
            posterior = self._learned(rows, terms, sources, is_usual_known=False)
            noise = dict(zip(sources.tolist(), posterior.rows.noise_var.tolist(), strict=True))
            distance = 0.5 * math.log(float(np.median(list(noise.values()))) / self._prior_noise_var) / NOISE_LOG_SD
            evidence.append(posterior.log_evidence - 0.5 * distance**2)
        return evidence[1] - evidence[0]

    def _looks_changed(self, windows: Sequence[RecentWindow], domain: DomainBelief, error: float) -> bool:
        """Return whether the late errors of at least half of the sources are larger than so many deviations."""
        late, noise_var = windows[-NEWEST[1] :], max(domain.noise_var, self._effects.prior.noise_var)
        errors: dict[Hashable, list[float]] = {}
        for window, source in zip(late, noise_sources([each.observation for each in late]).tolist(), strict=True):
            errors.setdefault(source, []).append(abs(window.error) / math.sqrt(window.variance + noise_var))
        return 2 * sum(float(np.median(each)) > error for each in errors.values()) >= len(errors)

    # --- results ----------------------------------------------------------------------------------------------------

    def _write(
        self, explanation: _Explanation, target: BeliefState, key: DomainKey, domain: DomainBelief
    ) -> DomainBelief:
        """Write the posterior of every effect by itself into a state; return the domain's belief."""
        posterior, epoch = explanation.posterior, domain.epoch
        # 1. Levels of jobs, as of now.
        own, drift = posterior.term("own"), posterior.term("drift")
        each = np.arange(len(own.labels))
        now = np.ones((len(each), drift.loadings.shape[1]))
        levels = posterior.predict({"own": (each, now[:, :1]), "drift": (each, now)})
        target.own_shift.update(_level_shifts(own, *levels, epoch))
        target.harm_shift.update(_level_shifts(posterior.term("harm"), *posterior.levels("harm"), epoch))
        # 2. What the stack did.
        if domain.epoch:
            mean, covariance = posterior.effects("domain")
            (v00, v01), (_, v11) = covariance[0].tolist()
            constant, factor = mean[0].tolist()
            domain = replace(domain, mean=(constant, factor), covariance=(v00, v01, v11))
        if posterior.has("family"):
            families = _level_shifts(posterior.term("family"), *posterior.levels("family"), epoch)
            target.family_shift.update({(*key, *names): shift for names, shift in families.items()})
        # 3. Errors of the model and of the device type.
        if posterior.has("error of victim"):
            self._write_model_errors(explanation, target)
        if explanation.device is not None:
            mean, covariance = posterior.effects("unseen device")
            target.unseen_devices[key] = replace(explanation.device, mean=mean[0], covariance=covariance[0])
        # 4. Pairs.
        target.domains[key] = domain
        self._write_pairs(explanation, target, domain)
        return domain

    def _write_model_errors(self, explanation: _Explanation, target: BeliefState) -> None:
        """Write the posteriors of the model's errors on the jobs, with the forgetting of their windows."""
        families: dict[WorkloadKey, str] = {}
        for each in explanation.observations:
            families |= dict(zip((each.victim, each.neighbour), each.families, strict=True))
        prior = self._effects.prior
        for name, posteriors, role in (
            ("error of victim", target.as_victim, prior.as_victim),
            ("error of neighbour", target.as_neighbour, prior.as_neighbour),
        ):
            term = explanation.posterior.term(name)
            count = np.bincount(term.groups[term.groups >= 0], minlength=len(term.labels))
            means, covariances = explanation.posterior.effects(name)
            for g in np.flatnonzero(count).tolist():
                job = term.labels[g]
                before = self._effects.prior_covariance(job, role, families[job])
                forgotten = min(FORGETTING * count[g], 1.0) * (before - covariances[g])
                posteriors[job] = JobPosterior(mean=means[g], covariance=covariances[g] + forgotten, prior=before)

    def _write_pairs(self, explanation: _Explanation, target: BeliefState, domain: DomainBelief) -> None:
        """Write the evidence of every pair's own windows: what they tell beyond the effects of its jobs."""
        posterior, effects = explanation.posterior, self._effects.of_state(target)
        pair = posterior.term("pair")
        newest = np.zeros(len(pair.labels), dtype=np.int64)
        newest[pair.groups] = np.arange(len(pair.groups))
        asked = {
            term.name: (term.groups[newest], np.ones_like(term.loadings[newest]))  # the drift up to now
            if term.name == "drift"
            else (term.groups[newest], term.loadings[newest])
            for term in posterior.terms
            if term.is_answer
        }
        for k, mean, variance in zip(newest.tolist(), *map(np.ndarray.tolist, posterior.predict(asked)), strict=True):
            belief = effects.of_pair(explanation.observations[k], domain)
            bound = effects.least_change(explanation.observations[k]) if posterior.at_bound[k] else 0.0
            evidence = belief.evidence(bound + mean, max(variance, LEAST_VAR), domain.epoch)
            effects.keep_evidence(explanation.observations[k], evidence)


def _scatter(windows: Sequence[RecentWindow]) -> float:
    """Return the variance of windows that their predictions did not know of, by the median; 0 for few windows."""
    if len(windows) < MIN_SCATTER_WINDOWS:
        return 0.0
    squares = np.array([window.error**2 - window.variance for window in windows])
    return float(np.median(squares)) / MEDIAN_SQUARE


def _level_shifts(term: Term, mean: Floats, variance: Floats, epoch: int) -> dict[Any, LevelShift]:
    """Return the shift of each label of a term."""
    return {
        label: LevelShift(level, spread, epoch)
        for label, level, spread in zip(term.labels, mean.tolist(), variance.tolist(), strict=True)
    }
