"""Records as JSON text in a row, and back: NaN as null, tuples as lists, nothing lost."""

import json
import math
from dataclasses import asdict

from interfere.records import JobProfile, Progress


def profile_text(profile: JobProfile) -> str:
    """One line of JSON."""
    return json.dumps(profile.to_dict(), sort_keys=True, allow_nan=False)


def read_profile(text: str) -> JobProfile:
    """Inverse of `profile_text`."""
    return JobProfile.from_dict(json.loads(text))


def window_text(window: Progress) -> str:
    """One line of JSON without what is absent."""
    values = {k: v for k, v in asdict(window).items() if not (isinstance(v, float) and math.isnan(v))}
    return json.dumps(values, sort_keys=True, allow_nan=False)


def read_window(text: str) -> Progress:
    """Inverse of `window_text`."""
    values = json.loads(text)
    values["company"] = tuple(values.get("company", ()))
    return Progress(**values)
