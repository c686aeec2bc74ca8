"""Finds contradictions within a snapshot and between the snapshot and the ledger, each with its field path."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from interfere.errors import Violation
from interfere.policy.costs.objectives import OBJECTIVES, Objective, objective_of
from interfere.records import Job, ScopeLedger, Snapshot

REQUIRED_FIELD_REMEDIES = {
    "remaining_s": "send the seconds that the job would still run alone",
    "attained_s": "send the service that the job has attained, in seconds alone; 0 before it starts",
    "elapsed_s": "send the seconds since the job was submitted",
}

MAX_CLOCK_S = 1e11  # the year 5138 in seconds since 1970; milliseconds since 1970 lie above it since 1973
MAX_CLOCK_JUMP_S = 30 * 86_400.0  # no scheduler is silent for longer; a clock in another unit or era is further away
CLOCK_TOLERANCE_S = 0.5  # by which two hosts of one scheduler may differ, or a clock may be set back


def validate_snapshot(snapshot: Snapshot, custom_objective: Objective | None = None) -> list[Violation]:
    """Return every contradiction in a snapshot; the list is empty for a valid snapshot.

    `custom_objective` replaces the objective that the snapshot names. Checked: there is a device; device ids are
    unique; a job is either pending or running, and runs once (a gang: once on each of its devices); objectives,
    deadlines and windows have the fields that they need; pools exist; no resident starts after now.
    """
    violations: list[Violation] = []
    if not snapshot.devices:
        remedy = "send the devices of the scope, busy ones too"
        violations.append(Violation(field="devices", what="must not be empty", value="[]", remedy=remedy))
    if len({device.id for device in snapshot.devices}) < len(snapshot.devices):
        violations += _repeated_ids((f"devices[{k}].id", device.id) for k, device in enumerate(snapshot.devices))
    violations += _objective_violations(snapshot, custom_objective)
    violations += _missing_clock_violations(snapshot)
    violations += _repeated_job_ids(snapshot)
    violations += _gang_violations(snapshot)
    violations += _pool_violations(snapshot)
    violations += _start_time_violations(snapshot)
    return violations


def validate_clock(snapshot: Snapshot, ledger: ScopeLedger) -> list[Violation]:
    """Return one violation where the clock goes back, jumps ahead by more than 30 days or is not in seconds; else none.

    A scope may begin at any time, also at a virtual clock of 0. A jump far ahead is refused because every correct time
    after it would look like the past.
    """
    what, reset = "", f"if {ledger.now_s!r} was wrong: interfere scopes reset {snapshot.scope}"
    remedy = "another clock needs another scope"
    if snapshot.now_s > MAX_CLOCK_S:
        what, remedy = f"lies above {MAX_CLOCK_S:g}", "send seconds, not milliseconds"
    elif snapshot.now_s < ledger.now_s - CLOCK_TOLERANCE_S:
        what = f"goes back: scope {snapshot.scope!r} was at {ledger.now_s!r}"
        remedy = f"send one clock that never goes back, {remedy}; {reset}"
    elif ledger.revision and snapshot.now_s > ledger.now_s + MAX_CLOCK_JUMP_S:
        what = f"jumps by more than 30 days: scope {snapshot.scope!r} was at {ledger.now_s!r}"
        remedy = f"{remedy}; {reset}"
    return [Violation(field="now_s", what=what, value=repr(snapshot.now_s), remedy=remedy)] if what else []


def _absent(field: str, needed: str, remedy: str) -> Violation:
    """Return the violation by a field that is not sent. `needed`: beside or by what it is needed."""
    return Violation(field=field, what=f"is needed {needed}", value="absent", remedy=remedy)


def _lacks_any(names: Iterable[str], job: Job) -> bool:
    return any(math.isnan(getattr(job, name)) for name in names)


def jobs_where(holds: Callable[[Job], bool], snapshot: Snapshot) -> Iterator[tuple[str, Job]]:
    """Yield the pending and running jobs of which something holds, with field paths like `devices[0].residents[1]`."""
    for k, job in enumerate(snapshot.pending):
        if holds(job):
            yield f"pending[{k}]", job
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            if holds(job):
                yield f"devices[{k}].residents[{r}]", job


def _repeated_job_ids(snapshot: Snapshot) -> list[Violation]:
    """Return a violation for every job listed twice; a gang may be listed once on each of its devices."""
    names = [job.id for device in snapshot.devices for job in device.residents]
    names += [job.id for job in snapshot.pending]
    if len(set(names)) == len(names):
        return []
    gangs: set[tuple[str, int]] = set()
    ids: list[tuple[str, str]] = []
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            gang = (job.id, job.gpus)
            on_this_device = any(other.id == job.id for other in device.residents[:r])
            is_next_device_of_gang = job.gpus > 1 and gang in gangs and not on_this_device
            gangs.add(gang)
            if not is_next_device_of_gang:
                ids.append((f"devices[{k}].residents[{r}].id", job.id))
    ids += [(f"pending[{k}].id", job.id) for k, job in enumerate(snapshot.pending)]
    return _repeated_ids(ids)


def _objective_violations(snapshot: Snapshot, custom_objective: Objective | None) -> list[Violation]:
    """Return the violations of the objective: min-max terms in a weighted sum, and job fields that it lacks."""
    if custom_objective is None:
        if term_violations := _min_max_term_violations(snapshot):
            return term_violations
        name = " + ".join(term.kind for term in snapshot.objective_terms) or str(snapshot.objective)
        objective = objective_of(snapshot)
    else:
        name, objective = snapshot.objective_name or "of the caller", custom_objective
    violations: list[Violation] = []
    required_fields, needed = objective.required_fields, f"by the objective {name}"
    if objective.soft_cap_price and math.isnan(snapshot.limits.slowdown.soft_cap):
        remedy = "send the slowdown that few pairs should pass, or take another objective"
        violations.append(_absent("limits.soft_cap", needed, remedy))
    prices = {"price_per_hour": objective.money_price, "power_w": objective.energy_price}
    violations += [
        _absent(f"devices[{k}].{field}", needed, "send it for every device, or take another objective")
        for field in (field for field, price in prices.items() if price)
        for k, device in enumerate(snapshot.devices)
        if math.isnan(getattr(device, field))
    ]
    violations += [
        _absent(
            f"{path}.{field}", needed, f"{REQUIRED_FIELD_REMEDIES.get(field, 'send it')}, or take another objective"
        )
        for path, job in (jobs_where(partial(_lacks_any, required_fields), snapshot) if required_fields else ())
        for field in required_fields
        if math.isnan(getattr(job, field))
    ]
    if "attained_s" in required_fields:
        violations += [
            Violation(
                field=f"{path}.remaining_s",
                what="must be positive where attained_s is 0",
                value="0",
                remedy="a job of no length has no fair time: leave it out",
            )
            for path, _ in jobs_where(lambda job: job.attained_s + job.remaining_s == 0, snapshot)
        ]
    return violations


def _min_max_term_violations(snapshot: Snapshot) -> list[Violation]:
    summable = ", ".join(kind for kind, objective in OBJECTIVES.items() if not objective.is_min_max)
    return [
        Violation(
            field=f"objective_terms[{k}].kind",
            what="is the largest cost of a job, which cannot be added to others",
            value=term.kind,
            remedy=f"one of {summable}, or use it alone",
        )
        for k, term in enumerate(snapshot.objective_terms)
        if OBJECTIVES[term.kind].is_min_max
    ]


def _missing_clock_violations(snapshot: Snapshot) -> list[Violation]:
    """Return a violation for each deadline without now_s or remaining_s, and for windows without now_s."""
    residents = [job for device in snapshot.devices for job in device.residents]
    has_deadlines = bool([job for job in (*snapshot.pending, *residents) if job.deadline_s >= 0])  # none is negative
    timed = list(jobs_where(lambda job: job.deadline_s >= 0, snapshot)) if has_deadlines else []
    remedy = f"{REQUIRED_FIELD_REMEDIES['remaining_s']}, or leave the deadline out"
    violations = [
        _absent(f"{path}.remaining_s", "beside deadline_s", remedy)
        for path, job in timed
        if math.isnan(job.remaining_s)
    ]
    timed_fields = [f"{path}.deadline_s" for path, _ in timed]
    timed_fields += [f"devices[{k}].windows" for k, device in enumerate(snapshot.devices) if device.windows]
    if timed_fields and math.isnan(snapshot.now_s):
        remedy = "send your clock with Match, or leave deadlines and windows out"
        violations.append(_absent("now_s", f"beside {timed_fields[0]}", remedy))
    return violations


def _start_time_violations(snapshot: Snapshot) -> list[Violation]:
    """Return a violation for each resident that started after now."""
    now_s = snapshot.now_s
    if not [job for device in snapshot.devices for job in device.residents if job.since_s > now_s]:
        return []
    return [
        Violation(
            field=f"{path}.since_s",
            what=f"is after now_s, {now_s!r}",
            value=repr(job.since_s),
            remedy="send both on the same clock",
        )
        for path, job in jobs_where(lambda job: job.since_s > now_s, replace(snapshot, pending=()))
    ]


def _pool_violations(snapshot: Snapshot) -> list[Violation]:
    """Return a violation for each named pool without a device; a partial snapshot has none."""
    known_pools = {device.pool for device in snapshot.devices}
    return [
        Violation(
            field=f"pending[{k}].pools[{n}]",
            what="no device is in this pool",
            value=repr(pool),
            remedy=f"one of {', '.join(sorted(filter(None, known_pools))) or 'none'}; leave it out for any device",
        )
        for k, job in enumerate(snapshot.pending)
        for n, pool in enumerate(job.pools)
        if pool not in known_pools and not snapshot.partial
    ]


def _gang_violations(snapshot: Snapshot) -> list[Violation]:
    """Return a violation for each running gang on too many devices, or on too few in a complete snapshot."""
    if not [job for device in snapshot.devices for job in device.residents if job.gpus > 1]:
        return []
    paths_of: dict[str, list[str]] = {}
    gpus_of: dict[str, int] = {}
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            if job.gpus > 1 or job.id in gpus_of:
                paths_of.setdefault(job.id, []).append(f"devices[{k}].residents[{r}].gpus")
                gpus_of.setdefault(job.id, job.gpus)
    return [
        Violation(
            field=paths[-1],
            what=f"runs on {len(paths)} devices",
            value=str(gpus_of[job_id]),
            remedy="a gang is a resident of each of its devices, and of no other",
        )
        for job_id, paths in paths_of.items()
        if gpus_of[job_id] > 1
        and (len(paths) > gpus_of[job_id] or (len(paths) < gpus_of[job_id] and not snapshot.partial))
    ]


def _repeated_ids(ids: Iterable[tuple[str, str]]) -> list[Violation]:
    """Return one violation for each (field path, id) whose id occurred earlier in the list."""
    first_path: dict[str, str] = {}
    violations = []
    for path, repeated_id in ids:
        if repeated_id in first_path:
            violations.append(
                Violation(
                    field=path,
                    what=f"repeats {first_path[repeated_id]}",
                    value=repr(repeated_id),
                    remedy="an id may appear once in a snapshot",
                )
            )
        first_path.setdefault(repeated_id, path)
    return violations
