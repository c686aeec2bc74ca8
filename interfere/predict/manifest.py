"""Reads a published model folder and checks every file against the manifest; a changed folder is refused.

The manifest also limits the matrices of a model that predicts pair by pair; one that factorises over jobs has no limit.
The time of a matrix is proportional to the number of its distinct ordered pairs: a job that occurs several times, or
both as victim and as neighbour, is counted once. The limit is the number of pairs that one core predicts in the time
stated in the manifest.

`profiles.json.gz` holds one profile per source for each training workload, without absent facts. The kernels of a
profile are stored by column, one list per fact, with null where a kernel lacks the fact. The older format
`profiles.json`, with one object per kernel, is read too.
"""

import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import InvalidInputError, LimitError, ModelError
from interfere.predict.feasibility import Feasibility
from interfere.predict.groups import GroupComposition, composition_from_json
from interfere.predict.intervals import Intervals
from interfere.records import JobProfile
from interfere.records.checks import METRICS
from interfere.records.documents import from_document, to_document
from interfere.sharing_modes import SharingMode, parse_sharing_mode

FORMAT = 4
# In format 2 a second model predicted the large matrices of a model without a factorised form; it is not used.
# From format 4 on the version is checked, and the folder holds golden requests.
READABLE_FORMATS = (2, 3, FORMAT)
FILES = ("pair.onnx", "arrays.npz", "card.md")
PROFILES_FILE, PLAIN_FILE = "profiles.json.gz", "profiles.json"  # one of them; older folders have the second
GOLDENS_FILE = "goldens.json.gz"  # requests with the answers of the fitted model; the server demands them
MATRIX_GRAPH = "matrix.onnx"  # of a model that factorises over jobs
DIGEST_PREFIX = "sha256:"
_DIGEST = re.compile(DIGEST_PREFIX + "[0-9a-f]{64}")
REMEDY = "publish it again with: interfere train --publish DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A device type, sharing mode and metric on which the model was trained."""

    device_type: str
    mode: SharingMode
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLimit:
    """The limit that a manifest sets on the matrices of a model that does not factorise over jobs."""

    pairs: int  # distinct ordered pairs of one matrix
    seconds: float  # approximate CPU time of one core for a matrix of `pairs` pairs


# Of folders that state none, because another model answered their large matrices: trees take 15 µs a pair.
UNSTATED = MatrixLimit(pairs=100_000, seconds=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of `manifest.json`, which describes the model of a folder."""

    model: str
    version: str
    created_at: str
    fingerprint: str
    workloads: tuple[str, ...]  # workloads[k] has identity k + 1; 0 is an unknown one
    domains: tuple[Domain, ...]
    intervals: Intervals
    feasibility: Feasibility | None  # None where no pair of the tables failed to fit
    scores: Mapping[str, Any]
    factorises: bool  # over jobs: matrices have a graph of their own, `matrix.onnx`
    matrix_limit: MatrixLimit | None  # of a model that does not factorise
    selected_by: str  # "gate" (the champion rule selected the model) or "request" (the user named the model)
    trained_on: tuple[Mapping[str, Any], ...]
    compositions: Mapping[tuple[str, SharingMode], GroupComposition]  # by device type, mode; where groups were measured
    latencies: Mapping[str, str]  # by metric: digest of the model of this latency of services, in a folder of that name


def read_manifest(folder: Path, fingerprint: str, accepted: Collection[str] = ()) -> Manifest:
    """Return the manifest of a model folder after checking all its files.

    `accepted`: digests of the models that may be read (`model_digest`); empty where every model may. Raises ModelError
    when the model is none of them, when a file is missing or differs from its sha256, when the format version is
    another one, when the model's version is not the digest of the folder, or when the model was trained with an encoder
    of another `fingerprint`.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise ModelError("not a model folder: it has no manifest.json", value=folder, remedy=REMEDY)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] not in READABLE_FORMATS:
            raise ModelError("a model folder of another format", value=document["format"], remedy=REMEDY)
        digest = content_digest(document)
        if accepted and digest not in accepted:
            raise ModelError(
                "this is not a model that the server was started for",
                value=digest,
                remedy="if you trust it, start the server with its digest too: --model-digest",
            )
        manifest = _parse(document)
        profiles = PLAIN_FILE if PLAIN_FILE in document["files"] else PROFILES_FILE
        hashes = {
            name: str(document["files"][name])
            for name in {*FILES, profiles, *document["files"]}
            if Path(name).name == name
        }
    except (ValueError, KeyError, TypeError, InvalidInputError) as error:
        raise ModelError(f"manifest.json cannot be read ({error!r})", value=path, remedy=REMEDY) from None
    if manifest.fingerprint != fingerprint:
        raise ModelError(
            "the model was trained under another feature encoder",
            value=f"{manifest.fingerprint}, this program encodes {fingerprint}",
            remedy="retrain with this version: interfere train",
        )
    if document["format"] == FORMAT and manifest.version != content_version(document):
        raise ModelError(
            "the version of the model is not the digest of its folder (edited after training)",
            value=f"{manifest.version[:64]}, the digest is {content_version(document)}",
            remedy=REMEDY,
        )
    if unlisted := sorted(path.name for path in folder.glob("*.npz") if path.name not in hashes):
        raise ModelError(
            "the model folder holds arrays that its manifest does not list", value=", ".join(unlisted), remedy=REMEDY
        )
    for name, expected in hashes.items():
        file = folder / name
        if not file.is_file():
            raise ModelError("a file of the model folder is missing", value=file, remedy=REMEDY)
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise ModelError(
                "a file of the model folder differs from its manifest (truncated or edited)", value=file, remedy=REMEDY
            )
    return manifest


