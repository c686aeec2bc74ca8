"""The journal: JSON lines of decisions, places and measured windows, and the report that sums them up.

Observe-only clusters learn from it what the advice would have been worth: how often Kubernetes chose the device that
was advised, and how far predicted slowdowns were from measured ones.
"""

import json
import logging
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError
from interfere.records import NAN

_log = logging.getLogger("interfere.kubernetes")
MAX_BYTES = 256 * 2**20  # two weeks of 20 pods a minute take 200 MB; then a second file begins
Entry = dict[str, Any]


class Journal:
    """Appends entries to a file; without a path it writes nothing. Writing never raises."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, **entry: Any) -> None:
        """Append one entry as one line."""
        if self._path is None:
            return
        try:
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._path.with_suffix(".1"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
        except (OSError, ValueError) as error:
            _log.warning("the journal is not written: %s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalReport:
    """What a journal says about some days."""

    days: float
    decided: int  # pods with a decision that names a device
    bound: int  # of these, pods that ran
    as_decided: int  # of these, pods that ran on the device named
    compared: int  # pods that ran as decided, beside others, with a measured and a predicted slowdown
    median_predicted: float
    median_measured: float
    median_error: float  # of |predicted - measured| ÷ measured


def read_journal(path: Path, since_s: float = 0.0) -> list[Entry]:
    """The entries of a journal and of the file before it, oldest first. Lines that were cut off are left out."""
    files = [each for each in (path.with_suffix(".1"), path) if each.exists()]
    if not files:
        raise InvalidInputError("there is no journal", value=path, remedy="set journal, and let the controller run")
    entries: list[Entry] = []
    for file in files:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("at_s", 0) >= since_s:
                entries.append(entry)
    return entries


def summarise(entries: Iterable[Entry]) -> JournalReport:
    """Sum a journal up. The measured slowdown of a pod is the median of its step times beside others ÷ the median step
    time of its workload alone on that device type."""
    entries = list(entries)
    by_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(str(entry.get("kind")), []).append(entry)
    decisions = {entry["uid"]: entry for entry in by_kind.get("decision", ())}
    bound = {entry["uid"]: entry for entry in by_kind.get("bound", ()) if entry["uid"] in decisions}
    solo: dict[tuple[str, str], list[float]] = {}
    shared: dict[str, list[Entry]] = {}
    for window in by_kind.get("window", ()):
        if window["company"]:
            shared.setdefault(window["uid"], []).append(window)
        else:
            solo.setdefault((window["workload"], window["device_type"]), []).append(window["step_time_s"])
    as_decided = {uid for uid, entry in bound.items() if entry["device"] == decisions[uid]["device"]}
    pairs: list[tuple[float, float]] = []
    for uid in as_decided & shared.keys():
        window, predicted = shared[uid][0], decisions[uid].get("predicted_slowdown")
        alone = solo.get((window["workload"], window["device_type"]))
        if alone and predicted is not None:
            measured = statistics.median(each["step_time_s"] for each in shared[uid]) / statistics.median(alone)
            pairs.append((predicted, measured))
    times = [entry["at_s"] for entry in entries]
    return JournalReport(
        days=(max(times) - min(times)) / 86_400 if times else 0.0,
        decided=len(decisions),
        bound=len(bound),
        as_decided=len(as_decided),
        compared=len(pairs),
        median_predicted=statistics.median(p for p, _ in pairs) if pairs else NAN,
        median_measured=statistics.median(m for _, m in pairs) if pairs else NAN,
        median_error=statistics.median(abs(p - m) / m for p, m in pairs) if pairs else NAN,
    )
