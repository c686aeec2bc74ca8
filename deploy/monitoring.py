"""`python -m deploy.monitoring`: write the Grafana dashboard and the Prometheus alert rules of `interfere serve`.

Part of `make gen`. Every expression names its metrics as the server's registry does: help texts and units come from
there, and a metric that the registry lacks fails the generation.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interfere.errors import InvalidInputError
from interfere.serving.calls.interceptor import SERVICE
from interfere.serving.metrics import Metrics

HERE = Path(__file__).parent
BOARD, RULES = HERE / "grafana" / "interfere.json", HERE / "prometheus" / "interfere-rules.yaml"
HELP = {
    family.name + ("_total" if family.type == "counter" else ""): family.documentation
    for family in Metrics().registry.collect()
}
"""The metrics of the server → their help texts."""
_SERIES = re.compile(r"\b((?:interfere|grpc_server|process)_\w+)(\{)?")
_UNITS = {"seconds": "s", "bytes": "bytes", "total": "cps"}  # suffix → Grafana's unit; of counters rates are drawn

# Of each server: Prometheus adds the labels job and instance to what it scrapes.
_BY_SERVER = "by (job, instance)"
_OBSERVED = f"sum {_BY_SERVER} (increase(interfere_interval_observations_total[1d]))"
_COVERAGE = f'sum {_BY_SERVER} (increase(interfere_interval_observations_total{{result="inside"}}[1d])) / {_OBSERVED}'
_AGE = "time() - (interfere_newest_observation_seconds > 0)"
# RESOURCE_EXHAUSTED is none: one caller that sends too much gets it, while the others are answered.
_FAULTS = "INTERNAL|UNKNOWN|DATA_LOSS|UNAVAILABLE|DEADLINE_EXCEEDED"


def _quantile(share: float, name: str, over: str, label: str = "") -> str:
    labels = f"job, instance, le{label and ', ' + label}"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({name}_bucket[{over}])))"


def _calls(over: str, labels: str = "") -> str:
    return f'sum {_BY_SERVER} (rate(grpc_server_handled_total{{grpc_service="{SERVICE}"{labels}}}[{over}]))'


def _fault_ratio(over: str) -> str:
    """Return the share of calls that the server could not answer."""
    faults = _calls(over, f',grpc_code=~"{_FAULTS}"')
    return f"({faults} or 0 * {_calls(over)}) / {_calls(over)}"


def _greedy_ratio(over: str) -> str:
    return f"rate(interfere_greedy_decisions_total[{over}]) / rate(interfere_match_solve_seconds_count[{over}])"


class Alert(NamedTuple):
    """One alert: when it fires, after how long, how urgent it is, what it means and what to do."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    remedy: str


ALERTS = (
    Alert(
        "InterfereDown",
        f"up == 0 and on (job, instance) count {_BY_SERVER} (last_over_time(interfere_model_info[1d]))",
        "2m",
        "critical",
        "A server that served a model within a day does not answer Prometheus.",
        "systemctl status interfere (kubectl get pods): its last log line says why it ended; the store lost nothing.",
    ),
    Alert(
        "InterfereServesNoModel",
        "absent(interfere_model_info)",
        "10m",
        "critical",
        "No server that Prometheus scrapes serves a model: none is scraped, none runs, or it hangs in its start.",
        "Look at the targets of Prometheus first, then at the log: a store or a model that is refused is named there.",
    ),
    Alert(
        "InterfereFailedCalls",
        f"{_fault_ratio('15m')} > 0.05 and 900 * {_calls('15m')} >= 20",
        "5m",
        "critical",
        "More than 5 % of the calls are not answered, for no fault of the request.",
        "Panel `Calls by result`: UNAVAILABLE is a full disk or a locked store, INTERNAL a bug that the log tells.",
    ),
    Alert(
        "InterfereFailedCheck",
        "increase(interfere_failed_checks_total[1h]) > 0",
        "0m",
        "warning",
        "An independent check did not confirm what a plan claims.",
        "A bug: send the maintainers the log line `...; of the snapshot ...`.",
    ),
    Alert(
        "InterfereIntervalsTooNarrow",
        f"{_COVERAGE} < 0.85 and {_OBSERVED} >= 200",
        "1h",
        "warning",
        "Fewer than 85 % of a day's observed slowdowns lay inside the 90 % interval that was predicted for them.",
        "Lower max_slowdown of the scheduler's requests until `interfere retrain` has published a model of these jobs.",
    ),
    Alert(
        "InterferePredictionsOff",
        f"{_quantile(0.5, 'interfere_prediction_error_ratio', '1d')} > 0.3"
        f" and sum {_BY_SERVER} (increase(interfere_prediction_error_ratio_count[1d])) >= 200",
        "1h",
        "warning",
        "Half of a day's observed slowdowns were more than 30 % off their prediction.",
        "`interfere observe log` shows whose; a new model: `interfere models rollback`; new jobs: `interfere retrain`.",
    ),
    Alert(
        "InterfereObservationsStopped",
        f"{_AGE} > 6 * 3600 and on (job, instance) sum {_BY_SERVER} (increase(interfere_actions_total[6h])) > 0",
        "10m",
        "warning",
        "Decisions about jobs go on, but nothing was observed for six hours: what was learned grows old.",
        "Look at what reports: `interfere watch`, the adapter's rounds, or the jobs' own reports; then at its token.",
    ),
    Alert(
        "InterfereGreedyDecisions",
        f"{_greedy_ratio('30m')} > 0.1 and increase(interfere_match_solve_seconds_count[30m]) >= 20",
        "10m",
        "warning",
        "More than 10 % of the decisions are the greedy plan: workers get no processor in time. The plans are valid.",
        "Give the server processors (a cgroup limit, a busy host), or let callers set longer deadlines.",
    ),
    Alert(
        "InterfereModelRefused",
        'increase(interfere_model_changes_total{result=~"refused|rolled_back"}[1h]) > 0',
        "0m",
        "warning",
        "A published model was refused, or rolled back after its trial; the model before it serves on.",
        "`interfere models list` says why. Nothing is urgent: train again, or publish the version before.",
    ),
)
"""Most urgent first. Their thresholds are starting points, to be set by what a site sees on the board."""


