"""Checks of a request before anything is computed: sizes, contradictions, known profiles.

A model that predicts pair by pair limits the number of distinct pairs in a request (`matrix_limit`). Jobs with the same
workload or profile id count as one job; each device type and sharing mode has its own pairs.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from interfere.errors import InvalidInputError, LimitError, Violation
from interfere.policy.context import MAX_CLOSING_TIMES, assumed_mode
from interfere.policy.problem_size import independent_parts, problem_size
from interfere.policy.rules.custom import SharingRule
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.policy.solve.planner import parts_planned_apart
from interfere.policy.validate import jobs_where, validate_snapshot
from interfere.predict.manifest import distinct_pairs, require_within
from interfere.records import ActionKind, Device, Job, JobProfile, Snapshot
from interfere.serving.profiles import ProfileCatalogue
from interfere.serving.state import ServedState
from interfere.sharing_modes import SharingMode

MAX_PAIRS = 20_000  # of one PredictSlowdowns: less than a second of one core even for trees
MAX_CELLS = 7_000_000  # of one PredictMatrix: 9 bytes each stay under 64 MiB
# Costs of one Match: about 100 bytes each. 1,000 pending jobs that all differ beside 700 residents that do are 1.7
# million and take two seconds of one core; jobs that repeat 40 workloads at three weights are 14,400, however many.
MAX_COSTS = 2_000_000
MAX_DEVICES = 20_000
MAX_PENDING = 20_000
MAX_ENTRIES = 1_000  # of one page of the log


def check_size(snapshot: Snapshot, custom_rules: Sequence[SharingRule] = ()) -> None:
    """Raise LimitError for a snapshot whose plan would take more memory and time than one request may."""
    jobs, devices = len(snapshot.pending), len(snapshot.devices)
    if jobs > MAX_PENDING or devices > MAX_DEVICES:
        raise LimitError(
            "too large a snapshot",
            value=f"{jobs} pending jobs on {devices} devices",
            remedy=f"send the first {MAX_PENDING:,} of the queue, and at most {MAX_DEVICES:,} devices a scope",
        )
    size = problem_size(snapshot, MAX_CLOSING_TIMES, custom_rules)
    if size.cells <= MAX_COSTS:
        return
    parts = independent_parts(snapshot)
    if sum(problem_size(part, MAX_CLOSING_TIMES, custom_rules).cells for part in parts) > MAX_COSTS:
        raise LimitError(
            "too many jobs that differ",
            value=f"{size.jobs} kinds of pending jobs, {size.seats} of residents, {size.device_classes} of devices",
            remedy=f"send a part of the queue: kinds of jobs² × kinds of devices + kinds of jobs × kinds of residents "
            f"may come to {MAX_COSTS:,}, added over pools that no job joins where every job names its pools; jobs of "
            f"one workload, weight and limits are one kind",
        )


ProfileOf = Callable[[Job, str], JobProfile | None]


def check_snapshot(snapshot: Snapshot, profiles: ProfileCatalogue, site_policy: SitePolicy = NO_ADDITIONS) -> None:
    """Raise LimitError for a snapshot that is too large, InvalidInputError for one that contradicts itself, or names
    unknown profiles or an objective that is not enabled."""
    check_size(snapshot, site_policy.rules)
    bad = [
        Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
        for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
        if len(value) > 256 or not value.isprintable()
    ]
    bad += validate_snapshot(snapshot, site_policy.objective_of(snapshot))
    bad += _unknown_ids(jobs_where(lambda job: bool(job.profile_id), snapshot), profiles)
    if bad:
        raise InvalidInputError.from_violations(bad)


def check_job(job: Job, profiles: ProfileCatalogue) -> None:
    """Raise InvalidInputError for a job that names an unknown profile."""
    if bad := _unknown_ids([("job", job)], profiles):
        raise InvalidInputError.from_violations(bad)


def _unknown_ids(jobs: Iterable[tuple[str, Job]], profiles: ProfileCatalogue) -> list[Violation]:
    return [
        Violation(
            field=f"{path}.profile_id",
            what="no profile has this id",
            value=repr(job.profile_id),
            remedy="leave it out to use the workload's newest, or register the profile first",
        )
        for path, job in jobs
        if job.profile_id and not profiles.knows(job.profile_id)
    ]


def check_predicted_pairs(snapshot: Snapshot, state: ServedState) -> None:
    """Raise LimitError for a snapshot whose decision asks a model that predicts pair by pair about too many pairs.

    Of pools that are planned apart only the pairs inside each are counted.
    """
    manifest = state.model.manifest
    limit = manifest.matrix_limit
    jobs = len(snapshot.pending) + sum(len(device.residents) for device in snapshot.devices)
    if limit is None or jobs * jobs <= limit.pairs:
        return
    counts = (predicted_pairs(part, state) for part in parts_planned_apart(snapshot))
    require_within(sum(counts), limit, manifest.model)


def predicted_pairs(snapshot: Snapshot, state: ServedState) -> int:
    """Return the number of distinct ordered pairs that a decision may ask the model about, over all device types and
    modes.

    These are pairs of pending jobs, pairs of a pending job and a resident, and where jobs may move, pairs of residents.
    """
    allowed, extrapolate = snapshot.limits.allowed, snapshot.limits.allow_extrapolation
    may_move = bool(allowed & {ActionKind.MOVE, ActionKind.PREEMPT})
    if ActionKind.START_SHARED not in allowed and not may_move:
        return 0
    unnamed = dict.fromkeys(device.type for device in snapshot.devices if not device.mode)
    assumed = {device_type: assumed_mode(device_type, state.predictor) for device_type in unnamed}
    domains: dict[tuple[str, SharingMode], list[Device]] = {}
    for device in snapshot.devices:
        domains.setdefault((device.type, device.mode or assumed[device.type]), []).append(device)
    total = 0
    for (device_type, mode), devices in domains.items():
        if not extrapolate and state.predictor.knows(device_type, mode):
            continue  # nothing is predicted there
        pending = _distinct(snapshot.pending, device_type, state.profile_of_job)
        joined = (device.residents for device in devices if may_move or len(device.residents) == 1)
        running = _distinct(chain.from_iterable(joined), device_type, state.profile_of_job)
        if may_move:
            total += len(pending | running) ** 2
        else:  # pending jobs among themselves, and beside residents both ways
            total += len(pending) ** 2 + distinct_pairs(len(pending), len(running - pending), 0)
    return total


def _distinct(jobs: Iterable[Job], device_type: str, profile_of: ProfileOf) -> set[int]:
    """Return the identities of the distinct profiles of jobs on a device type. Jobs without a profile are not
    predicted."""
    profiles = (profile_of(job, device_type) for job in {(j.workload, j.profile_id): j for j in jobs}.values())
    return {id(profile) for profile in profiles if profile is not None}
