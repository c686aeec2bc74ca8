"""Shifts: what changed since the model and the measured table were made, for one job or for a whole domain.

The shift of a pair's log slowdown is ::

    constant + factor · log ŝ + of both families + own[victim] + harm[neighbour]

The first three belong to an epoch of the domain (device type and mode), which `smoothing` finds: before the
first such change they are exactly 0. `own` and `harm` drift by themselves a little with every window, and by much where
`change_points` finds that a job has changed. The terms are updated as if they were independent before each window.
"""

from dataclasses import replace

from interfere.predict.online.belief_state import (
    BeliefState,
    DomainBelief,
    DomainKey,
    LevelShift,
    PairObservation,
    Update,
)
from interfere.predict.online.prior import WorkloadKey

# Standard deviations of log slowdown before any change: two measurements of one public pair differ by .012 to .017.
OWN_VAR, HARM_VAR = 0.02**2, 0.01**2
# After a change of the software stack. A campaign repeated two years later differed by .2 to .3 of log slowdown, a
# third of it proportional to the log slowdown.
EPOCH_OWN_VAR, EPOCH_HARM_VAR, EPOCH_FAMILY_VAR = 0.2**2, 0.15**2, 0.1**2
EPOCH_CONSTANT_VAR, EPOCH_FACTOR_VAR = 0.15**2, 0.35**2
EPOCH_PAIR_VAR = 0.05**2  # of one pair, that no effect of its jobs explains
# Drift per window. With a noise of .05 the belief then follows a ramp of .5 % a window with a lag of 6 %.
OWN_DRIFT, HARM_DRIFT = 4e-6, 4e-7
CHANGED_LEVEL_VAR = 0.1**2  # least variance of a job's own shift after its level changed
FACTOR_RANGE = (0.0, 1.5)  # of the log slowdown that the factor multiplies


def domain_of(key: WorkloadKey) -> DomainKey:
    """The device type and mode of a workload's key."""
    return key[1], key[2]


def own_shift(state: BeliefState, key: WorkloadKey, domain: DomainBelief | None) -> tuple[float, float]:
    """(mean, variance) of the shift of a job as victim."""
    return _job_shift(state.own_shift.get(key), domain, OWN_VAR, EPOCH_OWN_VAR)


def harm_shift(state: BeliefState, key: WorkloadKey, domain: DomainBelief | None) -> tuple[float, float]:
    """(mean, variance) of the shift of a job as neighbour."""
    return _job_shift(state.harm_shift.get(key), domain, HARM_VAR, EPOCH_HARM_VAR)


def family_shift(
    state: BeliefState, key: DomainKey, domain: DomainBelief, families: tuple[str, str]
) -> tuple[float, float]:
    """(mean, variance) of the shift of all pairs of these two families since the last change of the domain."""
    stored = state.family_shift.get((*key, *families))
    if stored is None:
        return 0.0, EPOCH_FAMILY_VAR
    return stored.mean, stored.variance + EPOCH_FAMILY_VAR * (domain.epoch - stored.epoch)


def expected_shift(
    state: BeliefState, observation: PairObservation, domain: DomainBelief | None
) -> tuple[float, float]:
    """(mean, variance) of the shift of an observed pair."""
    own_mean, own_var = own_shift(state, observation.victim, domain)
    harm_mean, harm_var = harm_shift(state, observation.neighbour, domain)
    mean, variance = own_mean + harm_mean, own_var + harm_var
    if domain is None or not domain.epoch:
        return mean, variance
    (constant, factor), (v00, v01, v11) = domain.mean, domain.covariance
    x = min(max(observation.log_predicted, FACTOR_RANGE[0]), FACTOR_RANGE[1])
    mean, variance = mean + constant + factor * x, variance + v00 + 2.0 * x * v01 + x * x * v11
    if all(observation.families):
        of_families = family_shift(state, domain_of(observation.victim), domain, observation.families)
        mean, variance = mean + of_families[0], variance + of_families[1]
    return mean, variance


def learn_shift(state: BeliefState, observation: PairObservation, domain: DomainBelief, update: Update) -> DomainBelief:
    """Update every shift of an observed pair; the domain's belief after it."""
    for table, key, (mean, variance), drift in (
        (state.own_shift, observation.victim, own_shift(state, observation.victim, domain), OWN_DRIFT),
        (state.harm_shift, observation.neighbour, harm_shift(state, observation.neighbour, domain), HARM_DRIFT),
    ):
        table[key] = LevelShift(
            mean + variance * update.gain,
            variance - update.shrink * variance**2 + update.forgetting * drift * domain.drift_scale,
            domain.epoch,
        )
    if not domain.epoch:
        return domain
    if all(observation.families):
        domain_key = domain_of(observation.victim)
        mean, variance = family_shift(state, domain_key, domain, observation.families)
        state.family_shift[*domain_key, *observation.families] = LevelShift(
            mean + variance * update.gain, variance - update.shrink * variance**2, domain.epoch
        )
    return _learn_domain_shift(domain, observation.log_predicted, update)


def begin_job_epoch(state: BeliefState, key: WorkloadKey, domain: DomainBelief, change: float, variance: float) -> None:
    """Move a job's own shift by `change`, and make it uncertain."""
    mean, before = own_shift(state, key, domain)
    state.changed_jobs.add(key)
    state.own_shift[key] = LevelShift(mean + change, max(before, variance, CHANGED_LEVEL_VAR), domain.epoch)


def epoch_covariance(domain: DomainBelief) -> tuple[float, float, float]:
    """Covariance of constant and factor after one more change of the domain."""
    v00, v01, v11 = domain.covariance
    return v00 + EPOCH_CONSTANT_VAR, v01, v11 + EPOCH_FACTOR_VAR


def _job_shift(
    stored: LevelShift | None, domain: DomainBelief | None, prior_var: float, epoch_var: float
) -> tuple[float, float]:
    epoch = domain.epoch if domain else 0
    if stored is None:
        return 0.0, prior_var + epoch_var * min(epoch, 1)
    return stored.mean, stored.variance + (epoch_var if stored.epoch < epoch else 0.0)


def _learn_domain_shift(domain: DomainBelief, log_predicted: float, update: Update) -> DomainBelief:
    x = min(max(log_predicted, FACTOR_RANGE[0]), FACTOR_RANGE[1])
    v00, v01, v11 = domain.covariance
    gain, shrink = update.gain, update.shrink
    p0, p1 = v00 + x * v01, v01 + x * v11  # covariance with the pair's shift
    return replace(
        domain,
        mean=(domain.mean[0] + p0 * gain, domain.mean[1] + p1 * gain),
        covariance=(v00 - shrink * p0 * p0, v01 - shrink * p0 * p1, v11 - shrink * p1 * p1),
    )
