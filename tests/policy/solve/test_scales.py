"""Certificates hold at every scale of the weights: of light jobs beside heavy ones, and of all jobs together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.context import PlanningContext
from interfere.policy.solve import builder
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.records import Job, ObjectiveKind, Snapshot, SolveStatus
from tests.policy.oracle.seats import FewKindsCluster, SeatedCluster

FORMS = {"listed": {}, "patterns": {"MAX_LISTED_JOBS": 4}, "cut": {"MAX_LISTED_JOBS": 8, "MAX_JOBS_OF_COLUMNS": 60}}
# In these, bounds were above the value or not proved: prices of heavy jobs cancel out; a light job counts less than the
# tolerance beside a heavy one.
REFUTED = (("listed", 82), ("listed", 170), ("listed", 285), ("patterns", 284), ("patterns", 392), ("cut", 82))
RANDOM = (*(("listed", seed) for seed in range(12)), *(("patterns", seed) for seed in range(8)))


def drawn(form: str, seed: int, decades: float) -> SeatedCluster:
    """Return a random cluster of devices with three seats, whose weights span as many decades around 1."""
    cluster = (FewKindsCluster if form == "patterns" else SeatedCluster)(seed)
    rng = np.random.default_rng(seed)

    def reweighted(jobs: Sequence[Job]) -> Iterator[Job]:
        half = decades / 2
        for job in jobs:
            yield replace(job, weight=float(np.clip(10 ** rng.uniform(-half, half), 10**-half, 10**half)))

    pending = tuple(reweighted(cluster.snapshot.pending))
    devices = tuple(
        replace(device, seats=3, residents=tuple(reweighted(device.residents))) for device in cluster.snapshot.devices
    )
    weighted = rng.random() < 0.6
    objective = ObjectiveKind.WEIGHTED_EXCESS if weighted else cluster.snapshot.objective
    cluster.snapshot = replace(cluster.snapshot, pending=pending, devices=devices, objective=objective)
    return cluster


@pytest.mark.parametrize(("form", "seed"), [*REFUTED, *RANDOM])
def test_what_is_claimed_of_weights_over_twelve_decades_is_confirmed(
    form: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FORMS[form].items():
        monkeypatch.setattr(builder, name, value)
    refuted: list[Sequence[str]] = []
    cluster = drawn(form, seed, decades=12)
    plan_pending_jobs(replace(cluster.context(), report_failed_checks=lambda _, failed: refuted.append(failed)))
    assert refuted == []


def scaled(context: PlanningContext, factor: float) -> Snapshot:
    """Return the snapshot of a context with all weights multiplied by a factor."""

    def jobs(given: Sequence[Job]) -> tuple[Job, ...]:
        return tuple(replace(job, weight=job.weight * factor) for job in given)

    devices = tuple(replace(device, residents=jobs(device.residents)) for device in context.snapshot.devices)
    return replace(context.snapshot, pending=jobs(context.snapshot.pending), devices=devices)


@pytest.mark.parametrize("factor", [2.0**-9, 2.0**9, 1e-3, 700.0])
@pytest.mark.parametrize(("form", "seed"), [("listed", 0), ("listed", 3), ("listed", 7), ("patterns", 0), ("cut", 1)])
def test_weights_times_a_factor_are_values_and_bounds_times_it(
    form: str, seed: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a power of two exactly: nothing is then rounded otherwise, so that a constant in some units would show."""
    for name, value in FORMS[form].items():
        monkeypatch.setattr(builder, name, value)
    cluster = drawn(form, seed, decades=6)
    cluster.snapshot = replace(cluster.snapshot, objective=ObjectiveKind.WEIGHTED_EXCESS, objective_terms=())
    context = cluster.context()
    before, after = plan_pending_jobs(context), plan_pending_jobs(context.with_snapshot(scaled(context, factor)))
    within = 0.0 if factor in (2.0**-9, 2.0**9) else 1e-9
    assert after.status is before.status
    assert before.status is SolveStatus.OPTIMAL or form != "listed"
    for own, other in zip(after.levels, before.levels, strict=True):
        assert own.value == pytest.approx(factor * other.value, rel=within, abs=0.0)
        assert own.lower_bound == pytest.approx(factor * other.lower_bound, rel=within, abs=0.0)
    assert [action.kind for action in after.actions] == [action.kind for action in before.actions]
