"""Golden requests: requests of a model folder with the answers that the fitted model gave in training.

A reader of the folder asks the exported graphs the same requests before it serves them, so that a folder whose hashes
are right and whose answers are not is refused. Law 1: the expected answers are those of the fitted model, never of the
exported graphs nor of measured pairs. Law 2: a replay asks the bare model, without measured pairs and without what was
learned online. Law 3: an answer that is not finite, outside the range of slowdowns that the folder states, or more than
`PARITY_BUDGET` from the expected one refuses the folder.
"""

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InterfereError, InvalidInputError, ModelError
from interfere.predict.groups import GroupComposition, compose_groups, composition_of, total_memory_share
from interfere.predict.manifest import GOLDENS_FILE, REMEDY
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, PairBatch, Prediction
from interfere.records.documents import from_document, to_document
from interfere.sharing_modes import SharingMode, parse_sharing_mode

PARITY_BUDGET = 1e-5  # log slowdown; float32 sums of 300 trees or 32 products differ by under 1e-6
FEASIBILITY_BUDGET = 1e-6  # of a probability: the same formula in float64 on both sides
DIGITS = 9  # significant, of an expected number: 5e-9 of it is far below the budget
DEVICE_MEMORY_BYTES = 16 * 2.0**30  # of the device that golden requests ask about

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Answer = Mapping[str, Floats]
"""Numbers of one answer by name. Names in `SLOWDOWNS` are slowdowns."""
SLOWDOWNS = ("median", "lower", "upper", "victim_slowdown", "neighbour_slowdown")


