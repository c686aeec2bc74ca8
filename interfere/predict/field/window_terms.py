"""The terms that explain the windows of a domain: effects of jobs, pairs and the device type, of reporters and devices.

Answers are what a later prediction reads ::

    constant + factor · log ŝ + families + own[victim] + drift[victim] + harm[neighbour] + model errors of both + pair

Nuisances are what later windows of the same reporter or device are corrected by ::

    reporter + reporter × job + reporter × time + device + device × time

Effects of a reporter exist for a job where two reporters saw it, and effects of a device where it ran on two: elsewhere
nobody can tell them from the job's. Where that holds for most jobs of a reporter or device, its effect is known from
these and counts for its other jobs too. The priors of the answers are what was believed before the first window (the
anchor). Law: the terms are a function of the anchor and the windows.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from interfere.predict.field.gaussian import Posterior
from interfere.predict.field.terms import ABSENT, Floats, Ints, Rows, Term
from interfere.predict.online import shifts
from interfere.predict.online.belief_state import (
    DomainBelief,
    DomainKey,
    NuisanceEffect,
    NuisanceEffects,
    PairObservation,
)
from interfere.predict.online.effects import NO_PAIRS, Effects, changed_variance
from interfere.predict.online.prior import WorkloadKey
from interfere.predict.online.unseen_device import DeviceBelief, PairPoints

# The level of a job drifts as a random walk: steps before its last 2, 4, 8, ... windows, whose variances add up.
STEPS = (2, 4, 8, 16, 32, 64, 128)
# Standard deviations of log slowdown before anything is known: honest reporters of one job differ by less than windows.
NUISANCE_SD = 0.01
BLOCK = 40  # rows: a reporter or device that changes is followed in steps of this many windows of its domain
SHARED_GROUPS, OWN_GROUP = 3.0, 1.0  # groups that a prior variance is worth
LEAST_VAR = 1e-9
SURPRISE = 3.0  # standard deviations
MEDIAN_SQUARE = 0.455  # of a standard normal variable


def rows_of(anchor: Effects, observations: Sequence[PairObservation], noise_var: float) -> Rows:
    """Return windows as rows of the field: log observed - log predicted; no neighbour speeds a job up."""
    return Rows(
        values=np.array([each.log_observed - each.log_predicted for each in observations]),
        noise_var=np.array([noise_var + each.composition_var for each in observations]),
        weights=np.array([each.weight for each in observations]),
        bounds=np.array([anchor.least_change(each) for each in observations]),
    )


def noise_sources(observations: Sequence[PairObservation]) -> Ints:
    """Return int64[p]: whose noise each row has: its reporter's, or its job's where one reporter sees all."""
    if len({each.reporter for each in observations}) > 1:
        return _codes([each.reporter for each in observations])[0]
    return _codes([each.victim for each in observations])[0]


def answer_terms(
    anchor: Effects, key: DomainKey, domain: DomainBelief, observations: Sequence[PairObservation], noise_var: float
) -> tuple[list[Term], DeviceBelief | None]:
    """Return the answer terms of windows, and the basis that a device type without training data has with them.

    `domain` says in which epoch of its stack the windows are explained, `noise_var` is the usual noise of a window.
    """
    terms = _level_terms(anchor, domain, observations, noise_var)
    if domain.epoch:
        terms += _stack_terms(anchor, key, domain, observations)
    if not all(each.measured for each in observations):
        terms += _model_error_terms(anchor, observations)
    device, beyond_basis = None, np.zeros(len(observations))
    if domain.is_unseen:
        points = [PairPoints.of_pair(each.coordinates, each.log_predicted) for each in observations]
        device = anchor.of_unseen_device(observations[0]).with_basis(points)
        projection, beyond_basis = device.project(PairPoints.concatenated(points))
        terms.append(
            Term(
                name="unseen device",
                is_bounded=True,
                groups=np.zeros(len(observations), dtype=np.int64),
                loadings=projection,
                covariance=device.covariance[None],
                mean=device.mean[None],
            )
        )
    terms.append(_pair_term(anchor, domain, observations, beyond_basis))
    return terms, device


def _level_terms(
    anchor: Effects, domain: DomainBelief, observations: Sequence[PairObservation], noise_var: float
) -> list[Term]:
    """Return the terms of the jobs' levels as victim, of the drift of these, and of their levels as neighbour."""
    one = np.ones((len(observations), 1))
    victim_of, victims = _codes([each.victim for each in observations])
    neighbour_of, neighbours = _codes([each.neighbour for each in observations])
    own = np.array([shifts.own_shift(anchor.state, victim, domain) for victim in victims])
    harm = np.array([shifts.harm_shift(anchor.state, neighbour, domain) for neighbour in neighbours])
    values = np.array([each.log_observed - each.log_predicted for each in observations])
    errors = values - own[victim_of, 0] - float(np.median(values))
    reach = np.minimum(np.array([0, *STEPS]), np.bincount(victim_of)[:, None])  # no job drifts before its first row
    return [
        Term(
            name="own",
            is_bounded=True,
            groups=victim_of,
            loadings=one,
            covariance=own[:, 1, None, None],
            mean=own[:, :1],
            labels=tuple(victims),
            prior_groups=SHARED_GROUPS,
            is_shared=False,
            start=own[:, 1] + _surprise(errors, victim_of, own[:, 1] + noise_var),
        ),
        Term(
            name="drift",
            is_bounded=True,
            groups=victim_of,
            loadings=(_ages(victim_of)[:, None] < np.array(STEPS)).astype(np.float64),
            covariance=shifts.OWN_DRIFT * np.diff(reach, axis=1)[:, :, None] * np.eye(len(STEPS)),
            labels=tuple(victims),
            prior_groups=OWN_GROUP,
            is_shared=False,
        ),
        Term(
            name="harm",
            is_bounded=True,
            groups=neighbour_of,
            loadings=one,
            covariance=harm[:, 1, None, None],
            mean=harm[:, :1],
            labels=tuple(neighbours),
            prior_groups=SHARED_GROUPS,
            is_shared=False,
        ),
    ]


