"""Records as JSON text in a row, and back: NaN as null, tuples as lists, nothing lost."""

import json
import math

from interfere.records import (
    AcceptedDeadline,
    Action,
    ActionKind,
    DeviceSlots,
    Grant,
    JobProfile,
    MemoryUsage,
    Observation,
    Outcome,
    OutcomeKind,
    Progress,
    Promise,
    Rollback,
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


def accepted_deadline_text(accepted: AcceptedDeadline) -> str:
    """One line of JSON: a promise to wait, which keeps no device.

    Stores have kept accepted deadlines in this form since format 5, so that servers of either version can share one.
    """
    action = Action(
        kind=ActionKind.WAIT,
        job_id=accepted.job_id,
        promised_by_s=accepted.deadline_s,
        reason="deadline",
        accepted=True,
    )
    return promise_text(Promise(action=action, decision_ids=accepted.decision_ids))


def read_promise(text: str) -> Promise:
    """Inverse of `promise_text`."""
    content = json.loads(text)
    action = content["action"]
    action["kind"], action["device_ids"] = ActionKind(action["kind"]), tuple(action["device_ids"])
    return Promise(
        action=Action(**action),
        decision_ids=tuple(content["decision_ids"]),
        from_device_id=content["from_device_id"],
        since_s=content.get("since_s", math.nan),
    )


def read_promised(text: str) -> Promise | AcceptedDeadline:
    """Inverse of `promise_text`, and of `accepted_deadline_text`."""
    promise = read_promise(text)
    if promise.action.kind is not ActionKind.WAIT:
        return promise
    return AcceptedDeadline(
        job_id=promise.action.job_id,
        deadline_s=promise.action.promised_by_s,
        decision_ids=promise.decision_ids,
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


def _present(record: Observation | Action | Grant | DeviceSlots) -> dict[str, object]:
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {k: v for k, v in values.items() if not (isinstance(v, float) and math.isnan(v))}
