"""Deadlines are judged at the risk that the request asks, not at another one.

A job needs 100 s by its median and 200 s at 90 %: 41 s at 5 %, 115 s at 60 %, 159 s at 80 % and 243 s at 95 %.
"""

import math

import pytest

from interfere.policy.deadlines.guarantees import find_infeasible_deadlines
from interfere.policy.decide import decide
from interfere.records import ActionKind, Limits, ScopeLedger, Snapshot
from tests.policy.deadline_cases import ALL, KNOWN, NOW_S, PREDICTOR, device, job
from tests.tables import context

UNCERTAIN = {"remaining_p90_s": 200.0}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(("risk", "infeasible"), [(0.05, False), (0.5, True)])
def test_a_pending_deadline_is_infeasible_at_the_asked_risk(*, partial: bool, risk: float, infeasible: bool) -> None:
    snapshot = Snapshot(
        pending=(job("x", 80.0, **UNCERTAIN),),
        devices=(device(),),
        now_s=NOW_S,
        partial=partial,
        limits=Limits.of(risk=risk),
    )
    assert ("x" in find_infeasible_deadlines(context(snapshot, PREDICTOR, KNOWN)).rules) is infeasible


@pytest.mark.parametrize(("risk", "given_up"), [(0.05, False), (0.5, True)])
def test_the_deadline_of_a_resident_is_given_up_at_the_asked_risk(*, risk: float, given_up: bool) -> None:
    resident = job("r", 80.0, **UNCERTAIN)
    snapshot = Snapshot(pending=(), devices=(device(resident),), now_s=NOW_S, limits=Limits.of(risk=risk))
    found = find_infeasible_deadlines(context(snapshot, PREDICTOR, KNOWN)).snapshot
    assert math.isnan(found.devices[0].residents[0].deadline_s) is given_up


@pytest.mark.parametrize(("risk", "left_s", "accepted"), [(0.4, 130.0, True), (0.2, 130.0, False), (0.2, 170.0, True)])
def test_a_deadline_is_accepted_at_the_asked_risk(*, risk: float, left_s: float, accepted: bool) -> None:
    snapshot = Snapshot(
        pending=(job("x", left_s, **UNCERTAIN),),
        devices=(device(),),
        now_s=NOW_S,
        limits=Limits.of(risk=risk, allowed=ALL),
    )
    decision = decide(context(snapshot, PREDICTOR, KNOWN), ScopeLedger(scope="default"))
    (action,) = decision.plan.actions
    assert action.kind is ActionKind.START_ALONE
    assert action.accepted is accepted
    assert len(decision.ledger.accepted_deadlines) == accepted
