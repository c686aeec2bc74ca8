"""Imports Gavel's throughputs (Narayanan et al., OSDI 2020): steps/s of training jobs, alone and in pairs on a device.

There are two published formats: `{device: {job: {"null": solo, neighbour: [own, neighbour's]}}}` with jobs named
"ResNet-18 (batch size 16)" (`oracle_throughputs.json`), and the same with job and number of devices in the name,
"('ResNet-18 (batch size 16)', 1)" (`simulation_throughputs.json`). In the second, `_unconsolidated` devices are copies,
and the pairs of jobs on several devices are zeros that nobody measured. The publishers' profiler starts each pair once
under CUDA MPS (`scheduler/runtime/rpc/dispatcher.py`) and writes both orders: (A, B) and (B, A) are one measurement.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.strict_reading import fail_at_key, read_json, require_number, require_object
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode

SOLO_KEY = "null"
COPY_SUFFIX = "_unconsolidated"
JOB_WITH_GPUS = re.compile(r"\('(?P<job>.+)', (?P<gpus>[1-9]\d*)\)")
BATCH_SIZE_SUFFIX = re.compile(r" \(batch size \d+\)$")
INFEASIBLE_REASON = "zero throughput: does not fit or not measured"
CENSORED_REASON = "right-censored: published at exactly the throughput alone"
FORMAT_NOTES = (
    "throughput in steps/s; step_time_s = 1 / throughput alone, slowdown = alone / shared",
    "mode mps: the publishers' profiler co-locates under CUDA MPS",
    "(A, B) and (B, A) are one measurement: split by unordered pair",
    "a self pair is one row with both sides in `passes`",
    "a pair of zeros is an infeasible row: it did not fit, or was not measured",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloThroughput:
    """Throughput of one job alone."""

    device_type: str
    job: str
    gpus: int
    steps_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairThroughput:
    """Throughputs of two one-device jobs that share a device."""

    device_type: str
    job: str
    neighbour: str
    own_steps_per_s: float
    neighbour_steps_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughputs:
    """The content of a file of either format."""

    source: SourceFile
    solo: tuple[SoloThroughput, ...]
    pairs: tuple[PairThroughput, ...]  # every entry of one-device jobs
    copies: int  # entries of `_unconsolidated` devices
    placeholders: int  # zeros of jobs on several devices
    multi_device_pairs: int  # measured entries of jobs on several devices


@dataclass(slots=True)
class _ParsedEntries:
    solo: list[SoloThroughput] = field(default_factory=list)
    pairs: list[PairThroughput] = field(default_factory=list)
    copies: int = 0
    placeholders: int = 0
    multi_device_pairs: int = 0


def read_throughputs(path: Path) -> Throughputs:
    """Read a file of either format. Raises TableError, which names file and key."""
    document, source = read_json(path)
    parsed = _ParsedEntries()
    for device_type, jobs in require_object(path, (), document).items():
        entries = require_object(path, (device_type,), jobs)
        if device_type.endswith(COPY_SUFFIX):
            parsed.copies += sum(len(require_object(path, (device_type, job), row)) for job, row in entries.items())
            continue
        for key, row in entries.items():
            _parse_job(path, (device_type, key), require_object(path, (device_type, key), row), entries, parsed)
    if not parsed.solo:
        fail_at_key(path, (), "no device with jobs inside", document, "give Gavel's throughputs as published")
    return Throughputs(
        source=source,
        solo=tuple(parsed.solo),
        pairs=tuple(parsed.pairs),
        copies=parsed.copies,
        placeholders=parsed.placeholders,
        multi_device_pairs=parsed.multi_device_pairs,
    )


def _parse_job(
    path: Path, keys: tuple[str, str], row: dict[str, Any], entries: dict[str, Any], parsed: _ParsedEntries
) -> None:
    """Parse the solo throughput of one job, and its entry for each neighbour."""
    device_type, key = keys
    job, gpus = _job_name(path, keys, key)
    if SOLO_KEY not in row:
        fail_at_key(path, (*keys, SOLO_KEY), "missing", ", ".join(row)[:60], "add the throughput alone")
    solo = require_number(path, (*keys, SOLO_KEY), row[SOLO_KEY], low=0.0)
    parsed.solo.append(SoloThroughput(device_type=device_type, job=job, gpus=gpus, steps_per_s=solo))
    for neighbour_key, value in row.items():
        if neighbour_key == SOLO_KEY:
            continue
        pair_keys = (*keys, neighbour_key)
        neighbour, neighbour_gpus = _job_name(path, pair_keys, neighbour_key)
        own, neighbours = _pair_values(path, pair_keys, value)
        if gpus > 1 or neighbour_gpus > 1:
            parsed.placeholders += not own and not neighbours
            parsed.multi_device_pairs += bool(own or neighbours)
            continue
        if neighbour_key not in entries:
            fail_at_key(path, pair_keys, "this job has no entry of its own", neighbour_key, "add its throughput alone")
        mirror = require_object(path, (device_type, neighbour_key), entries[neighbour_key]).get(key, [neighbours, own])
        if key != neighbour_key and mirror != [neighbours, own]:
            fail_at_key(path, pair_keys, "is not the mirror of the other order", value, "one of the two was edited")
        parsed.pairs.append(
            PairThroughput(
                device_type=device_type,
                job=job,
                neighbour=neighbour,
                own_steps_per_s=own,
                neighbour_steps_per_s=neighbours,
            )
        )


def _job_name(path: Path, keys: tuple[str, ...], key: str) -> tuple[str, int]:
    """The name of a job and its number of devices."""
    with_gpus = JOB_WITH_GPUS.fullmatch(key)
    name = with_gpus["job"] if with_gpus else key
    if not name.strip() or not name.isprintable() or len(name) > 256 or (not with_gpus and key.startswith("(")):
        fail_at_key(
            path, keys, "not the name of a job", key, "such as 'A3C', or \"('A3C', 1)\" with the number of devices"
        )
    return name, int(with_gpus["gpus"]) if with_gpus else 1


def _pair_values(path: Path, keys: tuple[str, ...], value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        fail_at_key(path, keys, "two throughputs expected", value, "give [own, neighbour's] in steps/s")
    own, neighbours = (require_number(path, (*keys, str(k)), rate, low=0.0) for k, rate in enumerate(value))
    if (own == 0) != (neighbours == 0):
        fail_at_key(path, keys, "one side is zero, the other is not", value, "give two zeros or none")
    return own, neighbours


def architecture(job: str) -> str:
    """The model architecture of a job: its name without the batch size."""
    return BATCH_SIZE_SUFFIX.sub("", job)


def import_gavel(path: Path) -> ImportResult:
    """Import the profiles and pairs of all one-device jobs. Raises TableError, which names file and key."""
    throughputs = read_throughputs(path)
    solo = {(entry.device_type, entry.job): entry.steps_per_s for entry in throughputs.solo if entry.gpus == 1}
    jobs = [
        JobProfile(
            workload=job, device_type=device_type, step_time_s=1 / rate, source="gavel", family=architecture(job)
        )
        for (device_type, job), rate in solo.items()
        if rate > 0
    ]
    ordered_pairs = list(_ordered_pairs(throughputs))
    with_solo = [
        pair for pair in ordered_pairs if solo[pair.device_type, pair.victim] and solo[pair.device_type, pair.neighbour]
    ]
    pairs = [_measurement(throughputs.source, pair, solo[pair.device_type, pair.victim]) for pair in with_solo]
    return ImportResult(
        source_format="gavel",
        files=(throughputs.source,),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs),
        pairs=tuple(pairs),
        notices=_notices(throughputs, jobs, pairs, without_solo=len(ordered_pairs) - len(with_solo)),
    )


def _notices(
    throughputs: Throughputs, jobs: list[JobProfile], pairs: list[PairMeasurement], *, without_solo: int
) -> tuple[Notice, ...]:
    solo = {(entry.device_type, entry.job): entry.steps_per_s for entry in throughputs.solo if entry.gpus == 1}
    copied = _copied_profiles(jobs)
    return nonempty_notices(
        Notice(
            treatment=Treatment.FLAGGED,
            subject="infeasible rows",
            count=sum(not pair.feasible for pair in pairs),
            reason=INFEASIBLE_REASON,
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="rows with a slowdown of exactly 1, marked in `reason`",
            count=sum(pair.reason == CENSORED_REASON for pair in pairs),
            reason="right-censored: the throughput is published as exactly the one alone, it may have been higher",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="profiles with the same throughput alone on two device types",
            count=len(copied),
            reason="copied, not measured: " + "; ".join(copied),
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="jobs without a throughput alone, on their device type",
            count=sum(not rate for rate in solo.values()),
            reason="a slowdown needs the time alone",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="rows beside or of such a job",
            count=without_solo,
            reason="a slowdown needs the time alone of both jobs",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject=f"entries of `{COPY_SUFFIX}` device types",
            count=throughputs.copies,
            reason="copies of the consolidated ones",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="pairs of zeros of jobs on several devices",
            count=throughputs.placeholders,
            reason="placeholders, not infeasible pairs: only one-device jobs were measured in pairs",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="measured pairs of jobs on several devices",
            count=throughputs.multi_device_pairs,
            reason="a row is about one shared device",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="throughputs alone on several devices",
            count=sum(entry.gpus > 1 for entry in throughputs.solo),
            reason="a profile is about one device; `data import philly --throughputs` reads them",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OrderedPair:
    """One ordered pair: the victim's throughputs (both sides, for a self pair), and the keys of their entry."""

    device_type: str
    victim: str
    neighbour: str
    steps_per_s: tuple[float, ...]
    keys: tuple[str, str, str]