def _stack_terms(
    anchor: Effects, key: DomainKey, domain: DomainBelief, observations: Sequence[PairObservation]
) -> list[Term]:
    """Return the terms of what a changed software stack did to all jobs, and to all pairs of two families."""
    p = len(observations)
    x = np.clip([each.log_predicted for each in observations], *shifts.FACTOR_RANGE)
    v00, v01, v11 = domain.covariance
    terms = [
        Term(
            name="domain",
            is_bounded=True,
            groups=np.zeros(p, dtype=np.int64),
            loadings=np.column_stack([np.ones(p), x]),
            covariance=np.array([[[v00, v01], [v01, v11]]]),
            mean=np.array([domain.mean]),
        )
    ]
    family_of, families = _codes([each.families if all(each.families) else None for each in observations])
    if families:
        family = np.array([shifts.family_shift(anchor.state, key, domain, names) for names in families])
        terms.append(
            Term(
                name="family",
                is_bounded=True,
                groups=family_of,
                loadings=np.ones((p, 1)),
                covariance=family[:, 1, None, None],
                mean=family[:, :1],
                labels=tuple(families),
                prior_groups=SHARED_GROUPS,
            )
        )
    return terms


def _model_error_terms(anchor: Effects, observations: Sequence[PairObservation]) -> list[Term]:
    """Return the terms of the model's errors on the jobs in both roles; measured pairs have none."""
    of_rows, width = [anchor.model_errors(each) for each in observations], anchor.prior.width
    measured = np.array([each.measured for each in observations])
    terms = []
    for role, name in enumerate(("error of victim", "error of neighbour")):
        codes, keys = _codes([(each.victim, each.neighbour)[role] for each in observations])
        covariance, mean = np.zeros((len(keys), width, width)), np.zeros((len(keys), width))
        for code, found in zip(codes.tolist(), of_rows, strict=True):
            posterior, covariance[code], _ = found[role]
            mean[code] = posterior.mean if posterior is not None else 0.0
        terms.append(
            Term(
                name=name,
                is_bounded=True,
                groups=np.where(measured, ABSENT, codes),
                loadings=np.array([found[role][2] for found in of_rows]),
                covariance=covariance,
                mean=mean,
                labels=tuple(keys),
            )
        )
    return terms


def _pair_term(
    anchor: Effects, domain: DomainBelief, observations: Sequence[PairObservation], beyond_basis: Floats
) -> Term:
    """Return the term of single pairs; `beyond_basis` float64[p] is variance that an unseen device adds to them.

    Its scale is learned after a change of the stack only; before, it is known from repeated measurements. What earlier
    windows told of it counts as many effects as they determined.
    """
    pair_of, pairs = _codes([(each.victim, each.neighbour) for each in observations])
    first = np.unique(pair_of, return_index=True)[1]
    prior = np.array([_pair_prior(anchor, observations[k], domain) for k in first])
    return Term(
        name="pair",
        groups=pair_of,
        loadings=np.ones((len(observations), 1)),
        covariance=(prior[:, 1] + beyond_basis[first])[:, None, None],
        mean=prior[:, :1],
        labels=tuple(pairs),
        prior_groups=SHARED_GROUPS + domain.scale_groups.get("pair", 0.0) if domain.epoch else math.inf,
    )