class Panel(NamedTuple):
    """One panel: its title, its queries by the legend of their series, and how it is drawn."""

    title: str
    queries: dict[str, str]
    unit: str = ""  # of Grafana; by default that of the metric's name
    kind: str = "timeseries"
    limits: tuple[tuple[str, float | None], ...] = ()  # colours from a value on


_R = "$__rate_interval"


def _rates(label: str, series: str, function: str = "rate", over: str = _R) -> dict[str, str]:
    """Return the query of a counter by one label, limited to the largest where there may be many."""
    return {f"{{{{{label}}}}}": f"topk(12, sum by ({label}) ({function}({series}[{over}])))"}


def _quantiles(name: str, high: float, over: str = _R) -> dict[str, str]:
    """Return the queries of the median and a high quantile of a histogram."""
    legends = {0.5: "{{instance}}, median", high: f"{{{{instance}}}}, {high:.0%}"}
    return {legend: _quantile(share, name, over) for share, legend in legends.items()}


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Does it serve?",
        (
            Panel("Model served", {"{{instance}}: {{version}}": "interfere_model_info"}, kind="stat"),
            Panel("Calls by result", _rates("grpc_code", f'grpc_server_handled_total{{grpc_service="{SERVICE}"}}')),
            Panel("Failed calls", {"{{instance}}": _fault_ratio(_R)}, "percentunit"),
        ),
    ),
    (
        "Is it right?",
        (
            Panel(
                "Is .90 still .90 here? Coverage of a day",
                {"{{instance}}": _COVERAGE},
                "percentunit",
                limits=(("red", None), ("orange", 0.85), ("green", 0.9)),
            ),
            Panel("Width of the intervals of a day", _quantiles("interfere_interval_width_ratio", 0.9, "1d")),
            Panel("Error of a day", _quantiles("interfere_prediction_error_ratio", 0.9, "1d"), "percentunit"),
        ),
    ),
    (
        "Is it fresh?",
        (
            Panel("Age of the newest observation", {"{{instance}}": _AGE}),
            Panel("Observations by result", _rates("result", "interfere_observations_total")),
            Panel("Workloads that drift", {"{{instance}}": "interfere_drifting_workloads"}),
        ),
    ),
    (
        "What does it decide?",
        (
            Panel("Actions", _rates("action", "interfere_actions_total")),
            Panel("Why jobs wait", _rates("rule", 'interfere_actions_total{action="wait"}')),
            Panel("Why pairs are refused", _rates("rule", "interfere_refusals_total")),
        ),
    ),
    (
        "How long does it take?",
        (
            Panel("Decisions", _quantiles("interfere_match_solve_seconds", 0.99)),
            Panel(
                "99 % of the calls, by method",
                {"{{grpc_method}}": _quantile(0.99, "grpc_server_handling_seconds", _R, "grpc_method")},
            ),
            Panel(
                "99 % of the waits for a turn, by queue",
                {"{{queue}}": _quantile(0.99, "interfere_queue_wait_seconds", _R, "queue")},
            ),
            Panel(
                "What the time does not suffice for",
                {
                    "{{instance}}, gap of 90 %": _quantile(0.9, "interfere_match_gap_ratio", _R),
                    "{{instance}}, greedy decisions": _greedy_ratio(_R),
                },
                "percentunit",
            ),
        ),
    ),
    (
        "Which models, and what is kept?",
        (
            Panel(
                "Changes of the model in a day",
                _rates("result", "interfere_model_changes_total", "increase", "1d"),
                "short",
            ),
            Panel("Forgotten to make room", _rates("what", "interfere_evictions_total")),
            Panel(
                "Memory and store",
                {
                    "{{instance}}, memory": "process_resident_memory_bytes",
                    "{{instance}}, store": "interfere_store_bytes",
                },
            ),
        ),
    ),
)


