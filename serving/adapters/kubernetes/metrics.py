"""The controller's metrics in Prometheus' text format. Written by hand: the bare install has no Prometheus client."""

import threading
from collections import Counter

_HELP = {
    "rounds_total": "Rounds by result.",
    "changes_total": "Pods changed, by what was done with them.",
    "races_total": "Changes that came too late, or were refused.",
    "observations_total": "Windows and outcomes by the server's answer.",
    "left_to_kubernetes": "Pending pods with a workload that got no advice in the last round, by reason.",
    "gated_pods": "Pods that the gate holds.",
    "leader": "Whether this replica decides.",
    "round_seconds": "Time of the last round.",
    "last_success_timestamp_seconds": "Unix time of the last successful round.",
    "advice_total": "Observe-only: pods by whether Kubernetes chose the device that was advised.",
}


class ControllerMetrics:
    """Counters and gauges. Thread-safe."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, label: str = "", value: str = "", by: float = 1) -> None:
        """Increase a counter."""
        assert name in _HELP
        with self._lock:
            self._values[name, label, value] += by  # type: ignore[assignment]  # a Counter of floats

    def set(self, name: str, number: float, label: str = "", value: str = "") -> None:
        """Set a gauge."""
        assert name in _HELP
        with self._lock:
            self._values[name, label, value] = number  # type: ignore[assignment]  # as above

    def replace(self, name: str, label: str, values: Counter[str]) -> None:
        """Replace all values of a labelled gauge."""
        assert name in _HELP
        with self._lock:
            for key in [key for key in self._values if key[0] == name]:
                del self._values[key]
            for value, number in values.items():
                self._values[name, label, value] = number

    def text(self) -> str:
        """All metrics in the text format."""
        with self._lock:
            values = sorted(self._values.items())
        lines = []
        for name, description in _HELP.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP interfere_kubernetes_{name} {description}", f"# TYPE interfere_kubernetes_{name} {kind}"]
            for (metric, label, value), number in values:
                if metric == name:
                    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                    labels = f'{{{label}="{escaped}"}}' if label else ""
                    lines.append(f"interfere_kubernetes_{name}{labels} {number:.17g}")
        return "\n".join(lines) + "\n"