def _pair_prior(anchor: Effects, observation: PairObservation, domain: DomainBelief) -> tuple[float, float]:
    """Return mean and variance of a pair's effect beyond those of its jobs, at the anchor."""
    scale = anchor.prior.variance_scale_of(observation.log_predicted)
    variance = anchor.pair_prior_var(domain, measured=observation.measured) * scale
    own = anchor.state.pairs.get(observation.victim, NO_PAIRS).get(observation.neighbour[0])
    if own is None:
        return 0.0, variance
    later = changed_variance(own, scale, domain)
    left = 1.0 / (1.0 / max(variance - later, LEAST_VAR) + own.information)
    before = anchor.of_pair(observation, anchor.state.domains.get(shifts.domain_of(observation.victim)))
    mean = (own.weighted_mean - own.information * before.error_mean) * left
    return mean, left + own.extra_var + later


def nuisance_terms(observations: Sequence[PairObservation], noise_var: float) -> list[Term]:
    """Return the terms of reporters and devices of windows; none where no job was seen by two of them."""
    values = np.array([each.log_observed - each.log_predicted for each in observations])
    victim_of, _ = _codes([each.victim for each in observations])
    block = np.arange(len(observations))[::-1] // BLOCK  # counted from the newest window
    terms = []
    for kind in ("reporter", "device"):
        sources = [getattr(each, kind) for each in observations]
        seen, compared = seen_by_two(observations, kind), compared_sources(observations, kind)
        names = [name if ok or name in compared else None for name, ok in zip(sources, seen, strict=True)]
        source_of, labels = _codes(names)
        if not labels:
            continue
        deviations = _deviations(values, victim_of, source_of)
        medians = _medians(deviations, source_of, len(labels))
        terms.append(_nuisance_term(kind, source_of, labels, medians**2))
        time_of, times = _codes([name and (name, int(k)) for name, k in zip(names, block, strict=True)])
        terms.append(_nuisance_term(f"{kind} and time", time_of, times))
        if kind == "reporter":
            job_of, jobs = _codes(
                [(each.reporter, each.victim[0]) if ok else None for each, ok in zip(observations, seen, strict=True)]
            )
            far = _surprise(deviations, job_of, np.full(len(jobs), NUISANCE_SD**2 + noise_var), least_rows=2)
            terms.append(_nuisance_term(f"{kind} and job", job_of, jobs, far))
    return terms


def _nuisance_term(name: str, groups: Ints, labels: Sequence[Hashable], start: Floats | None = None) -> Term:
    """Return a nuisance term. `start` float64[g]: first guesses of squared effects where each has its own variance."""
    variance = np.full(len(labels), NUISANCE_SD**2)
    return Term(
        name=name,
        groups=groups,
        loadings=np.ones((len(groups), 1)),
        covariance=variance[:, None, None],
        labels=tuple(labels),
        prior_groups=OWN_GROUP if name in ("reporter", "device") else SHARED_GROUPS,
        is_shared=start is None,
        start=None if start is None else variance + start,
        is_answer=False,
    )


def nuisance_effects(observations: Sequence[PairObservation], posterior: Posterior) -> NuisanceEffects:
    """Return what later windows of the same reporters and devices are corrected by."""

    def effects(name: str) -> dict[Any, NuisanceEffect]:
        if not posterior.has(name):
            return {}
        mean, variance = posterior.levels(name)
        labels = posterior.term(name).labels
        found = zip(labels, mean.tolist(), variance.tolist(), strict=True)
        return {label: NuisanceEffect(level, spread) for label, level, spread in found}

    def newest(name: str) -> dict[str, NuisanceEffect]:
        """Return the effect of the newest block of each source, which has the lowest number."""
        by_source: dict[str, tuple[int, NuisanceEffect]] = {}
        for (source, block), effect in effects(name).items():
            if source not in by_source or block < by_source[source][0]:
                by_source[source] = block, effect
        return {source: effect for source, (_, effect) in by_source.items()}

    def shared(kind: str) -> frozenset[str]:
        kept = zip(observations, seen_by_two(observations, kind), strict=True)
        return frozenset(observation.victim[0] for observation, ok in kept if ok)

    return NuisanceEffects(
        reporters=effects("reporter"),
        reporter_jobs=effects("reporter and job"),
        reporters_lately=newest("reporter and time"),
        devices=effects("device"),
        devices_lately=newest("device and time"),
        seen_by_two=shared("reporter"),
        on_two_devices=shared("device"),
        compared_reporters=compared_sources(observations, "reporter"),
        compared_devices=compared_sources(observations, "device"),
    )


