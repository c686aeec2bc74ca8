"""Prometheus metrics of one server: gRPC calls under their usual names, its decisions and its predictions.

Each server has a registry of its own, so that two servers in one process do not share counters.
"""

from collections import Counter as Counts
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from interfere.errors import InterfereError
from interfere.policy.context import log_failed_checks
from interfere.predict.encoded_jobs import MAX_CACHED_JOBS
from interfere.records import NAN, Plan, Snapshot

# Buckets, seconds: a pair takes about a millisecond, a matrix of 1,000 jobs about one second.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Relative error |measured / predicted - 1| and relative optimality gap.
_RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
_WIDTHS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 5.0)
MAX_SCOPES = 1_000  # whose granules are told
EVICTED = (
    "encoded_job",  # from the model's cache: encoded again when it is asked about
    "profile_version",  # an old profile of a workload, beyond `interfere.serving.profiles.MAX_VERSIONS`
    "decision",  # its snapshot id may be used again
    "decision_audit",  # the decision is no longer explained
    "scope",  # the ledger of the scope that was decided for longest ago
    "observation",  # the oldest of the log; what it taught stays in the stored state
    "served_model",  # a copy that nobody can roll back to any longer
    "granule_scope",  # whose granules are no longer told here
)
"""What `interfere_evictions_total` counts."""
_CALL = ("grpc_type", "grpc_service", "grpc_method")
_COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # name, help, labels
    ("grpc_server_started", "Calls begun.", _CALL),
    ("grpc_server_handled", "Calls ended.", (*_CALL, "grpc_code")),
    ("interfere_refusals", "Refused pairs that decisions listed, by the first rule that forbids them.", ("rule",)),
    ("interfere_actions", "Actions of decisions, by the rule behind them.", ("action", "rule")),
    (
        "interfere_accepted_deadlines",
        "Accepted deadlines that were kept or broken, or whose job was gone only after them: unknown.",
        ("result",),
    ),
    ("interfere_failed_checks", "Plans whose placement or bound an independent check did not confirm.", ()),
    ("interfere_observations", "Observations answered.", ("result",)),
    (
        "interfere_interval_observations",
        "Observed slowdowns inside or outside the 90 % interval that was predicted before they were learned.",
        ("result",),
    ),
    ("interfere_drift_alarms", "Drift alarms.", ()),
    (
        "interfere_evictions",
        "What was forgotten because newer entries took its place; observations too, where the log is at its limit.",
        ("what",),
    ),
    ("interfere_model_changes", "Models that were taken, refused or rolled back.", ("result",)),
    ("interfere_greedy_decisions", "Decisions that are the greedy plan, because no worker was in time.", ()),
)
QUEUES = ("reads", "writes", "decisions")
_KNOWN_LABELS = {  # these series are 0 from the start: a rate misses what a series counts before it is first scraped
    "interfere_evictions": EVICTED,
    "interfere_interval_observations": ("inside", "outside"),
    "interfere_queue_wait_seconds": QUEUES,
    "interfere_model_changes": ("taken", "refused", "rolled_back"),
}
_HISTOGRAMS = (  # name, help, labels, upper bounds of the buckets
    ("grpc_server_handling_seconds", "Time of a call.", _CALL, _SECONDS),
    (
        "interfere_queue_wait_seconds",
        "Time that calls waited for their turn; of decisions also for those before them in their scope.",
        ("queue",),
        _SECONDS,
    ),
    ("interfere_match_solve_seconds", "Time of a decision.", (), _SECONDS),
    ("interfere_match_gap_ratio", "Proved optimality gap of a decision.", (), _RATIOS),
    (
        "interfere_prediction_error_ratio",
        "|measured / predicted - 1| of shared windows that came with a slowdown, before they were learned.",
        (),
        _RATIOS,
    ),
    (
        "interfere_interval_width_ratio",
        "Upper end / lower end of those intervals.",
        (),
        _WIDTHS,
    ),
)
_GAUGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # name, help, labels
    ("interfere_requests_in_flight", "Calls begun and not ended.", _CALL),
    (
        "interfere_drifting_workloads",
        "Workloads that drift: nothing is learned of them until they are stable again.",
        (),
    ),
    ("interfere_granules", "Granules of memory after the last decision of a scope.", ("scope", "state")),
    (
        "interfere_quarantined_profiles",
        "Stored profiles that the model cannot be asked about; `interfere profiles list` shows them.",
        (),
    ),
    ("interfere_store_bytes", "Size of the store on disk.", ()),
    ("interfere_log_entries", "Observations in the log.", ()),
    ("interfere_newest_observation_seconds", "Unix time at which the newest observation came; 0 without any.", ()),
    (
        "interfere_encoded_jobs_bytes",
        f"Memory of profiles that are kept encoded, of which there are at most {MAX_CACHED_JOBS}.",
        (),
    ),
    ("interfere_large_request_bytes", "Large requests that run or wait.", ()),
    ("interfere_receiving_requests", "Requests of which a part is still to come.", ()),
    ("interfere_unsent_answer_bytes", "Answers that their callers have not read yet.", ()),
    ("interfere_model_info", "1 for the model that is served.", ("version",)),
)
LABELS = {name: labels for name, _, labels, *_ in (*_COUNTERS, *_HISTOGRAMS, *_GAUGES)}
"""The metrics of a server → the names of their labels. Counters are without `_total`."""


