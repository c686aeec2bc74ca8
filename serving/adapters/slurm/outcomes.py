"""What became of placements and jobs, read from Slurm alone, so that a restart says the same again; pure."""

from collections.abc import Iterable

from interfere.records import Outcome, OutcomeKind
from serving.adapters.slurm.occupancy import ENDED
from serving.adapters.slurm.records import SlurmJob
from serving.adapters.slurm.settings import SlurmSettings
from serving.adapters.slurm.view import RUNNING, is_placed


def outcomes(jobs: Iterable[SlurmJob], settings: SlurmSettings, now_s: float) -> tuple[Outcome, ...]:
    """Applied, lost and ended of all our jobs that Slurm remembers."""
    found: list[Outcome] = []
    for job in jobs:
        note = job.note
        if note is None:
            continue
        prefix = f"slurm/{settings.cluster}/{job.id}.{job.restarts}"
        if job.state == "PENDING" and note.state == "placed" and not is_placed(job, now_s, settings):
            found.append(
                Outcome(
                    observation_id=f"{prefix}/late/{note.tries}",
                    job_id=job.id,
                    kind=OutcomeKind.LOST_RACE,
                    at_s=note.round_s + settings.start_s,
                    decision_id=note.decision,
                    device_id=str(note.to),
                    reason=f"it did not start within {settings.start_s:g} s",
                )
            )
        if not job.start_s or now_s < job.start_s:
            continue
        if note.state == "placed" and note.to and (job.state in RUNNING or job.state in ENDED) and job.node:
            there = job.node == note.to.node
            found.append(
                Outcome(
                    observation_id=f"{prefix}/started",
                    job_id=job.id,
                    at_s=job.start_s,
                    decision_id=note.decision,
                    kind=OutcomeKind.APPLIED if there else OutcomeKind.LOST_RACE,
                    device_id=str(note.to),
                    reason="" if there else f"it started on {job.node}",
                )
            )
        if job.state in ENDED and job.end_s:
            found.append(
                Outcome(
                    observation_id=f"{prefix}/ended",
                    job_id=job.id,
                    kind=OutcomeKind.ENDED,
                    at_s=job.end_s,
                    decision_id=note.decision,
                    reason=job.state.lower().replace("_", " "),
                )
            )
    return tuple(found)


def refused(job: SlurmJob, decision: str, message: str, *, lost: bool, settings: SlurmSettings, at_s: float) -> Outcome:
    """A placement that Slurm did not take: told once, by the round that tried it."""
    return Outcome(
        observation_id=f"slurm/{settings.cluster}/{job.id}.{job.restarts}/refused/{decision}",
        job_id=job.id,
        kind=OutcomeKind.LOST_RACE if lost else OutcomeKind.REFUSED,
        at_s=at_s,
        decision_id=decision,
        reason="".join(c for c in message if c.isprintable())[:200] or "no reason given",
    )
