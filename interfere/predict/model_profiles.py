"""The job profiles stored in a model folder: for each training workload one profile per source.

`profiles.json.gz` is a list of profiles without their absent facts. The kernels of a profile are stored by column, one
list per fact, with null where a kernel lacks the fact. The older format `profiles.json`, with one object per kernel, is
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
    """Return all profiles of a model folder, one per workload and source. Raises ModelError when none can be read."""
    name = PROFILES_FILE if (folder / PROFILES_FILE).is_file() else PLAIN_FILE
    try:
        content = (folder / name).read_bytes()
        documents = json.loads(gzip.decompress(content) if name == PROFILES_FILE else content)
        return tuple(_profile(document) for document in documents)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, InvalidInputError) as error:
        raise ModelError(f"{name} cannot be read ({error!r})", value=folder, remedy=REMEDY) from None


def profiles_content(profiles: Sequence[JobProfile]) -> bytes:
    """Return the bytes of `profiles.json.gz` for these profiles; reading the file restores them bit for bit."""
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
