"""What a request about a cluster must satisfy before anything is computed: sizes, no contradiction, known profiles."""

from collections.abc import Mapping

from interfere.errors import InvalidInputError, Violation
from interfere.policy.validate import validate_snapshot
from interfere.records import Job, Snapshot
from serving.limits import check_size
from serving.profiles import ProfileCatalogue


def check_snapshot(snapshot: Snapshot, profiles: ProfileCatalogue) -> None:
    """Raise LimitError for a snapshot that is too large, InvalidInputError for one that contradicts itself or names
    unknown profiles."""
    check_size(snapshot)
    bad = [
        Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
        for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
        if len(value) > 256 or not value.isprintable()
    ]
    bad += validate_snapshot(snapshot)
    jobs = {f"pending[{k}]": job for k, job in enumerate(snapshot.pending)}
    for k, device in enumerate(snapshot.devices):
        jobs |= {f"devices[{k}].residents[{r}]": job for r, job in enumerate(device.residents)}
    bad += _unknown_ids(jobs, profiles)
    if bad:
        raise InvalidInputError.from_violations(bad)


def check_job(job: Job, profiles: ProfileCatalogue) -> None:
    """Raise InvalidInputError for a job that names an unknown profile."""
    if bad := _unknown_ids({"job": job}, profiles):
        raise InvalidInputError.from_violations(bad)


def _unknown_ids(jobs: Mapping[str, Job], profiles: ProfileCatalogue) -> list[Violation]:
    return [
        Violation(
            field=f"{path}.profile_id",
            what="no profile has this id",
            value=repr(job.profile_id),
            remedy="leave it out to use the workload's newest, or register the profile first",
        )
        for path, job in jobs.items()
        if job.profile_id and not profiles.knows(job.profile_id)
    ]
