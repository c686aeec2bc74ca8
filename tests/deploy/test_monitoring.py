"""The dashboard and the alert rules: as generated, sound to promtool; each alert fires when it should and only then."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import monitoring
from interfere.errors import InvalidInputError
from tests.docs.architecture_page import ROOT
from tests.monitoring.prometheus_server import needs_prometheus

RULES = {rule["alert"]: rule for rule in yaml.safe_load(monitoring.rules())["groups"][0]["rules"]}
SERVER = 'job="interfere",instance="a:9464"'
MODEL = {f'interfere_model_info{{{SERVER},version="v"}}': "1+0x600"}
HANDLED = f'grpc_server_handled_total{{{SERVER},grpc_service="interfere.v1.PolicyService",grpc_code='
INTERVALS = f"interfere_interval_observations_total{{{SERVER},result="
ERRORS = f"interfere_prediction_error_ratio_bucket{{{SERVER},le="
NEWEST, ACTIONS = f"interfere_newest_observation_seconds{{{SERVER}}}", f"interfere_actions_total{{{SERVER}}}"
GREEDY = f"interfere_greedy_decisions_total{{{SERVER}}}"
DECISIONS = f"interfere_match_solve_seconds_count{{{SERVER}}}"
CHANGES = f"interfere_model_changes_total{{{SERVER},result="


def errors(below: str, beyond: str) -> dict[str, str]:
    """The histogram of errors of predictions: how many are at most .3, and how many between .3 and .5."""
    counted = {"0.2": "0+0x600", "0.3": below, "0.5": beyond, "+Inf": beyond}
    buckets = {f'{ERRORS}"{bound}"}}': values for bound, values in counted.items()}
    return buckets | {f"interfere_prediction_error_ratio_count{{{SERVER}}}": beyond}


# (alert, whether it fires, the series minute by minute, when it is asked). A server that serves is part of all.
CASES: dict[str, tuple[str, bool, dict[str, str], str]] = {
    "a server that served has gone": (
        "InterfereDown",
        True,
        {f"up{{{SERVER}}}": "1x10 0x60", f'interfere_model_info{{{SERVER},version="v"}}': "1x10 stale"},
        "15m",
    ),
    "another exporter has gone": ("InterfereDown", False, {'up{job="node",instance="b:9100"}': "1x10 0x60"}, "15m"),
    "a server answers": ("InterfereDown", False, {f"up{{{SERVER}}}": "1x60"}, "15m"),
    "nothing serves a model": (
        "InterfereServesNoModel",
        True,
        {f"up{{{SERVER}}}": "1x60", f'interfere_model_info{{{SERVER},version="v"}}': "_x60"},
        "30m",
    ),
    "a model is served": ("InterfereServesNoModel", False, {}, "30m"),
    "a start takes its time": (
        "InterfereServesNoModel",
        False,
        {f'interfere_model_info{{{SERVER},version="v"}}': "_x20 1x60"},
        "9m",
    ),
    "a tenth of the calls fail": (
        "InterfereFailedCalls",
        True,
        {f'{HANDLED}"OK"}}': "0+9x60", f'{HANDLED}"UNAVAILABLE"}}': "0+1x60"},
        "40m",
    ),
    "every call fails": ("InterfereFailedCalls", True, {f'{HANDLED}"INTERNAL"}}': "0+10x60"}, "40m"),
    "wrong requests and too many are refused": (
        "InterfereFailedCalls",
        False,
        {
            f'{HANDLED}"OK"}}': "0+9x60",
            f'{HANDLED}"INVALID_ARGUMENT"}}': "0+9x60",
            f'{HANDLED}"RESOURCE_EXHAUSTED"}}': "0+90x60",
        },
        "40m",
    ),
    "one call an hour, and it fails": ("InterfereFailedCalls", False, {f'{HANDLED}"INTERNAL"}}': "0x30 1x30"}, "40m"),
    "a claim is refuted": (
        "InterfereFailedCheck",
        True,
        {f"interfere_failed_checks_total{{{SERVER}}}": "0x10 1x60"},
        "15m",
    ),
    "a claim was refuted yesterday": (
        "InterfereFailedCheck",
        False,
        {f"interfere_failed_checks_total{{{SERVER}}}": "0x10 1x600"},
        "3h",
    ),
    "four of five are inside": (
        "InterfereIntervalsTooNarrow",
        True,
        {f'{INTERVALS}"inside"}}': "0+4x600", f'{INTERVALS}"outside"}}': "0+1x600"},
        "6h",
    ),
    "all are outside": (
        "InterfereIntervalsTooNarrow",
        True,
        {f'{INTERVALS}"inside"}}': "0x600", f'{INTERVALS}"outside"}}': "0+1x600"},
        "6h",
    ),
    "nine of ten are inside": (
        "InterfereIntervalsTooNarrow",
        False,
        {f'{INTERVALS}"inside"}}': "0+9x600", f'{INTERVALS}"outside"}}': "0+1x600"},
        "6h",
    ),
    "too few to say": (
        "InterfereIntervalsTooNarrow",
        False,
        {f'{INTERVALS}"inside"}}': "0x600", f'{INTERVALS}"outside"}}': "0x100 150x600"},
        "6h",
    ),
    "most errors are large": ("InterferePredictionsOff", True, errors("0+1x600", "0+3x600"), "6h"),
    "most errors are small": ("InterferePredictionsOff", False, errors("0+2x600", "0+3x600"), "6h"),
    "a few errors are large": ("InterferePredictionsOff", False, errors("0x600", "0x100 150x600"), "6h"),
    "decisions without observations": (
        "InterfereObservationsStopped",
        True,
        {NEWEST: "60x900", ACTIONS: "0+1x900"},
        "8h",
    ),
    "a window of five hours": (
        "InterfereObservationsStopped",
        False,
        {NEWEST: "0+60x180 10800x720", ACTIONS: "0+1x900"},
        "8h",
    ),
    "nobody ever reports": ("InterfereObservationsStopped", False, {NEWEST: "0x900", ACTIONS: "0+1x900"}, "8h"),
    "a quiet night": ("InterfereObservationsStopped", False, {NEWEST: "60x900", ACTIONS: "5x900"}, "8h"),
    "observations come": ("InterfereObservationsStopped", False, {NEWEST: "0+60x900", ACTIONS: "0+1x900"}, "8h"),
    "a quarter is greedy": ("InterfereGreedyDecisions", True, {GREEDY: "0+1x90", DECISIONS: "0+4x90"}, "1h"),
    "one in twenty is greedy": ("InterfereGreedyDecisions", False, {GREEDY: "0+1x90", DECISIONS: "0+20x90"}, "1h"),
    "two decisions, both greedy": (
        "InterfereGreedyDecisions",
        False,
        {GREEDY: "0x30 2x60", DECISIONS: "0x30 2x60"},
        "1h",
    ),
    "a model is refused": ("InterfereModelRefused", True, {f'{CHANGES}"refused"}}': "0x10 1x60"}, "15m"),
    "a model is rolled back": ("InterfereModelRefused", True, {f'{CHANGES}"rolled_back"}}': "0x10 1x60"}, "15m"),
    "a model is taken": ("InterfereModelRefused", False, {f'{CHANGES}"taken"}}': "0x10 1x60"}, "15m"),
}


def case(name: str) -> dict[str, Any]:
    """A unit test in the words of promtool; which other alerts fire does not matter."""
    alert, fires, series, at = CASES[name]
    rule = RULES[alert]
    labels = rule["labels"] | ({} if alert == "InterfereServesNoModel" else {"job": "interfere", "instance": "a:9464"})
    if alert == "InterfereModelRefused" and fires:
        labels |= {"result": "rolled_back" if "rolled" in name else "refused"}
    expected = [{"exp_labels": labels, "exp_annotations": rule["annotations"]}] if fires else []
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in (MODEL | series).items()],
        "alert_rule_test": [{"alertname": alert, "eval_time": at, "exp_alerts": expected}],
    }


def test_the_committed_files_are_what_the_generator_writes() -> None:
    written = {monitoring.BOARD: monitoring.board(), monitoring.RULES: monitoring.rules()}
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path} is stale: run make gen and commit it"


def test_promtool_accepts_the_rules() -> None:
    needs_prometheus()
    done = subprocess.run(["promtool", "check", "rules", monitoring.RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    needs_prometheus()
    assert {(alert, fires) for alert, fires, *_ in CASES.values()} == {(a, f) for a in RULES for f in (True, False)}
    tests = [case(name) for name in CASES]
    document = {"rule_files": [str(monitoring.RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "cases.yaml").write_text(json.dumps(document))  # JSON is YAML
    command = ["promtool", "test", "rules", str(tmp_path / "cases.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("expression", ["rate(interfere_matches_total[5m])", "interfere_actions", "process_rss_bytes"])
def test_a_metric_that_the_server_lacks_fails_the_generation(expression: str) -> None:
    with pytest.raises(InvalidInputError, match="no such metric"):
        monitoring.metrics_of(f"sum({expression}) / interfere_store_bytes")


def test_the_page_for_operators_names_every_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [name for name in RULES if f"`{name}`" not in page] == []
