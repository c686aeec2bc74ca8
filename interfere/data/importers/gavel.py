"""Imports what Gavel measured (Narayanan et al., OSDI 2020): throughputs of training jobs alone and in pairs.

Throughputs are steps/s of jobs alone and in pairs on a device, in one of two formats: `{device: {job: {"null": solo,
neighbour: [own, neighbour's]}}}` with jobs named "ResNet-18 (batch size 16)" (`oracle_throughputs.json`), and the same
with job and number of devices in the name, "('ResNet-18 (batch size 16)', 1)" (`simulation_throughputs.json`). In the
second, `_unconsolidated` devices are copies, and the pairs of jobs on several devices are zeros that nobody measured.
The publishers' profiler starts each pair once under CUDA MPS (`scheduler/runtime/rpc/dispatcher.py`) and writes both
orders: (A, B) and (B, A) are one measurement.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, SourceFile, dropped, flagged
from interfere.data.importers.strict_reading import (
    fail_at_key,
    read_json,
    require_number,
    require_object,
)
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, JobProfile, PairMeasurement, PairStatus
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


@dataclass(slots=True, kw_only=True)
class Throughputs:
    """The throughputs in a file that Gavel published, in steps/s."""

    source: SourceFile
    solo: dict[tuple[str, str, int], float] = field(default_factory=dict)  # by device type, job and number of devices
    # Of one-device jobs, by device type, victim and neighbour: the victim's throughput; of a self pair, of both sides.
    shared: dict[tuple[str, str, str], tuple[float, ...]] = field(default_factory=dict)
    copies: int = 0  # entries of `_unconsolidated` devices
    placeholders: int = 0  # zeros of jobs on several devices
    multi_device_pairs: int = 0  # measured entries of jobs on several devices


def read_throughputs(path: Path) -> Throughputs:
    """Read a file of either format. Raises TableError, which names file and key."""
    document, source = read_json(path)
    read = Throughputs(source=source)
    for device_type, jobs in require_object(path, (), document).items():
        entries = require_object(path, (device_type,), jobs)
        if device_type.endswith(COPY_SUFFIX):
            read.copies += sum(len(require_object(path, (device_type, job), row)) for job, row in entries.items())
            continue
        for key in entries:
            _read_job(path, device_type, key, entries, read)
    if not read.solo:
        fail_at_key(path, (), "no device with jobs inside", document, "give Gavel's throughputs as published")
    return read


def _read_job(path: Path, device_type: str, key: str, entries: dict[str, Any], read: Throughputs) -> None:
    """Read the throughput of a job alone and beside each neighbour into `read`."""
    keys = (device_type, key)
    row = require_object(path, keys, entries[key])
    job, gpus = _job_name(path, keys, key)
    if SOLO_KEY not in row:
        fail_at_key(path, (*keys, SOLO_KEY), "missing", ", ".join(row)[:60], "add the throughput alone")
    read.solo[device_type, job, gpus] = require_number(path, (*keys, SOLO_KEY), row[SOLO_KEY], low=0.0)
    for neighbour_key, value in row.items():
        if neighbour_key == SOLO_KEY:
            continue
        pair_keys = (*keys, neighbour_key)
        neighbour, neighbour_gpus = _job_name(path, pair_keys, neighbour_key)
        own, neighbours = _pair_values(path, pair_keys, value)
        if gpus > 1 or neighbour_gpus > 1:
            read.placeholders += not own and not neighbours
            read.multi_device_pairs += bool(own or neighbours)
            continue
        if neighbour_key not in entries:
            fail_at_key(path, pair_keys, "this job has no entry of its own", neighbour_key, "add its throughput alone")
        mirror = require_object(path, (device_type, neighbour_key), entries[neighbour_key]).get(key, [neighbours, own])
        if key != neighbour_key and mirror != [neighbours, own]:
            fail_at_key(path, pair_keys, "is not the mirror of the other order", value, "one of the two was edited")
        if job == neighbour:
            read.shared.setdefault((device_type, job, job), (own, neighbours))
        else:
            read.shared.setdefault((device_type, job, neighbour), (own,))
            read.shared.setdefault((device_type, neighbour, job), (neighbours,))


def _job_name(path: Path, keys: tuple[str, ...], key: str) -> tuple[str, int]:
    """Return the name of a job and its number of devices from a key of the file. Raises TableError."""
    with_gpus = JOB_WITH_GPUS.fullmatch(key)
    name = with_gpus["job"] if with_gpus else key
    if not name.strip() or not name.isprintable() or len(name) > 256 or (not with_gpus and key.startswith("(")):
        fail_at_key(
            path, keys, "not the name of a job", key, "such as 'A3C', or \"('A3C', 1)\" with the number of devices"
        )
    return name, int(with_gpus["gpus"]) if with_gpus else 1


def _pair_values(path: Path, keys: tuple[str, ...], value: Any) -> tuple[float, float]:
    """Return the throughputs of both jobs of an entry, which are both zero or both positive. Raises TableError."""
    if not isinstance(value, list) or len(value) != 2:
        fail_at_key(path, keys, "two throughputs expected", value, "give [own, neighbour's] in steps/s")
    own, neighbours = (require_number(path, (*keys, str(k)), rate, low=0.0) for k, rate in enumerate(value))
    if (own == 0) != (neighbours == 0):
        fail_at_key(path, keys, "one side is zero, the other is not", value, "give two zeros or none")
    return own, neighbours


def import_gavel(path: Path) -> ImportResult:
    """Import the profiles and pairs of all one-device jobs. Raises TableError, which names file and key."""
    read = read_throughputs(path)
    solo = {(device_type, job): rate for (device_type, job, gpus), rate in read.solo.items() if gpus == 1}
    jobs = tuple(
        JobProfile(
            workload=job,
            device_type=device_type,
            step_time_s=1 / rate,
            source="gavel",
            family=BATCH_SIZE_SUFFIX.sub("", job),
        )
        for (device_type, job), rate in solo.items()
        if rate > 0
    )
    pairs = tuple(
        _measurement(read.source, key, solo[key[:2]], rates)
        for key, rates in read.shared.items()
        if solo[key[:2]] and solo[key[0], key[2]]
    )
    copied = _copied_profiles(jobs)
    censored = "right-censored: the throughput is published as exactly the one alone, it may have been higher"
    placeholders = "placeholders, not infeasible pairs: only one-device jobs were measured in pairs"
    several_devices = "a profile is about one device; `data import philly --throughputs` reads them"
    return ImportResult(
        source_format="gavel",
        files=(read.source,),
        format_notes=FORMAT_NOTES,
        jobs=jobs,
        pairs=pairs,
        notices=(
            flagged(sum(not pair.feasible for pair in pairs), "infeasible rows", INFEASIBLE_REASON),
            flagged(
                sum(pair.reason == CENSORED_REASON for pair in pairs),
                "rows with a slowdown of exactly 1, marked in `reason`",
                censored,
            ),
            flagged(
                len(copied),
                "profiles with the same throughput alone on two device types",
                "copied, not measured: " + "; ".join(copied),
            ),
            dropped(
                sum(not rate for rate in solo.values()),
                "jobs without a throughput alone, on their device type",
                "a slowdown needs the time alone",
            ),
            dropped(
                len(read.shared) - len(pairs),
                "rows beside or of such a job",
                "a slowdown needs the time alone of both jobs",
            ),
            dropped(read.copies, f"entries of `{COPY_SUFFIX}` device types", "copies of the consolidated ones"),
            dropped(read.placeholders, "pairs of zeros of jobs on several devices", placeholders),
            dropped(
                read.multi_device_pairs,
                "measured pairs of jobs on several devices",
                "a row is about one shared device",
            ),
            dropped(sum(gpus > 1 for _, _, gpus in read.solo), "throughputs alone on several devices", several_devices),
        ),
    )


def _measurement(
    source: SourceFile, key: tuple[str, str, str], solo: float, rates: tuple[float, ...]
) -> PairMeasurement:
    """Return the row of an ordered pair from throughputs alone and shared; zero throughputs make the pair
    infeasible."""
    device_type, victim, neighbour = key
    passes = tuple(solo / rate for rate in rates if rate)
    for slowdown in passes:
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            problem = f"a slowdown outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
            fail_at_key(source.path, key, problem, slowdown, "check this throughput and the one alone")
    return PairMeasurement(
        victim=victim,
        neighbour=neighbour,
        device_type=device_type,
        mode=SharingMode.MPS,
        slowdown=math.prod(passes) ** (1 / len(passes)) if passes else NAN,
        passes=passes,
        status=PairStatus.OK if passes else PairStatus.INFEASIBLE,
        reason=INFEASIBLE_REASON if not passes else CENSORED_REASON if 1.0 in passes else "",
        source="gavel",
        campaign=source.campaign,
    )


def _copied_profiles(jobs: tuple[JobProfile, ...]) -> list[str]:
    """Return the names of jobs with exactly the same step time on several device types, of which all but one were
    copied."""
    device_types: dict[tuple[str, float], list[str]] = {}
    for job in jobs:
        device_types.setdefault((job.workload, job.step_time_s), []).append(job.device_type)
    return [f"{name} on {' and '.join(types)}" for (name, _), types in device_types.items() if len(types) > 1]
