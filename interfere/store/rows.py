"""Records as JSON text in a row, and back: NaN as null, tuples as lists, nothing lost."""

import json
import math
from typing import Any

from interfere.records import (
    Action,
    ActionKind,
    DeviceSlots,
    Grant,
    JobProfile,
    MemoryBasis,
    MemoryDemand,
    MemoryUsage,
    Observation,
    Outcome,
    OutcomeKind,
    Progress,
    Promise,
    Rollback,
    Rule,
    RuleKind,
)


def profile_text(profile: JobProfile) -> str:
    """One line of JSON."""
    return json.dumps(profile.to_dict(), sort_keys=True, allow_nan=False)


def read_profile(text: str) -> JobProfile:
    """Inverse of `profile_text`."""
    return JobProfile.from_dict(json.loads(text))


_KINDS: dict[str, type[Observation]] = {
    "progress": Progress,
    "memory_usage": MemoryUsage,
    "outcome": Outcome,
    "rollback": Rollback,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def kind_of(observation: Observation) -> str:
    """The name of its kind, as on the wire."""
    return _NAMES[type(observation)]


def observation_text(observation: Observation) -> str:
    """One line of JSON without what is absent."""
    return json.dumps(_present(observation), sort_keys=True, allow_nan=False)


def read_observation(kind: str, text: str) -> Observation:
    """Inverse of `observation_text`."""
    values = json.loads(text)
    if kind == "progress":
        values["company"] = tuple(values.get("company", ()))
    elif kind == "outcome":
        values["kind"] = OutcomeKind(values["kind"])
    return _KINDS[kind](**values)


def read_window(text: str) -> Progress:
    """Inverse of `observation_text` of a window."""
    window = read_observation("progress", text)
    assert isinstance(window, Progress)
    return window


def promise_text(promise: Promise) -> str:
    """One line of JSON without what is absent."""
    content: dict[str, object] = {"action": _present(promise.action), "decision_ids": promise.decision_ids}
    content["from_device_id"] = promise.from_device_id
    if not math.isnan(promise.since_s):
        content["since_s"] = promise.since_s
    return json.dumps(content, sort_keys=True, allow_nan=False)


def read_promise(text: str) -> Promise:
    """Inverse of `promise_text`."""
    content = json.loads(text)
    action = content["action"]
    action["kind"], action["device_ids"] = ActionKind(action["kind"]), tuple(action["device_ids"])
    action["rule"] = _read_rule(action["rule"]) if "rule" in action else None
    return Promise(
        action=Action(**action),
        decision_ids=tuple(content["decision_ids"]),
        from_device_id=content["from_device_id"],
        since_s=content.get("since_s", math.nan),
    )


def grant_text(grant: Grant) -> str:
    """One line of JSON without what is absent."""
    return json.dumps(_present(grant), sort_keys=True, allow_nan=False)


def read_grant(text: str) -> Grant:
    """Inverse of `grant_text`."""
    values = json.loads(text)
    absent = {"since_s": math.nan, "bytes": math.nan}
    return Grant(**absent | values | {"device_ids": tuple(values["device_ids"])})


def slots_text(slots: DeviceSlots) -> str:
    """One line of JSON."""
    return json.dumps(_present(slots), sort_keys=True, allow_nan=False)


def read_slots(text: str) -> DeviceSlots:
    """Inverse of `slots_text`."""
    return DeviceSlots(**json.loads(text))


def _read_rule(values: dict[str, Any]) -> Rule:
    values["kind"], values["pools"] = RuleKind(values["kind"]), tuple(values["pools"])
    if "action" in values:
        values["action"] = ActionKind(values["action"])
    for name in ("demand", "partner_demand"):
        if name in values:
            demand = values[name]
            bases = {basis: MemoryBasis(demand[basis]) for basis in ("basis", "known_basis")}
            values[name] = MemoryDemand(**demand | bases)
    return Rule(**values)


def _present(record: Observation | Action | Grant | DeviceSlots | Rule | MemoryDemand) -> dict[str, object]:
    """The fields of a record without absent numbers and records."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {
        name: _present(value) if isinstance(value, Rule | MemoryDemand) else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }
