"""An adapter's metrics in Prometheus' text format: served, or written to a file for the node exporter's textfile
collector. Written by hand: the bare install has no Prometheus client, and the format is one line per number.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from interfere.errors import UnfitError


class AdapterMetrics:
    """Counters and gauges, each under `interfere_SCHEDULER_`. Thread-safe."""

    def __init__(self, scheduler: str, more: Mapping[str, str]) -> None:
        """Declare the metrics. `more`: help texts, by name, of the metrics that only this scheduler has."""
        self._prefix = f"interfere_{scheduler}_"
        self._help = {
            "rounds_total": "Rounds by result.",
            **more,
            "races_total": "Changes that came too late, or were refused.",
            "observations_total": "Windows and outcomes by the server's answer.",
            f"left_to_{scheduler}": "Pending jobs that asked for advice and got none in the last round, by reason.",
            "round_seconds": "Time of the last round.",
            "last_success_timestamp_seconds": "Unix time of the last successful round.",
        }
        self._values: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()

    def add(self, name: str, label: str = "", value: str = "", by: float = 1.0) -> None:
        """Increase a counter."""
        assert name in self._help
        with self._lock:
            self._values[name, label, value] = self._values.get((name, label, value), 0.0) + by

    def set(self, name: str, number: float) -> None:
        """Set a gauge."""
        assert name in self._help
        with self._lock:
            self._values[name, "", ""] = number

    def replace(self, name: str, label: str, values: Mapping[str, float]) -> None:
        """Replace all values of a labelled gauge."""
        assert name in self._help
        with self._lock:
            self._values = {key: number for key, number in self._values.items() if key[0] != name}
            self._values |= {(name, label, value): number for value, number in values.items()}

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            values = sorted(self._values.items())
        lines = []
        for name, description in self._help.items():
            kind, full_name = "counter" if name.endswith("_total") else "gauge", self._prefix + name
            lines += [f"# HELP {full_name} {description}", f"# TYPE {full_name} {kind}"]
            for (metric, label, value), number in values:
                if metric == name:
                    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                    labels = f'{{{label}="{escaped}"}}' if label else ""
                    lines.append(f"{full_name}{labels} {number:.17g}")
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Write the text to a file; readers see the old file or the new one. Raises UnfitError."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(self.text(), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise UnfitError(
                f"the metrics cannot be written ({error.strerror})",
                value=path,
                remedy="set metrics to a file in a folder that exists and may be written",
            ) from None