def _ordered_pairs(throughputs: Throughputs) -> Iterator[_OrderedPair]:
    """Return each ordered pair once, whether the file lists its jobs in one order or in both orders."""
    seen = set()
    for entry in throughputs.pairs:
        job, neighbour = entry.job, entry.neighbour
        own, neighbours = entry.own_steps_per_s, entry.neighbour_steps_per_s
        if job == neighbour:
            sides: tuple[tuple[str, str, tuple[float, ...]], ...] = ((job, job, (own, neighbours)),)
        else:
            sides = ((job, neighbour, (own,)), (neighbour, job, (neighbours,)))
        for side_victim, side_neighbour, rates in sides:
            if (entry.device_type, side_victim, side_neighbour) not in seen:
                seen.add((entry.device_type, side_victim, side_neighbour))
                yield _OrderedPair(
                    device_type=entry.device_type,
                    victim=side_victim,
                    neighbour=side_neighbour,
                    steps_per_s=rates,
                    keys=(entry.device_type, job, neighbour),
                )


def _measurement(source: SourceFile, pair: _OrderedPair, solo_steps_per_s: float) -> PairMeasurement:
    """The row of one ordered pair; zero throughputs mean that it is infeasible."""
    passes = tuple(solo_steps_per_s / rate for rate in pair.steps_per_s if rate)
    for slowdown in passes:
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            problem = f"a slowdown outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
            fail_at_key(source.path, pair.keys, problem, slowdown, "check this throughput and the one alone")
    return PairMeasurement(
        victim=pair.victim,
        neighbour=pair.neighbour,
        device_type=pair.device_type,
        mode=SharingMode.MPS,
        slowdown=math.prod(passes) ** (1 / len(passes)) if passes else math.nan,
        passes=passes,
        status=PairStatus.OK if passes else PairStatus.INFEASIBLE,
        reason=INFEASIBLE_REASON if not passes else CENSORED_REASON if 1.0 in passes else "",
        source="gavel",
        campaign=source.campaign,
    )


def _copied_profiles(jobs: list[JobProfile]) -> list[str]:
    """Jobs with exactly the same step time on several device types, in words."""
    device_types: dict[tuple[str, float], list[str]] = {}
    for job in jobs:
        device_types.setdefault((job.workload, job.step_time_s), []).append(job.device_type)
    return [f"{name} on {' and '.join(types)}" for (name, _), types in device_types.items() if len(types) > 1]
