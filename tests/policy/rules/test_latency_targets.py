"""Latency targets by the p99 of services, worked out by hand: of a step a beside b 1.1 ×, of its p99 4 ×."""

import math
from dataclasses import replace

import pytest

from interfere.policy.answer.ranking import rank
from interfere.records import Action, ActionKind, Device, Job, JobProfile, Limits, RuleKind, Snapshot
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

NAMES = ("a", "b")
STEPS = TablePredictor({(v, n): 1.1 for v in NAMES for n in NAMES})
SLOWDOWN_OF_P99 = {("a", "b"): 4.0, ("a", "a"): 2.0, ("b", "a"): 2.0, ("b", "b"): 2.0}
TAILS = TablePredictor(SLOWDOWN_OF_P99)
STEP_S = profile("a").step_time_s
P99_S = 3 * STEP_S  # alone
SERVICE = replace(profile("a"), latency_p50_s=1.2 * STEP_S, latency_p99_s=P99_S)
LIMITS = Limits.of(risk=0.5)  # medians decide


def decided(target_s: float, service: JobProfile = SERVICE, tails: TablePredictor | None = TAILS) -> Action:
    """What a plan does with a service beside a resident b, the only device's."""
    device = Device(id="d", type=DEVICE, residents=(Job(id="host", workload="b"),))
    snapshot = Snapshot(
        pending=(Job(id="api", workload="a", latency_target_s=target_s),), devices=(device,), limits=LIMITS
    )
    asked = context(snapshot, STEPS, resolver(service, profile("b")), "d")
    (action, *_) = plan(replace(asked, latency_predictor=tails)).actions
    return action


@pytest.mark.parametrize(("times_p99", "joins"), [(4.01, True), (3.99, False), (1.01, False), (0.5, False)])
def test_the_p99_decides_where_it_is_known_and_predicted(times_p99: float, joins: bool) -> None:
    """4 × its p99 alone is allowed by a target above that, though its mean would keep any target of 1.1 steps."""
    kind = ActionKind.START_SHARED if joins else ActionKind.WAIT
    assert decided(times_p99 * P99_S).kind is kind


@pytest.mark.parametrize("p99_in_steps", [0.1, 3.0])
@pytest.mark.parametrize(("times_p99", "slowdown", "joins"), [(4.01, 4.0, True), (3.99, 4.0, False), (0.9, 0.5, False)])
def test_a_target_shorter_than_a_step_of_many_requests_is_judged_by_the_p99_alone(
    p99_in_steps: float, times_p99: float, slowdown: float, joins: bool
) -> None:
    """Nor is a p99 that was measured as smaller beside another job taken for less than alone."""
    service = replace(SERVICE, latency_p99_s=p99_in_steps * STEP_S)
    tails = TablePredictor(SLOWDOWN_OF_P99 | {("a", "b"): slowdown})
    kind = ActionKind.START_SHARED if joins else ActionKind.WAIT
    assert decided(times_p99 * service.latency_p99_s, service, tails).kind is kind


def test_a_target_below_the_p99_alone_is_missed_alone() -> None:
    service = replace(SERVICE, latency_p99_s=0.1 * STEP_S)
    for times_p99, reason in ((0.9, "alone (p99): api runs alone"), (1.1, "")):
        job = Job(id="api", workload="a", latency_target_s=times_p99 * service.latency_p99_s)
        snapshot = Snapshot(pending=(job,), devices=(Device(id="d", type=DEVICE),), limits=LIMITS)
        asked = context(snapshot, STEPS, resolver(service), "d")
        (action,) = plan(replace(asked, latency_predictor=TAILS)).actions
        assert action.kind is ActionKind.START_ALONE
        assert action.reason.endswith(reason)
        assert (action.rule.kind is RuleKind.LATENCY_TARGET) == bool(reason)


@pytest.mark.parametrize(("times_step", "joins"), [(1.11, True), (1.09, False)])
@pytest.mark.parametrize("case", ["no model of latencies", "its p99 alone is unknown", "its p99 is not predicted"])
def test_else_the_mean_decides(case: str, times_step: float, joins: bool) -> None:
    silent = TablePredictor(dict.fromkeys(SLOWDOWN_OF_P99, math.nan))
    service = replace(SERVICE, latency_p99_s=math.nan) if case.startswith("its p99 alone") else SERVICE
    tails = {"no": None, "its": TAILS}[case.split(maxsplit=1)[0]] if "not predicted" not in case else silent
    kind = ActionKind.START_SHARED if joins else ActionKind.WAIT
    assert decided(times_step * STEP_S, service, tails).kind is kind


def test_residents_are_protected_and_the_reason_says_p99() -> None:
    host = Job(id="api", workload="a", latency_target_s=3.9 * P99_S)
    device = Device(id="d", type=DEVICE, residents=(host,))
    resolve = resolver(SERVICE, profile("b"))
    snapshot = Snapshot(pending=(Job(id="guest", workload="b"),), devices=(device,), limits=LIMITS)
    (refused,) = plan(replace(context(snapshot, STEPS, resolve, "d"), latency_predictor=TAILS)).refused
    rule = refused.rule
    assert (rule.kind, rule.detail, rule.job_id) == (RuleKind.LATENCY_TARGET, "latency_p99", "api")
    assert rule.slowdown * rule.step_time_s == pytest.approx(4 * P99_S)
    could_ms, target_ms = 4e3 * P99_S, 3.9e3 * P99_S
    assert refused.reason.startswith(f"latency target: the p99 of api could be {could_ms:.3g} ms > {target_ms:.3g} ms")
    (ranked,) = rank(snapshot.pending[0], (device,), STEPS, catalogue(resolve), LIMITS, latency_predictor=TAILS)
    assert (ranked.feasible, ranked.reason) == (False, refused.reason)


def test_beside_several_others_their_effects_multiply() -> None:
    """Of three on a device the service is slowed down 4 · 4 times: nobody measured more."""
    for times_p99, joins in ((16.1, True), (15.9, False)):
        hosts = tuple(Job(id=f"host{k}", workload="b") for k in range(2))
        device = Device(id="d", type=DEVICE, residents=hosts, seats=3)
        job = Job(id="api", workload="a", latency_target_s=times_p99 * P99_S)
        snapshot = Snapshot(pending=(job,), devices=(device,), limits=Limits.of(risk=0.5, min_joint_throughput=0.0))
        asked = context(snapshot, STEPS, resolver(SERVICE, profile("b")), "d")
        (action, *_) = plan(replace(asked, latency_predictor=TAILS)).actions
        assert action.kind is (ActionKind.START_SHARED if joins else ActionKind.WAIT)