def seen_by_two(observations: Sequence[PairObservation], kind: str) -> list[bool]:
    """Return for each window whether its victim was seen by two named reporters, or ran on two devices (`kind`)."""
    by_victim: dict[WorkloadKey, set[str]] = {}
    for each in observations:
        if name := getattr(each, kind):
            by_victim.setdefault(each.victim, set()).add(name)
    return [bool(getattr(each, kind)) and len(by_victim.get(each.victim, ())) > 1 for each in observations]


def compared_sources(observations: Sequence[PairObservation], kind: str) -> frozenset[str]:
    """Return the reporters, or the devices (`kind`), at least half of whose jobs others saw too."""
    jobs: dict[str, dict[WorkloadKey, bool]] = {}
    for each, ok in zip(observations, seen_by_two(observations, kind), strict=True):
        if name := getattr(each, kind):
            jobs.setdefault(name, {})[each.victim] = ok
    return frozenset(name for name, seen in jobs.items() if any(seen.values()) and 2 * sum(seen.values()) >= len(seen))


def first_noise(rows: Rows, victims: Ints, sources: Ints, *, is_usual_known: bool) -> Floats:
    """Return float64[p]: a first guess of each source's noise.

    It is the prior noise, and how far the source scatters more than the usual source; or where the usual noise is not
    known, how far it scatters more than the prior says.
    """
    squares = _deviations(rows.values, victims, sources) ** 2
    scatter = _medians(squares, sources, int(sources.max()) + 1) / MEDIAN_SQUARE
    usual = float(np.median(scatter)) if is_usual_known else 0.0
    return np.asarray(rows.noise_var + np.maximum(scatter - usual, 0.0)[sources])


def _surprise(errors: Floats, groups: Ints, variance: Floats, *, least_rows: int = 1) -> Floats:
    """Return float64[g]: the squared level of groups of rows that all err to one side, where it is a surprise; else 0.

    Law: groups of fewer rows, of rows on both sides, and of a level within three standard deviations have 0.
    """
    inside = groups >= 0
    count = np.bincount(groups[inside], minlength=len(variance))
    low, high = np.full(len(variance), np.inf), np.full(len(variance), -np.inf)
    np.minimum.at(low, groups[inside], errors[inside])
    np.maximum.at(high, groups[inside], errors[inside])
    least = np.where(low > 0.0, low, np.where(high < 0.0, -high, 0.0))  # of the absolute errors
    surprising = (count >= least_rows) & (least**2 > SURPRISE**2 * variance)
    return np.where(surprising, (0.5 * (low + high)) ** 2, 0.0)


def _deviations(values: Floats, victims: Ints, sources: Ints) -> Floats:
    """Return float64[p]: how far each row is from the median over the sources of its victim; 0 without source."""
    inside = sources >= 0
    cells, cell_of = np.unique(np.where(inside, victims * (sources.max() + 1) + sources, ABSENT), return_inverse=True)
    of_cells = _medians(values, cell_of, len(cells))
    victim_of_cell = np.where(cells >= 0, cells // (sources.max() + 1), ABSENT)
    middle = _medians(of_cells, victim_of_cell, int(victims.max()) + 1)
    return np.where(inside, values - middle[victims], 0.0)


def _medians(values: Floats, groups: Ints, count: int) -> Floats:
    """Return float64[count]: the median of each group's values; 0 for a group without."""
    order = np.lexsort((values, groups))
    ordered, group_of = values[order], groups[order]
    first, last = np.searchsorted(group_of, np.arange(count)), np.searchsorted(group_of, np.arange(count), side="right")
    has = last > first
    low, high = np.where(has, (first + last - 1) // 2, 0), np.where(has, (first + last) // 2, 0)
    return np.where(has, 0.5 * (ordered[low] + ordered[high]), 0.0) if len(ordered) else np.zeros(count)


def _codes(labels: Sequence[Hashable | None]) -> tuple[Ints, list[Any]]:
    """Return int64[p]: the place of each label among the different ones, ABSENT for None; and these."""
    index: dict[Hashable, int] = {}
    codes = [ABSENT if label is None else index.setdefault(label, len(index)) for label in labels]
    return np.array(codes, dtype=np.int64), list(index)


def _ages(groups: Ints) -> Ints:
    """Return int64[p]: how many later rows each row's group has."""
    seen: dict[int, int] = {}
    ages = np.zeros(len(groups), dtype=np.int64)
    for k in range(len(groups) - 1, -1, -1):
        ages[k] = seen.get(int(groups[k]), 0)
        seen[int(groups[k])] = int(ages[k]) + 1
    return ages
