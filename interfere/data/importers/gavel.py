"""Gavel's throughputs (Narayanan et al., OSDI 2020): steps/s of training jobs alone and in pairs on one device.

Two published shapes: `{device: {job: {"null": alone, other: [own, other's]}}}` with jobs named
"ResNet-18 (batch size 16)" (`oracle_throughputs.json`), and the same with job and number of devices in the name,
"('ResNet-18 (batch size 16)', 1)" (`simulation_throughputs.json`), where `_unconsolidated` devices are copies and the
pairs of jobs on several devices are zeros that nobody measured. Its profiler starts each pair once under CUDA MPS
(`scheduler/runtime/rpc/dispatcher.py`) and writes both orders: (A, B) and (B, A) are one measurement.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import Fate, Imported, Notice, SourceFile, notices
from interfere.data.importers.strict_reading import json_fail, json_number, json_object, read_json
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile, PairMeasurement, PairStatus

ALONE = "null"
COPY = "_unconsolidated"
SCALED = re.compile(r"\('(?P<job>.+)', (?P<gpus>[1-9]\d*)\)")
BATCH = re.compile(r" \(batch size \d+\)$")
MISFIT = "zero throughput: does not fit or not measured"
CENSORED = "right-censored: published at exactly the throughput alone"
FACTS = (
    "throughput in steps/s; step_time_s = 1 / throughput alone, slowdown = alone / shared",
    "mode mps: the publishers' profiler co-locates under CUDA MPS",
    "(A, B) and (B, A) are one measurement: split by unordered pair",
    "a self pair is one row with both sides in `passes`",
    "a pair of zeros is an infeasible row: it did not fit, or was not measured",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Throughput of one job alone."""

    device_type: str
    job: str
    gpus: int
    steps_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughputs:
    """Both shapes, read alike. `pairs` holds each entry of one-device jobs as (device, job, other, own, other's)."""

    source: SourceFile
    alone: tuple[Alone, ...]
    pairs: tuple[tuple[str, str, str, float, float], ...]
    copies: int  # entries of `_unconsolidated` devices
    placeholders: int  # zeros of jobs on several devices
    grouped: int  # measured entries of jobs on several devices


@dataclass(slots=True)
class _Found:
    alone: list[Alone] = field(default_factory=list)
    pairs: list[tuple[str, str, str, float, float]] = field(default_factory=list)
    copies: int = 0
    placeholders: int = 0
    grouped: int = 0


def read_throughputs(path: Path) -> Throughputs:
    """The file as published. Raises TableError that names file and key."""
    document, source = read_json(path)
    found = _Found()
    for device, jobs in json_object(path, (), document).items():
        entries = json_object(path, (device,), jobs)
        if device.endswith(COPY):
            found.copies += sum(len(json_object(path, (device, job), row)) for job, row in entries.items())
            continue
        for key, row in entries.items():
            _job(path, (device, key), json_object(path, (device, key), row), entries, found)
    if not found.alone:
        json_fail(path, (), "no device with jobs inside", document, "give Gavel's throughputs as published")
    return Throughputs(
        source=source,
        alone=tuple(found.alone),
        pairs=tuple(found.pairs),
        copies=found.copies,
        placeholders=found.placeholders,
        grouped=found.grouped,
    )


def _job(path: Path, keys: tuple[str, str], row: dict[str, Any], entries: dict[str, Any], found: _Found) -> None:
    device, key = keys
    job, gpus = _name(path, keys, key)
    if ALONE not in row:
        json_fail(path, (*keys, ALONE), "missing", ", ".join(row)[:60], "the throughput alone must be there")
    alone = json_number(path, (*keys, ALONE), row[ALONE], low=0.0)
    found.alone.append(Alone(device_type=device, job=job, gpus=gpus, steps_per_s=alone))
    for other_key, value in row.items():
        if other_key == ALONE:
            continue
        place = (*keys, other_key)
        other, other_gpus = _name(path, place, other_key)
        own, others = _both(path, place, value)
        if gpus > 1 or other_gpus > 1:
            found.placeholders += not own and not others
            found.grouped += bool(own or others)
            continue
        if other_key not in entries:
            json_fail(path, place, "this job has no entry of its own", other_key, "add its throughput alone")
        mirrored = json_object(path, (device, other_key), entries[other_key]).get(key, [others, own])
        if key != other_key and mirrored != [others, own]:
            json_fail(path, place, "is not the mirror of the other order", value, "one of the two was edited")
        found.pairs.append((device, job, other, own, others))


def _name(path: Path, keys: tuple[str, ...], key: str) -> tuple[str, int]:
    scaled = SCALED.fullmatch(key)
    name = scaled["job"] if scaled else key
    if not name.strip() or not name.isprintable() or len(name) > 256 or (not scaled and key.startswith("(")):
        json_fail(path, keys, "no name of a job", key, "such as 'A3C', or \"('A3C', 1)\" with the number of devices")
    return name, int(scaled["gpus"]) if scaled else 1


