"""The job profiles that a model folder carries: what each source says of the workloads that it was trained on.

`profiles.json.gz` is a list of profiles without their absent facts. The kernels of one stand in columns, one list a
fact with null where a kernel lacks it. Folders of older versions have `profiles.json`, with a list of kernels, which is
read too.
"""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, ModelError
from interfere.predict.manifest import PROFILES_FILES, REMEDY
from interfere.records import JobProfile
from interfere.records.documents import from_document, to_document

PROFILES_FILE, PLAIN_FILE = PROFILES_FILES


def shipped_profiles(folder: Path) -> tuple[JobProfile, ...]:
    """All profiles of the model folder, one of each source. Raises ModelError when there are none that can be read."""
    name = PROFILES_FILE if (folder / PROFILES_FILE).is_file() else PLAIN_FILE
    try:
        content = (folder / name).read_bytes()
        documents = json.loads(gzip.decompress(content) if name == PROFILES_FILE else content)
        return tuple(_profile(document) for document in documents)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, InvalidInputError) as error:
        raise ModelError(f"{name} cannot be read ({error!r})", value=folder, remedy=REMEDY) from None


def profiles_content(profiles: Sequence[JobProfile]) -> bytes:
    """`profiles.json.gz` of these profiles: reading it gives them back, bit for bit."""
    documents = [_document(to_document(profile)) for profile in profiles]
    text = json.dumps(documents, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return gzip.compress(f"{text}\n".encode(), mtime=0)


def _document(facts: Mapping[str, Any]) -> dict[str, Any]:
    kernels = facts["kernels"]
    columns = {name: [kernel[name] for kernel in kernels] for name in (kernels[0] if kernels else ())}
    known = {name: values for name, values in columns.items() if any(value not in (None, []) for value in values)}
    document = {name: value for name, value in facts.items() if value not in (None, []) or name == "step_time_s"}
    return document | ({"kernels": known} if known else {})


def _profile(document: Mapping[str, Any]) -> JobProfile:
    kernels = document.get("kernels", [])
    if isinstance(kernels, Mapping):
        rows = zip(*kernels.values(), strict=True)
        kernels = [dict(zip(kernels, row, strict=True)) for row in rows]
    return from_document(JobProfile, {**document, "kernels": kernels})
