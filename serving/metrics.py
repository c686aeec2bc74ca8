"""What the server counts: gRPC calls under their usual names, and what its decisions and predictions were like.

Each server has a registry of its own, so that two servers in one process do not share counters.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from interfere.records import ObservationResult

# Buckets, seconds: a pair takes about a millisecond, a matrix of 1,000 jobs about one second.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Relative error |measured / predicted - 1| and relative optimality gap.
_RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        self._deadlines = Counter(
            "interfere_accepted_deadlines",
            "Deadlines that were accepted, once their job is over, or late.",
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
            "Workloads of which nothing is learned until they settle.",
            registry=self.registry,
        )
        self._granules = Gauge(
            "interfere_granules",
            "Granules of memory after the last decision of a scope.",
            ("scope", "state"),
            registry=self.registry,
        )
        self._model = Gauge(
            "interfere_model_info", "1 for the model that is served.", ("version",), registry=self.registry
        )

    def call_started(self, service: str, method: str) -> None:
        """A unary call begins."""
        self._started.labels("unary", service, method).inc()
        self._in_flight.labels("unary", service, method).inc()

    def call_ended(self, service: str, method: str, code: str, seconds: float) -> None:
        """A unary call ends with a status code."""
        self._in_flight.labels("unary", service, method).dec()
        self._handled.labels("unary", service, method, code).inc()
        self._handling.labels("unary", service, method).observe(seconds)

    def matched(self, seconds: float, gap: float) -> None:
        """A decision was made."""
        self._solve.observe(seconds)
        self._gap.observe(gap)

    def granted(self, scope: str, granted: int, free: int) -> None:
        """So many granules are granted and free in a scope now."""
        self._granules.labels(scope, "granted").set(granted)
        self._granules.labels(scope, "free").set(free)

    def deadlines(self, kept: int, broken: int) -> None:
        """Jobs with an accepted deadline are over, or late."""
        self._deadlines.labels("kept").inc(kept)
        self._deadlines.labels("broken").inc(broken)

    def observed(self, result: ObservationResult) -> None:
        """An observation was answered."""
        self._observations.labels(result.value).inc()

    def predicted(self, error_ratio: float) -> None:
        """A prediction met its measurement."""
        self._error.observe(error_ratio)

    def drift_alarm(self, count: int) -> None:
        """Jobs began to drift."""
        self._alarms.inc(count)

    def drifting(self, workloads: int) -> None:
        """So many drift now."""
        self._drifting.set(workloads)

    def serving(self, version: str) -> None:
        """A model is served from now on."""
        self._model.clear()
        self._model.labels(version).set(1)
