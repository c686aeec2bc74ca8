"""Records as one line of JSON each, and back. NaN fields are left out, tuples become lists, nothing is lost."""

import json
import math
from typing import Any

from interfere.records import (
    AcceptedDeadline,
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
    ReporterWeight,
    Rollback,
    Rule,
    RuleKind,
)
from interfere.sharing_modes import parse_optional_mode


def profile_to_json(profile: JobProfile) -> str:
    """The profile as one line of JSON."""
    return json.dumps(profile.to_dict(), sort_keys=True, allow_nan=False)


def profile_from_json(text: str) -> JobProfile:
    """Inverse of `profile_to_json`."""
    return JobProfile.from_dict(json.loads(text))


_OBSERVATION_TYPES: dict[str, type[Observation]] = {
    "progress": Progress,
    "memory_usage": MemoryUsage,
    "outcome": Outcome,
    "rollback": Rollback,
    "reporter_weight": ReporterWeight,
}
_OBSERVATION_KINDS = {type_: kind for kind, type_ in _OBSERVATION_TYPES.items()}


def observation_kind(observation: Observation) -> str:
    """The name of an observation's kind, as on the wire: progress, memory_usage, outcome, ...."""
    return _OBSERVATION_KINDS[type(observation)]


def observation_to_json(observation: Observation) -> str:
    """The observation as one line of JSON, without NaN fields."""
    return json.dumps(_known_fields(observation), sort_keys=True, allow_nan=False)


def observation_from_json(kind: str, text: str) -> Observation:
    """Inverse of `observation_to_json`; `kind` is that of `observation_kind`."""
    values = json.loads(text)
    if kind == "progress":
        values["company"] = tuple(values.get("company", ()))
    elif kind == "outcome":
        values["kind"] = OutcomeKind(values["kind"])
    return _OBSERVATION_TYPES[kind](**values)


def progress_from_json(text: str) -> Progress:
    """Inverse of `observation_to_json` for a progress window."""
    progress = observation_from_json("progress", text)
    assert isinstance(progress, Progress)
    return progress


def promise_to_json(promise: Promise) -> str:
    """The promise as one line of JSON, without NaN fields."""
    content: dict[str, object] = {"action": _known_fields(promise.action), "decision_ids": promise.decision_ids}
    content["from_device_id"] = promise.from_device_id
    if not math.isnan(promise.since_s):
        content["since_s"] = promise.since_s
    return json.dumps(content, sort_keys=True, allow_nan=False)


def promise_from_json(text: str) -> Promise:
    """Inverse of `promise_to_json`."""
    content = json.loads(text)
    action = content["action"]
    action["kind"], action["device_ids"] = ActionKind(action["kind"]), tuple(action["device_ids"])
    action |= {name: tuple(action.get(name, ())) for name in _SINCE_GROUPS}
    if "rule" in action:  # rows of earlier versions have none
        action["rule"] = _rule_from_fields(action["rule"])
    action["mode"] = parse_optional_mode(action.get("mode", ""))
    return Promise(
        action=Action(**action),
        decision_ids=tuple(content["decision_ids"]),
        from_device_id=content["from_device_id"],
        since_s=content.get("since_s", math.nan),
    )


def accepted_deadline_to_json(accepted: AcceptedDeadline) -> str:
    """The accepted deadline as one line of JSON: a promise to wait, which keeps no device.

    Stores keep accepted deadlines in this form since format 5, so that servers of either version can share one.
    """
    action = Action(
        kind=ActionKind.WAIT,
        job_id=accepted.job_id,
        promised_by_s=accepted.deadline_s,
        reason="deadline",
        accepted=True,
    )
    return promise_to_json(Promise(action=action, decision_ids=accepted.decision_ids))


def promise_or_deadline_from_json(text: str) -> Promise | AcceptedDeadline:
    """Inverse of `promise_to_json` and of `accepted_deadline_to_json`."""
    promise = promise_from_json(text)
    if promise.action.kind is not ActionKind.WAIT:
        return promise
    return AcceptedDeadline(
        job_id=promise.action.job_id,
        deadline_s=promise.action.promised_by_s,
        decision_ids=promise.decision_ids,
    )


def grant_to_json(grant: Grant) -> str:
    """The grant as one line of JSON, without NaN fields."""
    return json.dumps(_known_fields(grant), sort_keys=True, allow_nan=False)


def grant_from_json(text: str) -> Grant:
    """Inverse of `grant_to_json`."""
    values = json.loads(text)
    defaults = {"since_s": math.nan, "bytes": math.nan}
    return Grant(**defaults | values | {"device_ids": tuple(values["device_ids"])})


def slots_to_json(slots: DeviceSlots) -> str:
    """The memory granules of a device as one line of JSON."""
    return json.dumps(_known_fields(slots), sort_keys=True, allow_nan=False)


def slots_from_json(text: str) -> DeviceSlots:
    """Inverse of `slots_to_json`."""
    return DeviceSlots(**json.loads(text))


def _rule_from_fields(fields: dict[str, Any]) -> Rule:
    """Inverse of `_known_fields` for a rule."""
    fields["kind"], fields["pools"] = RuleKind(fields["kind"]), tuple(fields["pools"])
    fields["sharing_mode"] = parse_optional_mode(fields.get("sharing_mode", ""), "sharing_mode")
    if "action" in fields:
        fields["action"] = ActionKind(fields["action"])
    for name in ("demand", "partner_demand"):
        if name in fields:
            demand = fields[name]
            bases = {basis: MemoryBasis(demand[basis]) for basis in ("basis", "known_basis")}
            fields[name] = MemoryDemand(**demand | bases)
    return Rule(**fields)


_SINCE_GROUPS = ("partner_ids", "partner_slowdowns")
_LEFT_OUT_EMPTY = (*_SINCE_GROUPS, "mode")  # of actions; servers before these fields read rows without them


def _known_fields(record: Observation | Action | Grant | DeviceSlots | Rule | MemoryDemand) -> dict[str, object]:
    """The fields of a record by name, without those that are NaN or None."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {
        name: _known_fields(value) if isinstance(value, Rule | MemoryDemand) else value
        for name, value in values.items()
        if value is not None
        and not (isinstance(value, float) and math.isnan(value))
        and (value or name not in _LEFT_OUT_EMPTY)
    }
