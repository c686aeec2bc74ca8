"""The journal: JSON lines of decisions, places and measured windows, and the report that sums them up.

Clusters that only observe learn from it what the advice would have been worth: how often the scheduler chose the device
that was advised, how much jobs slow one another down where they ran, and how well that was predicted.
"""

import json
import logging
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError
from interfere.records import NAN
from interfere.reports.document import Column, Document, Part, Sentence, Table
from interfere.reports.numbers import count_noun, fixed

_log = logging.getLogger("interfere.adapters")
MOST_COMPANIES = 20  # rows of a report
MAX_BYTES = 256 * 2**20  # two weeks of 20 pods a minute take 200 MB; then a second file begins
Entry = dict[str, Any]
Situation = tuple[str, tuple[str, ...], str]  # workload, company, device type


class Journal:
    """Appends entries to a file of JSON lines. Without a path it writes nothing; writing never raises."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def is_kept(self) -> bool:
        """Whether there is a file to write to."""
        return self._path is not None

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
class CompanyReport:
    """The slowdowns of one workload beside one set of neighbours on one device type. Slowdowns are medians over
    pods."""

    workload: str
    company: tuple[str, ...]
    device_type: str
    pods: int
    predicted: float  # NaN where the server abstained
    measured: float  # NaN where the workload never ran alone


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalReport:
    """Summary of a journal over a span of days."""

    days: float
    decided: int  # pods with a decision that names a device
    bound: int  # of these, pods that ran
    as_decided: int  # of these, pods that ran on the device named
    compared: int  # pods with a predicted and a measured slowdown beside the company that they had
    median_predicted: float
    median_measured: float
    median_error: float  # of |predicted - measured| ÷ measured
    companies: tuple[CompanyReport, ...]  # the largest measured slowdown first


def read_journal(path: Path, since_s: float = 0.0) -> list[Entry]:
    """Return the entries of a journal since `since_s`, with the entries of its predecessor file, oldest first.
    Incomplete lines are left out.

    Raises InvalidInputError where there is no journal.
    """
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
    """Summarise a journal.

    The measured slowdown of a pod beside a company is the median of its step times there, divided by the median step
    time of its workload alone on that device type.
    """
    entries = list(entries)
    by_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(str(entry.get("kind")), []).append(entry)
    decisions = {entry["uid"]: entry for entry in by_kind.get("decision", ())}
    bound = {entry["uid"]: entry for entry in by_kind.get("bound", ()) if entry["uid"] in decisions}
    slowdowns = _slowdowns(by_kind.get("window", ()))
    known = [(p, m) for pods in slowdowns.values() for p, m in pods if not (math.isnan(p) or math.isnan(m))]
    times = [entry["at_s"] for entry in entries]
    companies = [
        CompanyReport(
            workload=workload,
            company=company,
            device_type=device_type,
            pods=len(pods),
            predicted=_median(p for p, _ in pods),
            measured=_median(m for _, m in pods),
        )
        for (workload, company, device_type), pods in slowdowns.items()
    ]
    return JournalReport(
        days=(max(times) - min(times)) / 86_400 if times else 0.0,
        decided=len(decisions),
        bound=len(bound),
        as_decided=sum(entry["device"] == decisions[uid]["device"] for uid, entry in bound.items()),
        compared=len(known),
        median_predicted=_median(p for p, _ in known),
        median_measured=_median(m for _, m in known),
        median_error=_median(abs(p - m) / m for p, m in known),
        companies=tuple(sorted(companies, key=_rank)),
    )


def _slowdowns(windows: Iterable[Entry]) -> dict[Situation, list[tuple[float, float]]]:
    """Return predicted and measured slowdowns of every pod, by its workload, its neighbours and the device type."""
    solo: dict[tuple[str, str], list[float]] = {}
    shared: dict[tuple[Situation, str], list[Entry]] = {}
    for window in windows:
        workload, device_type = str(window["workload"]), str(window["device_type"])
        if window["company"]:
            situation = workload, tuple(sorted(map(str, window["company"]))), device_type
            shared.setdefault((situation, window["uid"]), []).append(window)
        else:
            solo.setdefault((workload, device_type), []).append(window["step_time_s"])
    found: dict[Situation, list[tuple[float, float]]] = {}
    for (situation, _), own in shared.items():
        alone_s = _median(solo.get((situation[0], situation[2]), ()))
        predicted = _median(each["predicted_slowdown"] for each in own if each.get("predicted_slowdown") is not None)
        found.setdefault(situation, []).append((predicted, _median(each["step_time_s"] for each in own) / alone_s))
    return found


def report_document(summary: JournalReport) -> Document:
    """Return the report of a journal as a document for the terminal and for pages."""
    parts: list[Part] = [
        Sentence(
            f"{summary.decided} jobs have a decision that names a device; {summary.bound} of them ran, "
            f"{summary.as_decided} of these on that device."
        )
    ]
    if summary.compared:
        times = f"{count_noun(summary.compared, 'time')} a job ran beside others with measured steps"
        slowdowns = f"predicted {summary.median_predicted:.2f}, measured {summary.median_measured:.2f}"
        parts.append(Sentence(f"{times}: median slowdown {slowdowns}, median error {summary.median_error:.0%}."))
    elif summary.companies:
        parts.append(Sentence("Jobs ran beside others, but no slowdown is both predicted and measured."))
    else:
        parts.append(Sentence("No job ran beside others with measured steps: nothing to compare yet."))
    if summary.companies:
        columns = (Column("workload"), Column("beside"), Column("device"), Column("jobs", fixed()))
        parts.append(
            Table(
                title="Slowdowns, the largest measured first",
                columns=(*columns, Column("predicted", fixed(2)), Column("measured", fixed(2))),
                rows=tuple(
                    (
                        each.workload,
                        " + ".join(each.company),
                        each.device_type,
                        each.pods,
                        each.predicted,
                        each.measured,
                    )
                    for each in summary.companies
                ),
                fold=MOST_COMPANIES,
            )
        )
    return Document(f"Advice and measurements of {summary.days:.1f} days", tuple(parts))


def _median(values: Iterable[float]) -> float:
    """Return the median of the values that are not NaN; NaN where there are none."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else NAN


def _rank(each: CompanyReport) -> tuple[float, str, tuple[str, ...]]:
    """Return the sort key of a report: the largest measured slowdown first, unknown ones last."""
    return 0.0 if math.isnan(each.measured) else -each.measured, each.workload, each.company