class UnaryMethodMetrics(NamedTuple):
    """The metrics of one unary method, found by its labels once."""

    started: Counter
    in_flight: Gauge
    handling: Histogram
    handled: Callable[[str], Counter]  # by status code

    def call_started(self) -> None:
        """Count a call that begins."""
        self.started.inc()
        self.in_flight.inc()

    def call_ended(self, code: str, seconds: float) -> None:
        """Count a call that ends with a status code."""
        self.in_flight.dec()
        self.handled(code).inc()
        self.handling.observe(seconds)


class Metrics:
    """All metrics of one server, by name. The labels of rules and actions are the words of RuleKind and ActionKind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # process_resident_memory_bytes and its like
        self._metrics: dict[str, Any] = {}
        for name, text, labels in _COUNTERS:
            self._metrics[name] = Counter(name, text, labels, registry=self.registry)
        for name, text, labels, bounds in _HISTOGRAMS:
            self._metrics[name] = Histogram(name, text, labels, buckets=bounds, registry=self.registry)
        for name, text, labels in _GAUGES:
            self._metrics[name] = Gauge(name, text, labels, registry=self.registry)
        for name, values in _KNOWN_LABELS.items():
            for value in values:
                self._labelled(name, value)
        self._granule_scopes: dict[str, None] = {}  # the scope decided for longest ago first

    def _labelled(self, name: str, *labels: str) -> Any:
        """Return the metric of a name with these values of its labels."""
        return self._metrics[name].labels(*labels) if labels else self._metrics[name]

    def add(self, name: str, count: float, *labels: str) -> None:
        """Increase a counter."""
        self._labelled(name, *labels).inc(count)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._labelled(name, *labels).set(value)

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        self._metrics[name].observe(value)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Let a gauge show the value that `read` returns at the time when the metrics are read; NaN while what it reads
        is away."""

        def present() -> float:
            try:
                return read()
            except InterfereError:
                return NAN

        self._metrics[name].set_function(present)

    def waits(self, queue: str) -> Callable[[float], None]:
        """Return the function that counts how long a call waited in a queue."""
        observe: Callable[[float], None] = self._labelled("interfere_queue_wait_seconds", queue).observe
        return observe

    # --- calls ------------------------------------------------------------------------------------------------------

    def unary_method(self, service: str, method: str) -> UnaryMethodMetrics:
        """Return the metrics of one unary method."""
        labels = "unary", service, method
        return UnaryMethodMetrics(
            started=self._labelled("grpc_server_started", *labels),
            in_flight=self._labelled("interfere_requests_in_flight", *labels),
            handling=self._labelled("grpc_server_handling_seconds", *labels),
            handled=cache(lambda code: self._labelled("grpc_server_handled", *labels, code)),
        )

    def count_refused_call(self, kind: str, service: str, method: str, code: str) -> None:
        """Count a call that was refused before it was begun."""
        self.add("grpc_server_started", 1, kind, service, method)
        self.add("grpc_server_handled", 1, kind, service, method, code)

    # --- decisions --------------------------------------------------------------------------------------------------

    def count_decision(self, plan: Plan, seconds: float) -> None:
        """Count a new decision that took `seconds` to make."""
        self.observe("interfere_match_solve_seconds", seconds)
        self.observe("interfere_match_gap_ratio", plan.gap)
        refusals = Counts(refusal.rule.kind.value for refusal in plan.refused if refusal.rule is not None)
        for rule, count in refusals.items():
            self.add("interfere_refusals", count, rule)
        actions = Counts((a.kind.value, a.rule.kind.value) for a in plan.actions if a.rule is not None)
        for labels, count in actions.items():
            self.add("interfere_actions", count, *labels)

    def count_failed_checks(self, snapshot: Snapshot, failed: Sequence[str]) -> None:
        """Count and log a plan with a claim that the independent check did not confirm."""
        self.add("interfere_failed_checks", 1)
        log_failed_checks(snapshot, failed)

    def count_deadlines(self, kept: int, broken: int, unknown: int) -> None:
        """Count accepted deadlines by outcome: kept, broken, or not observed."""
        for result, count in (("kept", kept), ("broken", broken), ("unknown", unknown)):
            self.add("interfere_accepted_deadlines", count, result)

    def set_granules(self, scope: str, granted: int, free: int) -> None:
        """Set how many granules of a scope are granted and free now. Beyond `MAX_SCOPES` scopes, the least recently set
        one is dropped."""
        self._granule_scopes.pop(scope, None)
        self._granule_scopes[scope] = None
        if len(self._granule_scopes) > MAX_SCOPES:
            oldest = next(iter(self._granule_scopes))
            del self._granule_scopes[oldest]
            self.count_evictions("granule_scope", 1)
            for state in ("granted", "free"):
                self._metrics["interfere_granules"].remove(oldest, state)
        self.set("interfere_granules", granted, scope, "granted")
        self.set("interfere_granules", free, scope, "free")

    # --- sizes and the model ----------------------------------------------------------------------------------------

    def count_evictions(self, what: str, count: int) -> None:
        """Count entries of a cache or a table that were evicted: one of `EVICTED`."""
        self.add("interfere_evictions", count, what)

    def watch_store(self, store: Path) -> None:
        """Let a gauge show the size of the store on disk at the time when the metrics are read."""
        files = [store.with_name(store.name + ending) for ending in ("", "-wal")]
        self.watch("interfere_store_bytes", lambda: float(sum(f.stat().st_size for f in files if f.exists())))

    def set_model_version(self, version: str) -> None:
        """Set the version of the served model."""
        self._metrics["interfere_model_info"].clear()
        self.set("interfere_model_info", 1, version)
