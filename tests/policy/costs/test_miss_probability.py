"""The chance that a pair passes a soft cap, and plans by it."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.policy.slowdowns import LEVELS, exceedance, probability_of_any
from interfere.records import Device, Job, Limits, ObjectiveKind, ObjectiveTerm, Snapshot
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver


def past(ahead: float, back: float, sd: float, cap: float) -> float:
    """The chance that either of two slowdowns with these medians passes the cap, from their quantiles."""
    shifts = np.exp(sd * np.array([NormalDist().inv_cdf(level) for level in LEVELS]))
    return float(probability_of_any([exceedance(median * shifts, cap) for median in (ahead, back)]))


@pytest.mark.parametrize(
    ("ahead", "back", "sd"), [(1.4, 1.1, 0.1), (1.5, 1.5, 0.05), (1.2, 1.6, 0.2), (1.05, 1.05, 0.1)]
)
def test_it_is_the_chance_of_the_distribution_that_the_quantiles_are_of(ahead: float, back: float, sd: float) -> None:
    below = [NormalDist(math.log(median), sd).cdf(math.log(1.5)) for median in (ahead, back)]
    found = past(ahead, back, sd, 1.5)
    assert found == pytest.approx(1 - below[0] * below[1], abs=0.02)  # linear between 13 levels


def test_it_rises_with_the_slowdown_and_falls_with_the_cap() -> None:
    by_slowdown = [past(s, 1.0, 0.1, 1.5) for s in np.linspace(1.0, 2.5, 31)]
    by_cap = [past(1.4, 1.3, 0.1, cap) for cap in np.linspace(1.0, 2.5, 31)]
    assert by_slowdown == sorted(by_slowdown)
    assert by_cap == sorted(by_cap, reverse=True)
    assert (by_slowdown[0], by_slowdown[-1]) == (0.0, 1.0)


def test_an_answer_without_spread_is_certain() -> None:
    assert past(1.4, 1.3, 0.0, 1.5) == 0.0
    assert past(1.4, 1.6, 0.0, 1.5) == 1.0


def test_fewest_pairs_past_the_cap_first_then_the_least_slowdown() -> None:
    """ab and cd add less, but one of them is past 1.5; ac and bd are both below."""
    names = "abcd"
    table = {(v, n): 1.45 for v in names for n in names}
    table |= dict.fromkeys([("a", "b"), ("b", "a")], 1.0) | {("c", "d"): 1.6, ("d", "c"): 1.0}
    table |= dict.fromkeys([("a", "d"), ("d", "a"), ("b", "c"), ("c", "b")], 1.49)
    snapshot = Snapshot(
        pending=tuple(Job(id=name, workload=name) for name in names),
        devices=tuple(Device(id=f"d{k}", type=DEVICE) for k in range(2)),
        limits=Limits.of(soft_cap=1.5),
        objective_terms=(
            ObjectiveTerm(kind=ObjectiveKind.PAIRS_PAST_CAP, weight=100.0),
            ObjectiveTerm(kind=ObjectiveKind.TOTAL_SLOWDOWN),
        ),
    )
    known = resolver(*(profile(name) for name in names))
    found = plan(context(snapshot, TablePredictor(table), known, "d"))
    assert {frozenset((p.job_id, p.partner_id)) for p in found.pairs} == {frozenset("ac"), frozenset("bd")}
    assert found.cost == pytest.approx(4 * 1.45)


def test_without_a_soft_cap_the_objective_is_refused_with_the_field() -> None:
    snapshot = Snapshot(pending=(), devices=(Device(id="d", type=DEVICE),), objective=ObjectiveKind.PAIRS_PAST_CAP)
    with pytest.raises(InvalidInputError) as caught:
        plan(context(snapshot, TablePredictor({}), resolver(), "d"))
    assert [v.field for v in caught.value.violations] == ["limits.soft_cap"]
