"""Records as JSON text in a row, and back: NaN as null, tuples as lists, nothing lost."""

import json
import math

from interfere.records import JobProfile, MemoryUsage, Observation, Outcome, OutcomeKind, Progress, Rollback


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
    values = {name: getattr(observation, name) for name in observation.__dataclass_fields__}
    present = {k: v for k, v in values.items() if not (isinstance(v, float) and math.isnan(v))}
    return json.dumps(present, sort_keys=True, allow_nan=False)


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
