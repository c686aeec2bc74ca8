"""One deadline does not split the jobs that it does not concern, and whoever stays longer than it stays long enough."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.costs import candidates as lengths
from interfere.policy.costs.candidates import company_lengths
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.policy.subproblems import problem_size
from interfere.records import Device, Job, Limits, ObjectiveKind, Snapshot, Window
from interfere.serving.decisions import check_size
from tests.policy.oracle.verdicts import check_seeds
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NOW_S = 1_000.0


def crowd(pending: int, devices: int, residents: int, deadline_s: float = math.nan) -> Snapshot:
    """Jobs of 40 workloads and as many lengths as there are jobs, of which the first has the deadline."""
    rng = np.random.default_rng(0)

    def job(name: str) -> Job:
        return Job(id=name, workload=f"w{rng.integers(40)}", remaining_s=float(rng.lognormal(8.0, 1.0)))

    jobs = [job(f"p{k}") for k in range(pending)]
    jobs[0] = replace(jobs[0], deadline_s=deadline_s, remaining_s=60.0)
    places = tuple(
        Device(id=f"d{k}", type=DEVICE, residents=(job(f"r{k}"),) if k < residents else ()) for k in range(devices)
    )
    return Snapshot(pending=tuple(jobs), devices=places, now_s=NOW_S, limits=Limits.of(max_slowdown=3.0))


def test_one_deadline_in_a_large_cluster_is_neither_refused_nor_a_problem_of_another_size() -> None:
    seen, timeless = crowd(300, 10_000, 9_500, NOW_S + 3_600.0), crowd(300, 10_000, 9_500)
    check_size(seen)
    assert problem_size(timeless, 24).cells < problem_size(seen, 24).cells < 600_000


def test_the_plan_of_a_large_cluster_with_a_deadline_keeps_it_and_claims_no_bound() -> None:
    names = [f"w{k}" for k in range(40)]
    rng = np.random.default_rng(1)
    table = {(victim, other): float(1 + rng.gamma(1.0, 0.3)) for victim in names for other in names}
    seen = crowd(60, 600, 580, NOW_S + 3_600.0)
    plan = plan_pending_jobs(context(seen, TablePredictor(table), resolver(*map(profile, names))))
    assert company_lengths(seen).is_rounded
    assert all(math.isfinite(level.lower_bound) for level in plan.levels)
    due = plan.actions[0]
    assert 60.0 * due.slowdown <= 3_600.0
    few = replace(seen, devices=seen.devices[480:])
    assert not company_lengths(few).is_rounded


def test_jobs_that_outlast_every_deadline_are_alike_and_those_with_one_stay_as_they_are() -> None:
    jobs = [Job(id="due", workload="a", remaining_s=50.0, deadline_s=NOW_S + 100.0)]
    jobs += [Job(id=f"j{k}", workload="a", remaining_s=s) for k, s in enumerate((150.0, 200.0, 300.0, 9e9, math.nan))]
    seen = Snapshot(pending=tuple(jobs), devices=(Device(id="d", type=DEVICE),), now_s=NOW_S)
    found = [job.remaining_s for job in company_lengths(seen).snapshot.pending]
    assert found[:5] == [50.0, 150.0, 200.0, 200.0, 200.0]
    assert math.isnan(found[5])
    assert company_lengths(company_lengths(seen).snapshot).snapshot == company_lengths(seen).snapshot


@pytest.mark.parametrize(
    "reads",
    [
        {"objective": ObjectiveKind.COMPLETION_TIME},
        {"objective": ObjectiveKind.DEADLINE_MISSES},
        {"limits": Limits(guest_ends_first=True)},
        {"devices": (Device(id="d", type=DEVICE, windows=(Window(from_s=0.0, until_s=NOW_S + 500.0),)),)},
    ],
)
def test_where_something_reads_them_lengths_stay_as_they_are(reads: dict[str, object]) -> None:
    seen = replace(crowd(5, 1, 0, NOW_S + 100.0), **reads)  # type: ignore[arg-type]  # the fields of a snapshot
    assert company_lengths(seen).snapshot is seen


def test_rounded_lengths_break_no_rule_and_prove_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "MAX_LENGTHS", 1)
    monkeypatch.setattr(lengths, "KEPT_LENGTHS", 1)
    tally = check_seeds(range(9_000, 9_150))
    assert tally.faults == []
    assert tally.optimal < tally.clusters
