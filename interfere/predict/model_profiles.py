"""The job profiles that a model folder carries: what each source says of the workloads that it was trained on."""

import json
from pathlib import Path

from interfere.errors import ModelError
from interfere.predict.manifest import REMEDY
from interfere.records import JobProfile


def shipped_profiles(folder: Path) -> tuple[JobProfile, ...]:
    """All profiles of the model folder, one of each source. Raises ModelError when there are none that can be read."""
    try:
        documents = json.loads((folder / "profiles.json").read_text(encoding="utf-8"))
        return tuple(JobProfile.from_dict(document) for document in documents)
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"profiles.json cannot be read ({error!r})", value=folder, remedy=REMEDY) from None