def content_version(document: Mapping[str, Any]) -> str:
    """Return the version of a model folder: the first 12 digits of its digest."""
    return content_digest(document).removeprefix(DIGEST_PREFIX)[:12]


def content_digest(document: Mapping[str, Any]) -> str:
    """Return the digest of a model folder: of its manifest, which lists the digests of all other files.

    The version itself and the time of publication are left out, so that equal models have equal digests.
    """
    content = {name: value for name, value in document.items() if name not in ("version", "created_at")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def model_digest(folder: Path) -> str:
    """Return the digest of a published model folder, as `--model-digest` takes it; its files are not checked.

    Raises ModelError where it has no manifest that can be read.
    """
    try:
        return content_digest(json.loads((folder / "manifest.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"not a model folder ({error!r})"[:200], value=folder, remedy=REMEDY) from None


def parse_digests(text: str) -> frozenset[str]:
    """Return the digests that a text lists, separated by commas. Raises InvalidInputError for anything else."""
    digests = frozenset(part.strip() for part in text.split(",") if part.strip())
    for digest in digests:
        if not _DIGEST.fullmatch(digest):
            raise InvalidInputError(
                "not the digest of a model",
                value=digest[:100],
                remedy="sha256: and 64 digits, as `interfere models digest FOLDER` prints it",
            )
    return digests


def published_version(folder: Path) -> str:
    """Return the version in a folder's manifest; "" where there is no manifest or it cannot be read."""
    try:
        return str(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _parse(document: Mapping[str, Any]) -> Manifest:
    intervals, feasibility = document["intervals"], document["feasibility"]
    same_model = document.get("matrix_model", document["model"]) == document["model"]
    factorises = same_model and MATRIX_GRAPH in document["files"]
    return Manifest(
        model=str(document["model"]),
        version=str(document["version"]),
        created_at=str(document["created_at"]),
        fingerprint=str(document["fingerprint"]),
        workloads=tuple(document["workloads"]),
        domains=tuple(
            Domain(device_type=d["device_type"], mode=parse_sharing_mode(d["mode"]), metric=d["metric"])
            for d in document["domains"]
        ),
        intervals=Intervals(
            calibrated=bool(intervals["calibrated"]),
            levels=np.array(intervals["levels"], dtype=np.float64),
            grids=np.array(intervals["grids"], dtype=np.float64),
            abstains_above=math.inf if (above := intervals.get("abstains_above")) is None else float(above),
        ),
        feasibility=None
        if feasibility is None
        else Feasibility(
            level=float(feasibility["level"]),
            slope=float(feasibility["slope"]),
            effect=np.array(feasibility["effect"], dtype=np.float64),
        ),
        scores=document["scores"],
        factorises=factorises,
        matrix_limit=None if factorises else _matrix_limit(document),
        selected_by=str(document.get("selected_by", "gate")),
        trained_on=tuple(document["trained_on"]),
        compositions={
            (each["device_type"], parse_sharing_mode(each["mode"])): composition_from_json(each["composition"])
            for each in document.get("groups", ())
        },
        latencies={
            metric: str(document["latencies"][metric]) for metric in METRICS if metric in document.get("latencies", ())
        },
    )


def _matrix_limit(document: Mapping[str, Any]) -> MatrixLimit:
    limit = document.get("matrix_limit")
    return UNSTATED if limit is None else MatrixLimit(pairs=int(limit["pairs"]), seconds=float(limit["seconds"]))


def distinct_pairs(victims: int, neighbours: int, common: int) -> int:
    """Return the number of ordered pairs of a matrix in both directions.

    `victims` and `neighbours` are numbers of distinct jobs; `common` jobs occur on both sides.
    """
    return 2 * victims * neighbours - common * common


def check_matrix_size(
    victims: Sequence[JobProfile], neighbours: Sequence[JobProfile], limit: MatrixLimit | None, model: str
) -> None:
    """Raise LimitError for a matrix that holds more distinct ordered pairs than `limit`. Profiles are told apart by
    identity, as caches do."""
    if limit is None or 2 * len(victims) * len(neighbours) <= limit.pairs:
        return
    rows, columns = {id(job) for job in victims}, {id(job) for job in neighbours}
    require_within(distinct_pairs(len(rows), len(columns), len(rows & columns)), limit, model)


def require_within(pairs: int, limit: MatrixLimit | None, model: str) -> None:
    """Raise LimitError for more distinct ordered pairs than `limit` allows; None means no limit."""
    if limit is not None and pairs > limit.pairs:
        raise LimitError(
            f"too large a matrix for the model {model}, which predicts pair by pair",
            value=f"{pairs:,} distinct ordered pairs, {limit.pairs:,} take it {limit.seconds:g} s",
            remedy="ask about fewer jobs that differ, or serve a model without this limit: "
            "interfere train --champion gp (or ensemble, mlp)",
        )


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