def _both(path: Path, keys: tuple[str, ...], value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        json_fail(path, keys, "two throughputs expected", value, "give [own, other's] in steps/s")
    own, others = (json_number(path, (*keys, str(k)), one, low=0.0) for k, one in enumerate(value))
    if (own == 0) != (others == 0):
        json_fail(path, keys, "one side is zero, the other is not", value, "both run or neither does")
    return own, others


def family(job: str) -> str:
    """The architecture: the name without its batch size."""
    return BATCH.sub("", job)


def import_gavel(path: Path) -> Imported:
    """Profiles and pairs of every one-device job. Raises TableError that names file and key."""
    read = read_throughputs(path)
    alone = {(a.device_type, a.job): a.steps_per_s for a in read.alone if a.gpus == 1}
    jobs = [
        JobProfile(workload=job, device_type=device, step_time_s=1 / rate, source="gavel", family=family(job))
        for (device, job), rate in alone.items()
        if rate > 0
    ]
    sides = [side for side in _sides(read) if alone[side.device, side.victim] and alone[side.device, side.neighbour]]
    pairs = [_pair(read.source, side, alone[side.device, side.victim]) for side in sides]
    unknown = len(list(_sides(read))) - len(sides)
    copied = _copied(jobs)
    return Imported(
        kind="gavel",
        files=(read.source,),
        facts=FACTS,
        jobs=tuple(jobs),
        pairs=tuple(pairs),
        notices=notices(
            Notice(fate=Fate.FLAGGED, what="infeasible rows", count=sum(not p.feasible for p in pairs), why=MISFIT),
            Notice(
                fate=Fate.FLAGGED,
                what="rows with a slowdown of exactly 1, marked in `reason`",
                count=sum(p.reason == CENSORED for p in pairs),
                why="right-censored: the throughput is published as exactly the one alone, it may have been higher",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="profiles with the same throughput alone on two device types",
                count=len(copied),
                why="copied, not measured: " + "; ".join(copied),
            ),
            Notice(
                fate=Fate.DROPPED,
                what="jobs without a throughput alone, on their device type",
                count=sum(not rate for rate in alone.values()),
                why="a slowdown needs the time alone",
            ),
            Notice(fate=Fate.DROPPED, what="rows beside or of such a job", count=unknown, why="the same"),
            Notice(
                fate=Fate.DROPPED,
                what=f"entries of `{COPY}` device types",
                count=read.copies,
                why="copies of the consolidated ones",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="pairs of zeros of jobs on several devices",
                count=read.placeholders,
                why="placeholders: only one-device jobs were measured in pairs, these are not misfits",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="measured pairs of jobs on several devices",
                count=read.grouped,
                why="a row is about one shared device",
            ),
            Notice(
                fate=Fate.DROPPED,
                what="throughputs alone on several devices",
                count=sum(a.gpus > 1 for a in read.alone),
                why="a profile is about one device; `data import philly --throughputs` reads them",
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One ordered pair: the victim's throughputs, and the entry they stand in."""

    device: str
    victim: str
    neighbour: str
    steps_per_s: tuple[float, ...]
    keys: tuple[str, str, str]


def _sides(read: Throughputs) -> Iterator[_Side]:
    """Each ordered pair once, whether the file has it in one order or in both."""
    seen = set()
    for device, job, other, own, others in read.pairs:
        sides = ((job, other, (own,)), (other, job, (others,))) if job != other else ((job, job, (own, others)),)
        for victim, neighbour, rates in sides:
            if (device, victim, neighbour) not in seen:
                seen.add((device, victim, neighbour))
                keys = (device, job, other)
                yield _Side(device=device, victim=victim, neighbour=neighbour, steps_per_s=rates, keys=keys)


def _pair(source: SourceFile, side: _Side, alone: float) -> PairMeasurement:
    """The row of one side; zeros mean infeasible."""
    passes = tuple(alone / rate for rate in side.steps_per_s if rate)
    for one in passes:
        if not MIN_SLOWDOWN <= one <= MAX_SLOWDOWN:
            what = f"a slowdown outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
            json_fail(source.path, side.keys, what, one, "check this throughput and the one alone")
    return PairMeasurement(
        victim=side.victim,
        neighbour=side.neighbour,
        device_type=side.device,
        mode="mps",
        slowdown=math.prod(passes) ** (1 / len(passes)) if passes else math.nan,
        passes=passes,
        status=PairStatus.OK if passes else PairStatus.INFEASIBLE,
        reason=MISFIT if not passes else CENSORED if 1.0 in passes else "",
        source="gavel",
        campaign=source.campaign,
    )


def _copied(jobs: list[JobProfile]) -> list[str]:
    by_rate: dict[tuple[str, float], list[str]] = {}
    for job in jobs:
        by_rate.setdefault((job.workload, job.step_time_s), []).append(job.device_type)
    return [f"{name} on {' and '.join(devices)}" for (name, _), devices in by_rate.items() if len(devices) > 1]