class RequestKind(StrEnum):
    """The kind of question in a golden request."""

    PAIRS = "pairs"  # a list of ordered pairs, or one
    MATRIX = "matrix"  # every victim beside every neighbour, in both directions
    GROUP = "group"  # one victim beside all neighbours at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownRange:
    """The range in which a model folder states that all golden answers lie."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not (0.0 < self.least <= self.most < math.inf):
            raise InvalidInputError("not a range of slowdowns", value=f"{self.least} to {self.most}", remedy=REMEDY)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRequest:
    """One request. `victims` and `neighbours` index `jobs`: pair by pair in a list, else one after the other."""

    name: str  # for messages
    kind: RequestKind
    device_type: str
    mode: SharingMode
    jobs: tuple[str | JobProfile, ...]  # a workload of the folder's profiles by name, or the profile of a new job
    victims: tuple[int, ...]
    neighbours: tuple[int, ...]
    quantile: float = 0.5  # of a matrix

    def profiles(self, known: Mapping[tuple[str, str], JobProfile]) -> tuple[JobProfile, ...]:
        """Return the profiles of the jobs; `known` are the folder's, by workload and device type. Raises ModelError."""
        found = [known.get((job, self.device_type)) if isinstance(job, str) else job for job in self.jobs]
        for job, profile in zip(self.jobs, found, strict=True):
            if profile is None:
                raise ModelError(
                    "the profile of a job of a golden request is missing",
                    value=f"{job} on {self.device_type}, request {self.name}",
                    remedy=REMEDY,
                )
        return tuple(profile for profile in found if profile is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A golden request with its expected answer."""

    request: GoldenRequest
    expected: Answer


def replay_goldens(
    goldens: Sequence[Golden],
    stated: SlowdownRange,
    model: Predictor,
    profiles: Mapping[tuple[str, str], JobProfile],
) -> None:
    """Ask a bare model all golden requests. Raises ModelError at the first answer that must not be served.

    `profiles` are those of the model's folder, by workload and device type.
    """
    for golden in goldens:
        try:
            answer = answer_of(golden.request, model, profiles)
        except InterfereError:
            raise
        except Exception as error:  # whatever a broken graph makes ONNX Runtime or numpy raise
            raise _refusal(golden.request, f"no answer ({error!r})"[:300], "an answer") from None
        _check_answer(golden, answer, stated)


def answer_of(request: GoldenRequest, model: Predictor, known: Mapping[tuple[str, str], JobProfile]) -> Answer:
    """Return a model's answer to a golden request, by the names of the numbers, float64[...] each, flat."""
    jobs = request.profiles(known)
    victims, neighbours = np.array(request.victims), np.array(request.neighbours)
    if request.kind is RequestKind.MATRIX:
        matrix = model.predict_matrix(
            MatrixBatch(
                victims=tuple(jobs[k] for k in request.victims),
                neighbours=tuple(jobs[k] for k in request.neighbours),
                device_type=request.device_type,
                mode=request.mode,
                device_memory_bytes=DEVICE_MEMORY_BYTES,
                allow_extrapolation=True,
            ),
            quantile=request.quantile,
        )
        return {
            "victim_slowdown": matrix.victim_slowdown.astype(np.float64).ravel(),
            "neighbour_slowdown": matrix.neighbour_slowdown.astype(np.float64).ravel(),
        }
    if request.kind is RequestKind.GROUP:
        victims = np.full(len(neighbours), request.victims[0])
    pairs = _ask_pairs(request, model, jobs, victims, neighbours, allow_extrapolation=True)
    if request.kind is RequestKind.GROUP:
        return numbers_of(
            group_prediction(request, jobs, pairs, composition_of(model, request.device_type, request.mode))
        )
    careful = _ask_pairs(request, model, jobs, victims, neighbours, allow_extrapolation=False)
    return {**numbers_of(pairs), "abstains": np.isnan(careful.median).astype(np.float64)}


def group_prediction(
    request: GoldenRequest, jobs: Sequence[JobProfile], pairs: Prediction, composition: GroupComposition
) -> Prediction:
    """Return the prediction for the group of a request, composed of the predictions for the victim beside each
    neighbour."""
    group = [jobs[k] for k in (*request.victims, *request.neighbours)]
    share = np.array([total_memory_share(group, DEVICE_MEMORY_BYTES)])
    return compose_groups(pairs, [len(request.neighbours)], share, composition)


def numbers_of(prediction: Prediction) -> Answer:
    """Return the numbers of a prediction by name, as golden requests compare them."""
    return {name: getattr(prediction, name) for name in ("median", "lower", "upper", "feasibility")}


def _ask_pairs(
    request: GoldenRequest,
    model: Predictor,
    jobs: tuple[JobProfile, ...],
    victims: Ints,
    neighbours: Ints,
    *,
    allow_extrapolation: bool,
) -> Prediction:
    return model.predict_pairs(
        PairBatch(
            jobs=jobs,
            victim=victims,
            neighbour=neighbours,
            device_type=request.device_type,
            mode=request.mode,
            device_memory_bytes=DEVICE_MEMORY_BYTES,
            allow_extrapolation=allow_extrapolation,
        )
    )


def _check_answer(golden: Golden, answer: Answer, stated: SlowdownRange) -> None:
    """Raise ModelError at the first number of an answer that Law 3 refuses."""
    if answer.keys() != golden.expected.keys():
        raise _refusal(golden.request, ", ".join(answer), ", ".join(golden.expected))
    for name, expected in golden.expected.items():
        got = answer[name]
        if got.shape != expected.shape:
            raise _refusal(golden.request, f"{len(got)} numbers of {name}", f"{len(expected)}")
        wrong, wanted = _wrong(name, got, expected, stated)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise _refusal(golden.request, f"{name}[{k}] = {got[k]:.9g}", f"{expected[k]:.9g}{wanted}")


def _wrong(name: str, got: Floats, expected: Floats, stated: SlowdownRange) -> tuple[NDArray[np.bool_], str]:
    """Return which numbers are wrong, and what is wanted besides the expected number, in words."""
    if name not in SLOWDOWNS:  # a probability, unknown where memory is, or the flag of an abstention
        agree = np.abs(got - expected) <= FEASIBILITY_BUDGET
        return ~(agree | (np.isnan(got) & np.isnan(expected))), f" within {FEASIBILITY_BUDGET:g}"
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = np.abs(np.log(got) - np.log(expected)) <= PARITY_BUDGET
    # The ends of an interval lie as far beyond the stated range as the residuals reach.
    outside = ~((got >= stated.least) & (got <= stated.most)) if name == "median" else ~np.isfinite(got)
    in_range = f" in [{stated.least:.4g}, {stated.most:.4g}]" if name == "median" else ""
    return ~agree | outside, f"{in_range} within {PARITY_BUDGET:g} in log slowdown"


def _refusal(request: GoldenRequest, got: str, expected: str) -> ModelError:
    return ModelError(
        "the model does not answer a golden request as the fitted model did in training",
        value=f"request '{request.name}' on {request.device_type}/{request.mode}: expected {expected}, got {got}",
        remedy=f"the folder was changed or damaged after training: {REMEDY}",
    )


def goldens_content(goldens: Sequence[Golden], stated: SlowdownRange) -> bytes:
    """Return the bytes of the golden file of a model folder; equal goldens give equal bytes."""
    document = {
        "range": [stated.least, stated.most],
        "requests": [{**_request_document(each.request), "expected": _rounded(each.expected)} for each in goldens],
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return gzip.compress(f"{text}\n".encode(), mtime=0)


def read_goldens(folder: Path) -> tuple[tuple[Golden, ...], SlowdownRange]:
    """Return the golden requests of a model folder and the range that it states.

    Raises ModelError where the folder has none, as those of earlier releases, or where they cannot be read.
    """
    path = folder / GOLDENS_FILE
    if not path.is_file():
        raise ModelError(
            "the model folder holds no golden requests, so nobody can tell whether its graphs answer as trained",
            value=path,
            remedy=REMEDY,
        )
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
        least, most = document["range"]
        stated = SlowdownRange(least=float(least), most=float(most))
        goldens = tuple(_golden(each) for each in document["requests"])
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, InvalidInputError) as error:
        raise ModelError(f"{GOLDENS_FILE} cannot be read ({error!r})", value=folder, remedy=REMEDY) from None
    if not goldens:
        raise ModelError("the model folder holds no golden requests", value=path, remedy=REMEDY)
    return goldens, stated


def _request_document(request: GoldenRequest) -> dict[str, Any]:
    jobs = [job if isinstance(job, str) else to_document(job, present_only=True) for job in request.jobs]
    return {
        "name": request.name,
        "kind": str(request.kind),
        "device_type": request.device_type,
        "mode": str(request.mode),
        "jobs": jobs,
        "victims": list(request.victims),
        "neighbours": list(request.neighbours),
        "quantile": request.quantile,
    }


def _rounded(answer: Answer) -> dict[str, list[float | None]]:
    """Return the numbers with `DIGITS` significant digits; NaN, of an unknown probability, becomes null."""
    return {
        name: [None if math.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
        for name, values in answer.items()
    }


def _golden(document: Mapping[str, Any]) -> Golden:
    request = GoldenRequest(
        name=str(document["name"]),
        kind=RequestKind(document["kind"]),
        device_type=str(document["device_type"]),
        mode=parse_sharing_mode(document["mode"]),
        jobs=tuple(job if isinstance(job, str) else from_document(JobProfile, job) for job in document["jobs"]),
        victims=tuple(map(int, document["victims"])),
        neighbours=tuple(map(int, document["neighbours"])),
        quantile=float(document["quantile"]),
    )
    expected = {
        str(name): np.array([math.nan if value is None else float(value) for value in values])
        for name, values in document["expected"].items()
    }
    return Golden(request=request, expected=expected)
