"""The profiles that a model folder carries: what its training knew of every job."""

import json
from pathlib import Path

from interfere.errors import ModelError
from interfere.predict.manifest import REMEDY
from interfere.records import JobProfile


def shipped_profiles(folder: Path) -> tuple[JobProfile, ...]:
    """All of them. Raises ModelError when the folder has none that can be read."""
    try:
        documents = json.loads((folder / "profiles.json").read_text(encoding="utf-8"))
        return tuple(JobProfile.from_dict(document) for document in documents)
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"profiles.json cannot be read ({error!r})", value=folder, remedy=REMEDY) from None
