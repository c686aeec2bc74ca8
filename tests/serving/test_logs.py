"""Log lines: JSON objects with the decision's id, a line at the start, one for each slow call."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InvalidInputError
from interfere.records import Device, Job, Snapshot
from interfere.serving.commands.serve import JsonFormatter
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, WORKLOADS
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("workers", [0, 1])
def test_start_and_slow_calls_are_logged_with_their_fields(
    serve: Callable[..., RunningServer], settings: Settings, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    caplog.set_level(logging.INFO)
    server = serve(replace(settings, slow_call_s=0.0, decision_workers=workers))
    with PolicyClient(server.address) as client:
        plan = client.match(
            Snapshot(pending=(Job(id="a", workload="gemm"),), devices=(Device(id="d", type=DEVICE_TYPE),))
        )
        with pytest.raises(InvalidInputError):
            client.match(Snapshot(pending=(), devices=()))
    server.stop()
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    (started,) = (line for line in lines if line["message"].startswith("started"))
    assert (started["address"], started["model"], started["observations"]) == (server.address, server.model_version, 0)
    slow = [line for line in lines if line["message"].startswith("slow call")]
    assert [(line["method"], line["code"]) for line in slow] == [("Match", "OK"), ("Match", "INVALID_ARGUMENT")]
    assert slow[0]["decision_id"] == plan.decision_id
    assert slow[0]["level"] == "INFO"


@pytest.mark.parametrize("workers", [0, 1])
def test_each_decision_is_one_event_with_the_numbers_that_are_listed(
    serve: Callable[..., RunningServer], settings: Settings, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    caplog.set_level(logging.INFO)
    server = serve(replace(settings, decision_workers=workers))
    jobs = tuple(Job(id=name, workload=name) for name in WORKLOADS)
    devices = (Device(id="d", type=DEVICE_TYPE),)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        client.match(Snapshot(pending=jobs, devices=devices, scope="lab", snapshot_id="first", now_s=0.0))
        client.match(Snapshot(pending=jobs[:1], devices=devices, scope="lab"))
        listed = client.decisions(scope="lab").decisions
    events = [json.loads(JsonFormatter().format(record)) for record in caplog.records if "decisions" in record.name]
    assert [each["decision_id"] for each in events] == [each.decision_id for each in reversed(listed)]
    for event, decision in zip(events, reversed(listed), strict=True):
        assert (event["scope"], event["model"], event["status"]) == ("lab", server.model_version, decision.status.value)
        for name in ("pending", "devices", "started_alone", "started_shared", "waiting", "displaced", "gap"):
            assert event[name] == getattr(decision, name)
        assert event.get("waiting_rules", {}) == {each.kind.value: each.count for each in decision.waiting_rules}
        assert event["ms"] > 0
        assert event["caller"]
    assert events[0]["waiting_rules"]
    assert "planned_value" not in events[0]


def test_an_exception_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord(
            "n", logging.ERROR, "f", 1, "failed: %s", ("x",), (ValueError, error, error.__traceback__)
        )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "two\nlines" in json.loads(text)["exception"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="text or json"):
        Settings(log_format="xml")
