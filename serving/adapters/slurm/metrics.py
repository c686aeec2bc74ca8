"""The advisor's metrics in Prometheus' text format, written to a file for the node exporter's textfile collector.

Written by hand: the bare install has no Prometheus client, and the format is one line per number.
"""

import os
from collections import Counter
from pathlib import Path

from interfere.errors import UnfitError

_HELP = {
    "rounds_total": "Rounds by result.",
    "edits_total": "Updates of jobs by kind.",
    "races_total": "Updates that came too late, or were refused.",
    "observations_total": "Windows and outcomes by the server's answer.",
    "left_to_slurm": "Pending jobs that asked for advice and got none in the last round, by reason.",
    "round_seconds": "Time of the last round.",
    "last_success_timestamp_seconds": "Unix time of the last successful round.",
}


class AdvisorMetrics:
    """Counters and gauges; `write` replaces the file in one step."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, str, str]] = Counter()

    def add(self, name: str, label: str = "", value: str = "", by: float = 1) -> None:
        """Increase a counter."""
        assert name in _HELP
        self._values[name, label, value] += by  # type: ignore[assignment]  # a Counter of floats

    def set(self, name: str, number: float, label: str = "", value: str = "") -> None:
        """Set a gauge."""
        assert name in _HELP
        self._values[name, label, value] = number  # type: ignore[assignment]  # as above

    def clear(self, name: str) -> None:
        """Remove all values of one metric."""
        for key in [key for key in self._values if key[0] == name]:
            del self._values[key]

    def text(self) -> str:
        """All metrics in the text format."""
        lines = []
        for name, description in _HELP.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP interfere_slurm_{name} {description}", f"# TYPE interfere_slurm_{name} {kind}"]
            for (metric, label, value), number in sorted(self._values.items()):
                if metric == name:
                    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                    labels = f'{{{label}="{escaped}"}}' if label else ""
                    lines.append(f"interfere_slurm_{name}{labels} {number:.17g}")
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Readers see the old file or the new one. Raises UnfitError."""
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
