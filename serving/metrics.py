"""Prometheus metrics of one server: gRPC calls under their usual names, its decisions and its predictions.

Each server has a registry of its own, so that two servers in one process do not share counters.
"""

from collections import Counter as Counts
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from interfere.predict.encoded_jobs import MAX_CACHED_JOBS
from interfere.records import ObservationResult, Plan

# Buckets, seconds: a pair takes about a millisecond, a matrix of 1,000 jobs about one second.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Relative error |measured / predicted - 1| and relative optimality gap.
_RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
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
        """A call ends with a status code."""
        self.in_flight.dec()
        self.handled(code).inc()
        self.handling.observe(seconds)


class Metrics:
    """All metrics of one server. The labels of rules and actions are the words of RuleKind and ActionKind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # process_resident_memory_bytes and its like
        labels = ("grpc_type", "grpc_service", "grpc_method")
        self._started = Counter("grpc_server_started", "Calls begun.", labels, registry=self.registry)
        self._handled = Counter("grpc_server_handled", "Calls ended.", (*labels, "grpc_code"), registry=self.registry)
        self._handling = Histogram(
            "grpc_server_handling_seconds", "Time of a call.", labels, buckets=_SECONDS, registry=self.registry
        )
        self._in_flight = Gauge(
            "interfere_requests_in_flight", "Calls begun and not ended.", labels, registry=self.registry
        )
        self._solve = Histogram(
            "interfere_match_solve_seconds", "Time of a decision.", buckets=_SECONDS, registry=self.registry
        )
        self._gap = Histogram(
            "interfere_match_gap_ratio", "Proved optimality gap of a decision.", buckets=_RATIOS, registry=self.registry
        )
        self._refusals = Counter(
            "interfere_refusals",
            "Refused pairs that decisions listed, by the first rule that forbids them.",
            ("rule",),
            registry=self.registry,
        )
        self._actions = Counter(
            "interfere_actions",
            "Actions of decisions, by the rule behind them.",
            ("action", "rule"),
            registry=self.registry,
        )
        self._deadlines = Counter(
            "interfere_accepted_deadlines",
            "Accepted deadlines that were kept or broken, or whose job was gone only after them: unknown.",
            ("result",),
            registry=self.registry,
        )
        self._error = Histogram(
            "interfere_prediction_error_ratio",
            "|measured / predicted - 1| of shared windows that came with a slowdown, before they were learned.",
            buckets=_RATIOS,
            registry=self.registry,
        )
        self._observations = Counter(
            "interfere_observations", "Observations answered.", ("result",), registry=self.registry
        )
        self._alarms = Counter("interfere_drift_alarms", "Drift alarms.", registry=self.registry)
        self._drifting = Gauge(
            "interfere_drifting_workloads",
            "Workloads that drift: nothing is learned of them until they are stable again.",
            registry=self.registry,
        )
        self._granule_scopes: dict[str, None] = {}  # the one decided for longest ago first
        self._granules = Gauge(
            "interfere_granules",
            "Granules of memory after the last decision of a scope.",
            ("scope", "state"),
            registry=self.registry,
        )
        self._quarantined = Gauge(
            "interfere_quarantined_profiles",
            "Stored profiles that the model cannot be asked about; `interfere profiles list` shows them.",
            registry=self.registry,
        )
        self._store_bytes = Gauge("interfere_store_bytes", "Size of the store on disk.", registry=self.registry)
        self._log_entries = Gauge("interfere_log_entries", "Observations in the log.", registry=self.registry)
        self._evictions = Counter(
            "interfere_evictions",
            "What was forgotten because newer entries took its place; observations too, where the log is at its limit.",
            ("what",),
            registry=self.registry,
        )
        for what in EVICTED:
            self._evictions.labels(what)  # so that a rate can be taken from the first one on
        self._cache_bytes = Gauge(
            "interfere_encoded_jobs_bytes",
            f"Memory of profiles that are kept encoded, of which there are at most {MAX_CACHED_JOBS}.",
            registry=self.registry,
        )
        self._large_requests = Gauge(
            "interfere_large_request_bytes", "Large requests that run or wait.", registry=self.registry
        )
        self._receiving = Gauge(
            "interfere_receiving_requests", "Requests of which a part is still to come.", registry=self.registry
        )
        self._model_changes = Counter(
            "interfere_model_changes", "Models that were taken or refused.", ("result",), registry=self.registry
        )
        self._model = Gauge(
            "interfere_model_info", "1 for the model that is served.", ("version",), registry=self.registry
        )

    def unary_method(self, service: str, method: str) -> "UnaryMethodMetrics":
        """The metrics of one unary method."""
        labels = "unary", service, method
        return UnaryMethodMetrics(
            started=self._started.labels(*labels),
            in_flight=self._in_flight.labels(*labels),
            handling=self._handling.labels(*labels),
            handled=cache(lambda code: self._handled.labels(*labels, code)),
        )

    def count_call(self, kind: str, service: str, method: str, code: str) -> None:
        """A call was refused before it was begun."""
        self._started.labels(kind, service, method).inc()
        self._handled.labels(kind, service, method, code).inc()

    def count_decision(self, plan: Plan, seconds: float) -> None:
        """A new decision was made in so many seconds."""
        refusals = Counts(refusal.rule.kind.value for refusal in plan.refused if refusal.rule is not None)
        actions = Counts((a.kind.value, a.rule.kind.value) for a in plan.actions if a.rule is not None)
        self.count_made_decision(seconds, plan.gap, refusals, actions)

    def count_made_decision(
        self, seconds: float, gap: float, refusals: Mapping[str, int], actions: Mapping[tuple[str, str], int]
    ) -> None:
        """Count a decision that another process made. `refusals`: by rule. `actions`: by action and rule."""
        self._solve.observe(seconds)
        self._gap.observe(gap)
        for rule, count in refusals.items():
            self._refusals.labels(rule).inc(count)
        for labels, count in actions.items():
            self._actions.labels(*labels).inc(count)

    def set_granules(self, scope: str, granted: int, free: int) -> None:
        """So many granules of a scope are granted and free now."""
        self._granule_scopes.pop(scope, None)
        self._granule_scopes[scope] = None
        if len(self._granule_scopes) > MAX_SCOPES:
            oldest = next(iter(self._granule_scopes))
            del self._granule_scopes[oldest]
            self.count_evictions("granule_scope", 1)
            for state in ("granted", "free"):
                self._granules.remove(oldest, state)
        self._granules.labels(scope, "granted").set(granted)
        self._granules.labels(scope, "free").set(free)

    def count_deadlines(self, kept: int, broken: int, unknown: int) -> None:
        """Count accepted deadlines that were kept and that were broken. Deadlines whose end nobody observed are not
        counted."""
        self._deadlines.labels("kept").inc(kept)
        self._deadlines.labels("broken").inc(broken)
        self._deadlines.labels("unknown").inc(unknown)

    def count_observation(self, result: ObservationResult) -> None:
        """An observation was answered."""
        self._observations.labels(result.value).inc()

    def observe_prediction_error(self, error_ratio: float) -> None:
        """A prediction was compared with its measurement."""
        self._error.observe(error_ratio)

    def count_drift_alarms(self, count: int) -> None:
        """So many workloads began to drift."""
        self._alarms.inc(count)

    def set_drifting_workloads(self, count: int) -> None:
        """So many workloads drift now."""
        self._drifting.set(count)

    def count_evictions(self, what: str, count: int) -> None:
        """So many entries of a cache or a table were evicted: one of `EVICTED`."""
        self._evictions.labels(what).inc(count)

    def count_model_change(self, result: str) -> None:
        """A model was taken or refused."""
        self._model_changes.labels(result).inc()

    def watch_requests(self, large_bytes: Callable[[], int], receiving: Callable[[], int]) -> None:
        """Tell the bytes of large requests in the server, and how many requests are being received, whenever somebody
        reads the metrics."""
        self._large_requests.set_function(large_bytes)
        self._receiving.set_function(receiving)

    def watch_sizes(self, store: Path, log_entries: Callable[[], int], cache_bytes: Callable[[], int]) -> None:
        """Tell the sizes of the store, its log and the cache of encoded jobs whenever somebody reads the metrics."""

        def store_bytes() -> float:
            files = (store.with_name(store.name + ending) for ending in ("", "-wal"))
            return float(sum(file.stat().st_size for file in files if file.exists()))

        self._store_bytes.set_function(store_bytes)
        self._log_entries.set_function(log_entries)
        self._cache_bytes.set_function(cache_bytes)

    def set_quarantined_profiles(self, count: int) -> None:
        """So many stored profiles are set aside."""
        self._quarantined.set(count)

    def set_model_version(self, version: str) -> None:
        """This model is served from now on."""
        self._model.clear()
        self._model.labels(version).set(1)
