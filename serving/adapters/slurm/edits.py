"""Decisions become lines for `scontrol`, several to one process: pure.

Slurm refuses to turn `shard:1` into `shard:g1:1` in one update: the request is cleared first, then written anew. Law: a
job without a request is never left where the scheduler may take it (slurmctld 22.05.8 crashes on it): it is put off
for a year in the update that clears it, and both updates are lines of one process that outlives the advisor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from serving.adapters.slurm.records import GpuAddress, Note, SlurmJob, is_safe

FAR = "now+365days"
AT_ONCE = 100  # ids in one update: a line of 1 kB


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Updates of some jobs, in order. `note`: what a single job carries afterwards."""

    kind: str  # place, renew, repair, free
    job_ids: tuple[str, ...]
    lines: tuple[str, ...]
    note: Note | None = None


def place(job: SlurmJob, to: GpuAddress, decision: str, now_s: float) -> Edit:
    """Retarget a pending job to one GPU and release it."""
    before = job.note or Note()
    tres = before.tres or job.tres
    known = decision if is_safe(decision) else ""
    note = Note(state="placed", to=to, tres=tres, decision=known, round_s=int(now_s), tries=before.tries + 1)
    write = (
        f"update JobId={job.id} TresPerNode=gres:shard:{to.gres}:{job.shards} ReqNodeList={to.node} StartTime=now "
        f"{job.noting(note)}"
    )
    if job.typed:
        return Edit(kind="place", job_ids=(job.id,), lines=(write,), note=note)
    clear = f"update JobId={job.id} TresPerNode= StartTime={FAR} {job.noting(replace(note, state='clearing'))}"
    return Edit(kind="place", job_ids=(job.id,), lines=(clear, write), note=note)


def renew(jobs: Sequence[SlurmJob], window_s: float) -> tuple[Edit, ...]:
    """Put waiting jobs off once more."""
    ids = [job.id for job in jobs]
    return tuple(
        Edit(
            kind="renew",
            job_ids=tuple(part),
            lines=(f"update JobId={','.join(part)} StartTime=now+{max(1, round(window_s))}",),
        )
        for k in range(0, len(ids), AT_ONCE)
        if (part := ids[k : k + AT_ONCE])
    )


def repair(job: SlurmJob, window_s: float) -> Edit:
    """Give a job that was caught between two updates its own request back."""
    tres = job.note.tres if job.note and job.note.tres else "gres:shard:1"
    note = Note()
    line = (
        f"update JobId={job.id} TresPerNode={tres} ReqNodeList= StartTime=now+{max(1, round(window_s))} "
        f"{job.noting(note)}"
    )
    return Edit(kind="repair", job_ids=(job.id,), lines=(line,), note=note)


def hand_back(job: SlurmJob) -> Edit:
    """End the advice of a pending job: its own request where it lost it, any node, now."""
    note = job.note or Note()
    tres = f"TresPerNode={note.tres or 'gres:shard:1'} " if note.state == "clearing" else ""
    freed = replace(note, state="freed", to=None)
    line = f"update JobId={job.id} {tres}ReqNodeList= StartTime=now {job.noting(freed)}"
    return Edit(kind="free", job_ids=(job.id,), lines=(line,), note=freed)


def due(jobs: Iterable[SlurmJob], now_s: float, window_s: float) -> tuple[SlurmJob, ...]:
    """Those whose deferral is more than half over, or over."""
    return tuple(job for job in jobs if job.eligible_s - now_s < window_s / 2)
