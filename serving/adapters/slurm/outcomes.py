"""Outcomes of placements and jobs, read from Slurm alone, so that a restart reports the same. Pure functions."""

from collections.abc import Iterable

from interfere.records import Outcome, OutcomeKind
from interfere.serving.adapters.slurm.occupancy import ENDED
from interfere.serving.adapters.slurm.records import SlurmJob
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.slurm.view import RUNNING, is_placed


def outcomes(jobs: Iterable[SlurmJob], settings: SlurmSettings, now_s: float) -> tuple[Outcome, ...]:
    """Outcomes (applied, lost race, ended) of all advised jobs that Slurm remembers."""
    reported: list[Outcome] = []
    for job in jobs:
        note = job.note
        if note is None:
            continue
        prefix = f"slurm/{settings.cluster}/{job.id}.{job.restarts}"
        if job.state == "PENDING" and note.state == "placed" and not is_placed(job, now_s, settings):
            reported.append(
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
            on_planned_node = job.node == note.to.node
            reported.append(
                Outcome(
                    observation_id=f"{prefix}/started",
                    job_id=job.id,
                    at_s=job.start_s,
                    decision_id=note.decision,
                    kind=OutcomeKind.APPLIED if on_planned_node else OutcomeKind.LOST_RACE,
                    device_id=str(note.to),
                    reason="" if on_planned_node else f"it started on {job.node}",
                )
            )
        if job.state in ENDED and job.end_s:
            reported.append(
                Outcome(
                    observation_id=f"{prefix}/ended",
                    job_id=job.id,
                    kind=OutcomeKind.ENDED,
                    at_s=job.end_s,
                    decision_id=note.decision,
                    reason=note.why.replace("_", " ") or job.state.lower().replace("_", " "),
                )
            )
    return tuple(reported)


def refused(job: SlurmJob, decision: str, message: str, *, lost: bool, settings: SlurmSettings, at_s: float) -> Outcome:
    """The outcome of a placement that Slurm rejected, reported by the round that tried it."""
    return Outcome(
        observation_id=f"slurm/{settings.cluster}/{job.id}.{job.restarts}/refused/{decision}",
        job_id=job.id,
        kind=OutcomeKind.LOST_RACE if lost else OutcomeKind.REFUSED,
        at_s=at_s,
        decision_id=decision,
        reason="".join(c for c in message if c.isprintable())[:200] or "no reason given",
    )
