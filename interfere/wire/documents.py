"""The JSON documents that commands read, and those that commands print with --json."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, Violation
from interfere.records import (
    Explanation,
    MemoryUsage,
    Observation,
    ObservationLog,
    Outcome,
    PairAnswer,
    Plan,
    Progress,
    ReporterWeight,
)
from interfere.records.checks import Inspection
from interfere.records.documents import from_document, listed, to_document
from interfere.records.observations import OBSERVATION_TYPES, observation_kind
from interfere.records.record import read_each
from interfere.reports.numbers import format_gib


def read_json(source: str) -> Any:
    """Return the JSON document in a file, or on standard input for `-`. Raises InvalidInputError."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        what, remedy = f"the file cannot be read ({error.strerror})", "give a JSON file, or - for standard input"
        raise InvalidInputError(what, value=source, remedy=remedy) from None
    except ValueError as error:
        raise InvalidInputError(f"not JSON ({error})", value=source, remedy="send one JSON document") from None


def read_observations(document: object) -> tuple[Observation, ...]:
    """Return the observations of a document, which is {"observations": [...]} or the list itself.

    In each observation, the key "what" names the kind; without the key an observation is progress. Raises
    InvalidInputError.
    """
    if isinstance(document, Mapping) and set(document) == {"observations"}:
        document = document["observations"]
    inspection = Inspection()
    observations = inspection.read("observations", lambda: read_each(_observation, listed(document)))
    inspection.done()
    return observations or ()


def _observation(document: object) -> Observation:
    fields = dict(document) if isinstance(document, Mapping) else document
    kind = fields.pop("what", "progress") if isinstance(fields, dict) else "progress"
    if kind not in list(OBSERVATION_TYPES):
        violation = Violation(
            field="what", what="unknown kind", value=repr(kind)[:80], remedy=f"one of {', '.join(OBSERVATION_TYPES)}"
        )
        raise InvalidInputError.from_violations([violation])
    return from_document(OBSERVATION_TYPES[kind], fields)


def decision_document(decision: Plan | Explanation) -> dict[str, Any]:
    """Return all fields of a plan or an explanation by name. Rules contain only the parameters of their kind."""
    document = to_document(decision)
    actions = document["actions"] if isinstance(decision, Plan) else [document["action"]]
    for part in (*actions, *document["refused"]):
        part["rule"] = _present_parameters(part["rule"])
    return document


def _present_parameters(rule: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a rule, or the memory demand in it, without absent parameters."""
    if rule is None:
        return None
    values = {name: _present_parameters(value) if isinstance(value, dict) else value for name, value in rule.items()}
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def pair_document(answer: PairAnswer, names: list[str]) -> dict[str, Any]:
    """Return predictions as a document, with one entry for each pair and the names of its jobs."""
    return {
        "model_version": answer.model_version,
        "device_type": answer.device_type,
        "predictions": [
            {
                "victim": names[row["victim"]],
                "neighbour": names[row["neighbour"]],
                "slowdown": row["median"],
                "lower": row["lower"],
                "upper": row["upper"],
                "feasibility": row["feasibility"],
                "source": row["source"].value,
                "reason": row["reason"],
                "further": [names[place] for place in row["further"]],
            }
            for row in answer.rows()
        ],
    }


def log_document(log: ObservationLog) -> dict[str, Any]:
    """Return a part of the log as a document: its entries, the online state and the largest corrections."""
    return {
        "entries": [
            {
                "sequence": entry.sequence,
                "received_s": entry.received_s,
                "what": observation_kind(entry.observation),
                "job": getattr(entry.observation, "job_id", ""),
                "about": _about(entry.observation),
                "result": entry.result.value,
                "reason": entry.reason,
                "rolled_back": entry.rolled_back,
                "observation": to_document(entry.observation),
            }
            for entry in log.entries
        ],
        "online": to_document(log.online),
        "corrections": [to_document(correction) for correction in log.corrections],
    }


def _about(observation: Observation) -> str:
    """Return a line that says, for people, what an observation reports."""
    if isinstance(observation, Progress):
        beside = " beside " + ", ".join(observation.company) if observation.company else " alone"
        has_slowdown = not math.isnan(observation.slowdown)
        progress = f"slowdown {observation.slowdown:g}" if has_slowdown else f"{observation.steps:g} steps"
        duration_s = observation.end_s - observation.start_s
        return f"{observation.workload}{beside} on {observation.device_type}: {progress} in {duration_s:g} s"
    if isinstance(observation, MemoryUsage):
        return f"{observation.workload} on {observation.device_type}: {format_gib(observation.bytes)}"
    if isinstance(observation, Outcome):
        return f"{observation.kind.value}: {observation.reason}"
    if isinstance(observation, ReporterWeight):
        return f"{observation.reporter} counts {observation.weight:g}: {observation.reason}"
    if observation.undoes:
        return f"undo {observation.undoes}: {observation.reason}"
    of_reporter = f" of {observation.reporter}" if observation.reporter else ""
    return f"to {observation.to_sequence}{of_reporter}: {observation.reason}"
