"""Combines what several sources say of one workload on one device type into one profile, fact by fact.

A profile as a source gives it is a set of facts with that source, the device type and the time of measurement. For
each fact the sources are asked in this order, and the first one that knows it wins:

1. measured: the job was run and timed (`cpu`, `cuda`, `gavel`, `lucid`, `slurm`, `user`, every name not listed here);
2. monitored: the device was watched while the job ran alone (`dcgm`);
3. kernel profiler: kernels were timed one at a time, mostly at locked clocks and without gaps (`nsight`, `orion`);
4. declared: a person or a job script states it (`declared`);
5. static: traced from the code of the job, nothing was run (`static`).

The step time is the exception: a declared one comes before that of a kernel profiler, which is a sum of kernels.
Of two sources of one kind the one measured later wins, or the one that came later where a time is unknown. A source
that speaks again replaces all that it said before. Training, serving and importers all combine profiles here.

Law 1: the result does not depend on the order in which sources of different kinds came.
Law 2: a profile of one source stays the same object.
Law 3: no fact is computed from another: each fact of the result is a fact of one source.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from interfere.records import NAN, JobProfile

STATIC = "static"
STATIC_SUFFIX = "+static"  # ends the source of a row that carries static facts beside measured ones
STATIC_FIELDS = (
    "flops_per_step",
    "bytes_per_step",
    "memory_working_set_bytes",
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
)
MAX_SOURCE = 256  # characters of a source
ONLY_SOURCE = "the only source"


class SourceKind(StrEnum):
    """The ways in which a source obtains its facts, in order of precedence."""

    MEASURED = "measured"
    MONITORED = "monitored"
    KERNEL_PROFILER = "kernel profiler"
    DECLARED = "declared"
    STATIC = "static"


PRECEDENCE = tuple(SourceKind)
STEP_TIME_PRECEDENCE = (
    SourceKind.MEASURED,
    SourceKind.MONITORED,
    SourceKind.DECLARED,
    SourceKind.KERNEL_PROFILER,
    SourceKind.STATIC,
)
# A source may carry a suffix after a colon, such as `dcgm:berlin`: its kind is that of the name before it.
_KIND_OF_SOURCE = {
    "dcgm": SourceKind.MONITORED,
    "nsight": SourceKind.KERNEL_PROFILER,
    "orion": SourceKind.KERNEL_PROFILER,
    "torch-profiler": SourceKind.KERNEL_PROFILER,
    "nsys": SourceKind.KERNEL_PROFILER,
    "declared": SourceKind.DECLARED,
    STATIC: SourceKind.STATIC,
}
_IDENTITY = ("workload", "device_type", "source", "measured_at_s")
# Facts that mean something only together: known where the first of them is.
_GROUPS = (("step_time_s", "step_time_sd_s"), ("busy_s", "idle_s"))
_GROUPED = frozenset(name for group in _GROUPS for name in group)
FACTS: tuple[tuple[str, ...], ...] = (
    *_GROUPS,
    *((field.name,) for field in fields(JobProfile) if field.name not in _GROUPED | frozenset(_IDENTITY)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFact:
    """A fact as a source gives it, and whether the combined profile holds it."""

    name: str  # field of JobProfile
    value: Any
    source: str
    kind: SourceKind
    device_type: str
    measured_at_s: float  # unix time; NaN where the source gives none
    wins: bool
    reason: str  # why it wins, or what it loses to


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedProfiles:
    """The profile of each workload on each device type, and the profiles of all sources where several know the
    workload."""

    jobs: tuple[JobProfile, ...]  # one of each workload on each device type
    sources: tuple[JobProfile, ...]  # of the jobs that combine several sources: one profile of each

    @property
    def profiles(self) -> tuple[JobProfile, ...]:
        """Return the profiles of each source. A job with a single source is its own profile."""
        of_several: dict[tuple[str, str], list[JobProfile]] = {}
        for profile in self.sources:
            of_several.setdefault((profile.workload, profile.device_type), []).append(profile)
        return tuple(
            profile for job in self.jobs for profile in of_several.get((job.workload, job.device_type)) or (job,)
        )


def source_kind(source: str) -> SourceKind:
    """Return how a source obtained its facts; of a combination of sources, how its first source did."""
    return _KIND_OF_SOURCE.get(source.partition("+")[0].partition(":")[0], SourceKind.MEASURED)


def combine_profiles(profiles: Iterable[JobProfile]) -> CombinedProfiles:
    """Combine the profiles of each workload on each device type into one. `profiles` are ordered oldest first."""
    by_job: dict[tuple[str, str], list[JobProfile]] = {}
    for profile in profiles:
        by_job.setdefault((profile.workload, profile.device_type), []).append(profile)
    jobs: list[JobProfile] = []
    sources: list[JobProfile] = []
    for of_job in by_job.values():
        combined = combine_facts(of_job)
        jobs.append(combined)
        parts = current_sources(of_job)
        sources += parts if len(parts) > 1 and len(of_job) > 1 else ()
    return CombinedProfiles(jobs=tuple(jobs), sources=tuple(sources))


def combine_facts(profiles: Sequence[JobProfile]) -> JobProfile:
    """Combine the profiles of a workload on a device type into a profile that holds every known fact.

    `profiles` is not empty and ordered oldest first.
    """
    if len(profiles) == 1:
        return profiles[0]
    parts = current_sources(profiles)
    if len(parts) == 1:
        return parts[0]
    facts: dict[str, Any] = {}
    for names in FACTS:
        known = _by_precedence(parts, names)
        if known:
            facts |= {name: getattr(known[0], name) for name in names}
    facts.setdefault("step_time_s", NAN)
    times_s = [part.measured_at_s for part in parts if not math.isnan(part.measured_at_s)]
    sources = sorted(
        {part.source for part in parts}, key=lambda source: (PRECEDENCE.index(source_kind(source)), source)
    )
    return JobProfile(
        workload=parts[0].workload,
        device_type=parts[0].device_type,
        source="+".join(sources)[:MAX_SOURCE],
        measured_at_s=max(times_s, default=NAN),
        **facts,
    )


def current_sources(profiles: Iterable[JobProfile]) -> tuple[JobProfile, ...]:
    """Return the newest profile of each source, in the order in which the sources came.

    Static facts that a profile carries beside measured ones count as a source of their own.
    """
    by_source: dict[str, JobProfile] = {}
    for profile in profiles:
        for part in split_static(profile):
            by_source.pop(part.source, None)
            by_source[part.source] = part
    return tuple(by_source.values())


def current_sources_of_other_kinds(profiles: Iterable[JobProfile], own: Sequence[JobProfile]) -> tuple[JobProfile, ...]:
    """Return the newest profile of each source whose kind (measured, monitored, ...) is the kind of no profile in
    `own`."""
    own_kinds = {source_kind(part.source) for part in current_sources(own)}
    return tuple(part for part in current_sources(profiles) if source_kind(part.source) not in own_kinds)


def known_facts(profiles: Sequence[JobProfile]) -> tuple[SourceFact, ...]:
    """Return all facts of a workload on a device type, by name.

    Of each fact, the version that takes precedence comes first. `profiles` are ordered oldest first.
    """
    parts = [part for profile in profiles for part in split_static(profile)]
    current = current_sources(parts)
    found: list[SourceFact] = []
    for names in FACTS:
        ranked = _by_precedence(current, names)
        replaced = [part for part in parts if _knows(part, names) and not any(part is each for each in current)]
        for part in (*ranked, *reversed(replaced)):
            wins = bool(ranked) and part is ranked[0]
            reason = _reason(part, ranked, names, current=any(part is each for each in current))
            found += [
                SourceFact(
                    name=name,
                    value=getattr(part, name),
                    source=part.source,
                    kind=source_kind(part.source),
                    device_type=part.device_type,
                    measured_at_s=part.measured_at_s,
                    wins=wins,
                    reason=reason,
                )
                for name in names
                if _is_known(getattr(part, name))
            ]
    return tuple(found)


def split_static(profile: JobProfile) -> tuple[JobProfile, ...]:
    """Split a profile into its measured part and the part that a static trace added.

    A profile without an added static part is returned alone.
    """
    if not profile.source.endswith(STATIC_SUFFIX) or profile.source.count("+") > 1:
        return (profile,)
    traced = math.isclose(sum(k.mean_s * k.count for k in profile.kernels), profile.static_step_time_s, rel_tol=1e-9)
    static = JobProfile(
        workload=profile.workload,
        device_type=profile.device_type,
        step_time_s=profile.static_step_time_s,
        source=STATIC,
        kernels=profile.kernels if traced else (),
        **{name: getattr(profile, name) for name in STATIC_FIELDS},
    )
    other = without_static(profile)
    return (other if traced else replace(other, kernels=profile.kernels)), static


def without_static(profile: JobProfile) -> JobProfile:
    """Return a profile without the facts that a static trace added to it."""
    if not profile.source.endswith(STATIC_SUFFIX):
        return profile
    absent: dict[str, Any] = dict.fromkeys(STATIC_FIELDS, NAN)
    return replace(profile, source=profile.source.removesuffix(STATIC_SUFFIX), kernels=(), **absent)


def _by_precedence(parts: Sequence[JobProfile], names: tuple[str, ...]) -> list[JobProfile]:
    """Return the profiles that know a fact, in order of precedence; the value of the first profile counts."""
    order = _precedence(names)
    known = [(k, part) for k, part in enumerate(parts) if _knows(part, names)]
    dated = all(not math.isnan(part.measured_at_s) for _, part in known)

    def rank(entry: tuple[int, JobProfile]) -> tuple[float, ...]:
        position, part = entry
        return order.index(source_kind(part.source)), -part.measured_at_s if dated else 0.0, -position

    return [part for _, part in sorted(known, key=rank)]


def _precedence(names: tuple[str, ...]) -> tuple[SourceKind, ...]:
    return STEP_TIME_PRECEDENCE if "step_time_s" in names else PRECEDENCE


def _knows(profile: JobProfile, names: tuple[str, ...]) -> bool:
    return _is_known(getattr(profile, names[0]))


def _is_known(value: Any) -> bool:
    """Return whether a fact is known. 0 is a known value; NaN, an empty text and an empty list are not."""
    return not math.isnan(value) if isinstance(value, int | float) else bool(value)


def _reason(part: JobProfile, ranked: Sequence[JobProfile], names: tuple[str, ...], *, current: bool) -> str:
    """Return the reason why a fact of `part` is or is not in the combined profile."""
    if not current:
        return f"{part.source} said so earlier, and has spoken again since"
    winner = ranked[0]
    kinds = source_kind(part.source), source_kind(winner.source)
    if part is not winner:
        order = _precedence(names)
        if kinds[0] != kinds[1]:
            return f"{winner.source} comes first: {kinds[1]} is number {order.index(kinds[1]) + 1}, {kinds[0]} is " + (
                f"number {order.index(kinds[0]) + 1}"
            )
        return f"{winner.source} is later, and as well {kinds[1]}"
    return ONLY_SOURCE if len(ranked) == 1 else f"{kinds[1]} comes first"
