"""Records to JSON documents, under the names of their fields."""

import math
from dataclasses import asdict
from typing import Any

from interfere.records import (
    Explanation,
    MemoryUsage,
    Observation,
    Outcome,
    Plan,
    Progress,
    ReporterWeight,
    Snapshot,
)
from interfere.wire.json_input import OBSERVATION_KINDS
from interfere.wire.messages import GrantTables, ObservationAnswer, ObservationLog, PairAnswer


def plan_document(plan: Plan) -> dict[str, Any]:
    """All of a plan, under the names of its fields; of rules only the parameters that their kind carries."""
    document = asdict(plan)
    for part in (*document["actions"], *document["refused"]):
        part["rule"] = _present_parameters(part["rule"])
    return document


def grants_document(tables: GrantTables) -> dict[str, Any]:
    """The tables of devices and grants as a document."""
    return asdict(tables)


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """All of an explanation, under the names of its fields; of rules only the parameters that their kind carries."""
    document = asdict(explanation)
    for part in (document["action"], *document["refused"]):
        part["rule"] = _present_parameters(part["rule"])
    return document


def _present_parameters(rule: dict[str, Any] | None) -> dict[str, Any] | None:
    """A rule, or the memory demand in one, without the parameters that are absent."""
    if rule is None:
        return None
    values = {name: _present_parameters(value) if isinstance(value, dict) else value for name, value in rule.items()}
    return {
        name: value
        for name, value in values.items()
        if value not in (None, "", ()) and not (isinstance(value, float) and math.isnan(value))
    }


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as a document that `read_snapshot` reads back."""
    document = asdict(snapshot)
    sets = {"allowed": sorted(snapshot.limits.allowed), "choosable_modes": sorted(snapshot.limits.choosable_modes)}
    document["limits"] = snapshot.limits.flat() | sets
    return document


def pair_document(answer: PairAnswer, names: list[str]) -> dict[str, Any]:
    """One entry a pair, its jobs by name."""
    prediction = answer.prediction
    rows = zip(
        answer.victim.tolist(),
        answer.neighbour.tolist(),
        prediction.median.tolist(),
        prediction.lower.tolist(),
        prediction.upper.tolist(),
        prediction.feasibility.tolist(),
        prediction.source,
        prediction.reason,
        answer.further or ((),) * len(prediction.median),
        strict=True,
    )
    return {
        "model_version": answer.model_version,
        "device_type": answer.device_type,
        "predictions": [
            {
                "victim": names[victim],
                "neighbour": names[neighbour],
                "slowdown": median,
                "lower": lower,
                "upper": upper,
                "feasibility": feasibility,
                "source": source.value,
                "reason": reason,
                "further": [names[place] for place in further],
            }
            for victim, neighbour, median, lower, upper, feasibility, source, reason, further in rows
        ],
    }


def answers_document(answers: tuple[ObservationAnswer, ...]) -> dict[str, Any]:
    """One entry per observation."""
    return {"observations": [asdict(answer) for answer in answers]}


def log_document(log: ObservationLog) -> dict[str, Any]:
    """Entries with their essentials first, the online state and the largest corrections."""
    names = {kind: name for name, kind in OBSERVATION_KINDS.items()}
    return {
        "entries": [
            {
                "sequence": entry.sequence,
                "received_s": entry.received_s,
                "what": names[type(entry.observation)],
                "job": getattr(entry.observation, "job_id", ""),
                "about": _about(entry.observation),
                "result": entry.result.value,
                "reason": entry.reason,
                "rolled_back": entry.rolled_back,
                "observation": asdict(entry.observation),
            }
            for entry in log.entries
        ],
        "online": asdict(log.online),
        "corrections": [asdict(correction) for correction in log.corrections],
    }


def _about(observation: Observation) -> str:
    """One line for people."""
    if isinstance(observation, Progress):
        beside = " beside " + ", ".join(observation.company) if observation.company else " alone"
        has_slowdown = not math.isnan(observation.slowdown)
        progress = f"slowdown {observation.slowdown:g}" if has_slowdown else f"{observation.steps:g} steps"
        duration_s = observation.end_s - observation.start_s
        return f"{observation.workload}{beside} on {observation.device_type}: {progress} in {duration_s:g} s"
    if isinstance(observation, MemoryUsage):
        return f"{observation.workload} on {observation.device_type}: {observation.bytes / 2**30:.2f} GiB"
    if isinstance(observation, Outcome):
        return f"{observation.kind.value}: {observation.reason}"
    if isinstance(observation, ReporterWeight):
        return f"{observation.reporter} counts {observation.weight:g}: {observation.reason}"
    if observation.undoes:
        return f"undo {observation.undoes}: {observation.reason}"
    of_reporter = f" of {observation.reporter}" if observation.reporter else ""
    return f"to {observation.to_sequence}{of_reporter}: {observation.reason}"
