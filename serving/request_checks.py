"""Checks of requests against what is served: device types, profile ids, and a snapshot that contradicts itself."""

from collections.abc import Mapping

from interfere.errors import InvalidInputError, Violation
from interfere.policy.validate import validate_snapshot
from interfere.records import Job, Snapshot
from serving.profiles import ProfileCatalogue
from serving.state import ServedState


def requested_device_type(state: ServedState, requested: str) -> str:
    """The requested device type, else the only one that the model knows."""
    if requested:
        return requested
    known = sorted({domain.device_type for domain in state.model.manifest.domains})
    if len(known) == 1:
        return known[0]
    raise InvalidInputError.from_violations(
        [Violation(field="device_type", what="is needed", value="''", remedy=f"one of {', '.join(known)}")]
    )


def check_snapshot(snapshot: Snapshot, state: ServedState) -> None:
    """Raise InvalidInputError for a snapshot that contradicts itself or names unknown profiles."""
    bad = [
        Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
        for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
        if len(value) > 256 or not value.isprintable()
    ]
    bad += validate_snapshot(snapshot)
    jobs = {f"pending[{k}]": job for k, job in enumerate(snapshot.pending)}
    for k, device in enumerate(snapshot.devices):
        jobs |= {f"devices[{k}].residents[{r}]": job for r, job in enumerate(device.residents)}
    bad += unknown_profile_ids(jobs, state.profiles)
    if bad:
        raise InvalidInputError.from_violations(bad)


def unknown_profile_ids(jobs: Mapping[str, Job], profiles: ProfileCatalogue) -> list[Violation]:
    """Violations of the jobs, by their path in the request, that name a profile which is not there."""
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
