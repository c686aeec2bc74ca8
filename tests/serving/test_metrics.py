"""Metrics of decisions: refusals and actions are counted by the kind of their rule, a label of bounded words."""

import pytest
from prometheus_client import generate_latest

from interfere.policy.solve.planner import plan
from interfere.records import Device, Job, Limits, Snapshot
from interfere.serving.metrics import Metrics
from interfere.serving.workers.process import CountingMetrics
from tests.tables import DEVICE, TablePredictor, context, profile, resolver


def test_refusals_and_actions_are_counted_by_rule() -> None:
    residents = (Job(id="r0", workload="a"), Job(id="r1", workload="module:factory"))
    snapshot = Snapshot(
        pending=(Job(id="x", workload="a"),),
        devices=tuple(Device(id=f"d{k}", type=DEVICE, residents=(job,)) for k, job in enumerate(residents)),
        limits=Limits.of(max_slowdown=1.5),
    )
    metrics = Metrics()
    metrics.count_decision(plan(context(snapshot, TablePredictor({("a", "a"): 2.0}), resolver(profile("a")))), 0.1)
    text = generate_latest(metrics.registry).decode()
    assert 'interfere_refusals_total{rule="request_slowdown_cap"} 1.0' in text
    assert 'interfere_refusals_total{rule="unprofiled_workload"} 1.0' in text
    assert 'interfere_actions_total{action="wait",rule="request_slowdown_cap"} 1.0' in text
    assert "module" not in text


def test_a_plan_that_an_independent_check_refutes_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    snapshot = Snapshot(pending=(Job(id="x", workload="a"),), devices=())
    metrics.count_failed_checks(snapshot, ("a wrong bound",))
    assert "interfere_failed_checks_total 1.0" in generate_latest(metrics.registry).decode()
    assert "a wrong bound" in caplog.text
    assert "id='x'" in caplog.text


def test_a_worker_hands_on_that_a_check_refuted_its_plan() -> None:
    """The server repeats what a worker records; what the worker does not record is never seen."""
    metrics = CountingMetrics()
    metrics.count_failed_checks(Snapshot(pending=(), devices=()), ("a wrong bound",))
    assert metrics.counts == [("add", ("interfere_failed_checks", 1))]


def test_results_that_are_watched_are_counted_from_zero() -> None:
    """Prometheus' increase() misses what a series counts before its first scrape: the only refusal of a day, say."""
    text = generate_latest(Metrics().registry).decode()
    for name, values in (
        ("interval_observations", ("inside", "outside")),
        ("model_changes", ("taken", "refused", "rolled_back")),
    ):
        for value in values:
            assert f'interfere_{name}_total{{result="{value}"}} 0.0' in text
    assert "interfere_greedy_decisions_total 0.0" in text
