"""Metrics of decisions: refusals and actions are counted by the kind of their rule, a label of bounded words."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Device, Job, Limits, Snapshot
from interfere.serving.metrics import Metrics
from interfere.serving.server import RunningServer
from interfere.serving.workers.process import CountingMetrics
from tests.models import DEVICE_TYPE
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver
from tests.waiting import PATIENCE_S


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


def test_waits_for_a_turn_are_counted_by_queue(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        client.predict(["infer", "stream"], pairs=[(0, 1)])
        client.observe([window("a", "infer", "stream", slowdown=1.5)])
        client.match(Snapshot(pending=(), devices=(Device(id="d", type=DEVICE_TYPE),)))
    text = scrape(server)
    for queue in ("reads", "writes", "decisions"):
        assert f'interfere_queue_wait_seconds_count{{queue="{queue}"}} 1.0' in text