def metrics_of(expression: str) -> tuple[str, ...]:
    """Return the names in the registry of the metrics that an expression names, each once.

    Raises InvalidInputError for one that the server does not have.
    """
    found = {}
    for series, _ in _SERIES.findall(expression):
        name = re.sub(r"_(bucket|count|sum)$", "", series)
        if name not in HELP:
            raise InvalidInputError(
                "the server has no such metric", value=series, remedy="name one of interfere.serving.metrics"
            )
        found[name] = None
    return tuple(found)


def _help_of(*expressions: str) -> str:
    names = dict.fromkeys(name for expression in expressions for name in metrics_of(expression))
    return "\n".join(f"{name}: {HELP[name]}" for name in names)


def rules() -> str:
    """Return the file of alert rules."""
    alerts = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": f"{alert.remedy}\n{_help_of(alert.expression)}",
            },
        }
        for alert in ALERTS
    ]
    head = "# Written by python -m deploy.monitoring (make gen); docs/operations.md says how to load it.\n"
    return head + yaml.safe_dump({"groups": [{"name": "interfere", "rules": alerts}]}, sort_keys=False, width=120)


def _of_chosen_servers(expression: str) -> str:
    """Limit every series of an expression to the servers that are chosen on the board."""
    return _SERIES.sub(lambda m: f'{m[1]}{{job=~"$job",instance=~"$instance"' + ("," if m[2] else "}"), expression)


def _unit(panel: Panel) -> str:
    (name, *_) = metrics_of(next(iter(panel.queries.values())))
    return panel.unit or _UNITS.get(name.rpartition("_")[2], "short")


def _panels() -> Iterator[dict[str, Any]]:
    numbers = iter(range(1, 1_000))
    source = {"type": "prometheus", "uid": "${datasource}"}
    for row, (title, panels) in enumerate(ROWS):
        top = row * 9
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
        for column, panel in enumerate(panels):
            defaults: dict[str, Any] = {"unit": _unit(panel)}
            if panel.limits:
                steps = [{"color": colour, "value": value} for colour, value in panel.limits]
                defaults |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
            yield {
                "id": next(numbers),
                "type": panel.kind,
                "title": panel.title,
                "description": _help_of(*panel.queries.values()),
                "datasource": source,
                "gridPos": {"x": 8 * column, "y": top + 1, "w": 8, "h": 8},
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "options": {"textMode": "name"} if panel.kind == "stat" else {"tooltip": {"mode": "multi"}},
                "targets": [
                    {
                        "refId": chr(ord("A") + k),
                        "datasource": source,
                        "expr": _of_chosen_servers(e),
                        "legendFormat": at,
                    }
                    for k, (at, e) in enumerate(panel.queries.items())
                ],
            }


def board() -> str:
    """Return the dashboard, in Grafana's schema 39 (Grafana 11 and later; earlier ones read it too)."""
    chosen = {"job": "label_values(interfere_log_entries, job)"}
    chosen["instance"] = 'label_values(interfere_log_entries{job=~"$job"}, instance)'
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
    for name, query in chosen.items():
        metrics_of(query)
        several = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        variables.append({"name": name, "type": "query", "datasource": source, "query": query, "refresh": 2, **several})
    document = {
        "uid": "interfere",
        "title": "interfere",
        "description": "Written by python -m deploy.monitoring (make gen).",
        "schemaVersion": 39,
        "tags": ["interfere"],
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": variables},
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in ((BOARD, board()), (RULES, rules())):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
