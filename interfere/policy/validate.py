"""Does a snapshot contradict itself? Every contradiction at once, each with its field path."""

import math
from collections.abc import Iterable, Sequence

from interfere.errors import Violation
from interfere.policy.costs.objectives import OBJECTIVES, objective_of
from interfere.records import Job, Snapshot


def validate_snapshot(snapshot: Snapshot) -> list[Violation]:
    """Violations of: some device, unique device ids, unique job ids, no job pending and running or running twice."""
    bad: list[Violation] = []
    if not snapshot.devices:
        bad.append(
            Violation(
                field="devices",
                what="must not be empty",
                value="[]",
                remedy="send the devices of the scope, busy ones too",
            )
        )
    bad += _repeats((f"devices[{k}].id", d.id) for k, d in enumerate(snapshot.devices))
    once: dict[tuple[str, int], None] = {}  # a gang is on each of its devices, on none twice
    residents = []
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            again = job.gpus > 1 and (job.id, job.gpus) in once and job.id not in {o.id for o in device.residents[:r]}
            once[job.id, job.gpus] = None
            if not again:
                residents.append((f"devices[{k}].residents[{r}].id", job.id))
    pending = [(f"pending[{k}].id", job.id) for k, job in enumerate(snapshot.pending)]
    jobs = [(f"pending[{k}]", job) for k, job in enumerate(snapshot.pending)]
    for k, device in enumerate(snapshot.devices):
        jobs += [(f"devices[{k}].residents[{r}]", job) for r, job in enumerate(device.residents)]
    bad += _objective_violations(snapshot, jobs) + _clockless(snapshot, jobs)
    return bad + _repeats([*residents, *pending]) + _gangs(snapshot) + _pools(snapshot) + _ages(snapshot)


def _objective_violations(snapshot: Snapshot, jobs: Sequence[tuple[str, Job]]) -> list[Violation]:
    """Objectives that do not add cannot be summed; what an objective needs of every job must be there."""
    bad = [
        Violation(
            field=f"objective_terms[{k}].kind",
            what="is the largest cost of a job, which cannot be added to others",
            value=term.kind,
            remedy=f"one of {', '.join(k for k, one in OBJECTIVES.items() if not one.is_min_max)}, or use it alone",
        )
        for k, term in enumerate(snapshot.objective_terms)
        if OBJECTIVES[term.kind].is_min_max
    ]
    if bad:
        return bad
    name = " + ".join(term.kind for term in snapshot.objective_terms) or snapshot.objective
    objective = objective_of(snapshot)
    needs = objective.required_fields
    if objective.soft_cap_price and math.isnan(snapshot.limits.slowdown.soft_cap):
        bad.append(
            Violation(
                field="limits.soft_cap",
                what=f"is needed by the objective {name}",
                value="absent",
                remedy="send the slowdown that few pairs should pass, or take another objective",
            )
        )
    bad += [
        Violation(
            field=f"{path}.{needed}",
            what=f"is needed by the objective {name}",
            value="absent",
            remedy=f"{_MEANING[needed]}, or take another objective",
        )
        for path, job in jobs
        for needed in needs
        if math.isnan(getattr(job, needed))
    ]
    if "attained_s" in needs:
        bad += [
            Violation(
                field=f"{path}.remaining_s",
                what="must be positive where attained_s is 0",
                value="0",
                remedy="a job of no length has no fair time: leave it out",
            )
            for path, job in jobs
            if job.attained_s + job.remaining_s == 0
        ]
    return bad


def _clockless(snapshot: Snapshot, jobs: Sequence[tuple[str, Job]]) -> list[Violation]:
    """A deadline says nothing without a clock and the time that is left to run; nor does a window without a clock."""
    timed = [f"{path}.deadline_s" for path, job in jobs if not math.isnan(job.deadline_s)]
    timed += [f"devices[{k}].windows" for k, device in enumerate(snapshot.devices) if device.windows]
    bad = [
        Violation(
            field=f"{path}.remaining_s",
            what="is needed beside deadline_s",
            value="absent",
            remedy=f"{_MEANING['remaining_s']}, or leave the deadline out",
        )
        for path, job in jobs
        if not math.isnan(job.deadline_s) and math.isnan(job.remaining_s)
    ]
    if timed and math.isnan(snapshot.now_s):
        remedy = "send your clock with Match, or leave deadlines and windows out"
        bad.append(Violation(field="now_s", what=f"is needed beside {timed[0]}", value="absent", remedy=remedy))
    return bad


def _ages(snapshot: Snapshot) -> list[Violation]:
    """No resident started after now."""
    return [
        Violation(
            field=f"devices[{k}].residents[{r}].since_s",
            what=f"is after now_s, {snapshot.now_s!r}",
            value=repr(job.since_s),
            remedy="send both on the same clock",
        )
        for k, device in enumerate(snapshot.devices)
        for r, job in enumerate(device.residents)
        if job.since_s > snapshot.now_s
    ]


def _pools(snapshot: Snapshot) -> list[Violation]:
    """A pool that no device is in: a wrong name, unless the snapshot is partial."""
    known = {device.pool for device in snapshot.devices}
    return [
        Violation(
            field=f"pending[{k}].pools[{n}]",
            what="no device is in this pool",
            value=repr(pool),
            remedy=f"one of {', '.join(sorted(filter(None, known))) or 'none'}; leave it out for any device",
        )
        for k, job in enumerate(snapshot.pending)
        for n, pool in enumerate(job.pools)
        if pool not in known and not snapshot.partial
    ]


def _gangs(snapshot: Snapshot) -> list[Violation]:
    """A gang that runs is on as many devices as it takes; on fewer only where some were left out."""
    places: dict[str, list[str]] = {}
    gpus: dict[str, int] = {}
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            places.setdefault(job.id, []).append(f"devices[{k}].residents[{r}].gpus")
            gpus.setdefault(job.id, job.gpus)
    return [
        Violation(
            field=paths[-1],
            what=f"runs on {len(paths)} devices",
            value=str(gpus[name]),
            remedy="a gang is a resident of each of its devices, and of no other",
        )
        for name, paths in places.items()
        if gpus[name] > 1 and (len(paths) > gpus[name] or (len(paths) < gpus[name] and not snapshot.partial))
    ]


_MEANING = {
    "remaining_s": "send the seconds it would still run alone",
    "attained_s": "send the seconds alone that it has done, 0 before it starts",
    "elapsed_s": "send the seconds since it was submitted",
}


def _repeats(places: Iterable[tuple[str, str]]) -> list[Violation]:
    first: dict[str, str] = {}
    bad = []
    for field, name in places:
        if name in first:
            bad.append(
                Violation(
                    field=field,
                    what=f"repeats {first[name]}",
                    value=repr(name),
                    remedy="an id may appear once in a snapshot",
                )
            )
        first.setdefault(name, field)
    return bad
