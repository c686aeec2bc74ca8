"""Edits of jobs as lines for `scontrol`, several to one process. Pure functions.

Slurm refuses to turn `shard:1` into `shard:g1:1` in one update: the request is cleared first, then written anew. Law: a
job without a request is never left where the scheduler may take it (slurmctld 22.05.8 crashes on it): it is put off
for a year in the update that clears it, and both updates are lines of one process that outlives the advisor.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from interfere.records import NAN
from interfere.serving.adapters.slurm.records import GpuAddress, Note, SlurmJob, as_word, is_safe

FAR = "now+365days"
MAX_IDS = 100  # in one update: a line of 1 kB


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Updates of one or more jobs, in order. `note`: the note on a single job afterwards."""

    kind: str  # place, renew, repair, free, end
    job_ids: tuple[str, ...]
    lines: tuple[str, ...]
    note: Note | None = None
    cancels: bool = False  # does scancel end the jobs once their lines are accepted?


def place(job: SlurmJob, address: GpuAddress, decision: str, now_s: float, grant_bytes: float = NAN) -> Edit:
    """Retarget a pending job to one GPU and release it. `grant_bytes`: memory that it is granted there; NaN: none."""
    before = job.note or Note()
    tres = before.tres or job.tres
    decision_note = decision if is_safe(decision) else ""
    note = Note(
        state="placed",
        to=address,
        tres=tres,
        decision=decision_note,
        round_s=int(now_s),
        tries=before.tries + 1,
        grant_bytes=0 if math.isnan(grant_bytes) else int(grant_bytes),
    )
    write = (
        f"update JobId={job.id} TresPerNode=gres:shard:{address.gres}:{job.shards} ReqNodeList={address.node} "
        f"StartTime=now {job.noting(note)}"
    )
    if job.typed:
        return Edit(kind="place", job_ids=(job.id,), lines=(write,), note=note)
    clear = f"update JobId={job.id} TresPerNode= StartTime={FAR} {job.noting(replace(note, state='clearing'))}"
    return Edit(kind="place", job_ids=(job.id,), lines=(clear, write), note=note)


def renew(jobs: Sequence[SlurmJob], window_s: float) -> tuple[Edit, ...]:
    """Defer waiting jobs once more."""
    ids = [job.id for job in jobs]
    return tuple(
        Edit(
            kind="renew",
            job_ids=tuple(part),
            lines=(f"update JobId={','.join(part)} StartTime=now+{max(1, round(window_s))}",),
        )
        for k in range(0, len(ids), MAX_IDS)
        if (part := ids[k : k + MAX_IDS])
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
    """Return a pending job to Slurm: its own request where that was cleared, any node, now."""
    note = job.note or Note()
    tres = f"TresPerNode={note.tres or 'gres:shard:1'} " if note.state == "clearing" else ""
    freed = replace(note, state="freed", to=None)
    line = f"update JobId={job.id} {tres}ReqNodeList= StartTime=now {job.noting(freed)}"
    return Edit(kind="free", job_ids=(job.id,), lines=(line,), note=freed)


def end(job: SlurmJob, reason: str) -> Edit:
    """Cancel a running job: the reason stands in its note, and in what the job wrote to its standard error."""
    note = replace(job.note or Note(), state="ended", why=as_word(reason))
    lines = (f"update JobId={job.id} {job.noting(note)}", f"notify {job.id} interfere ends this job: {note.why}")
    return Edit(kind="end", job_ids=(job.id,), lines=lines, note=note, cancels=True)


def due(jobs: Iterable[SlurmJob], now_s: float, window_s: float) -> tuple[SlurmJob, ...]:
    """The jobs whose deferral is more than half over."""
    return tuple(job for job in jobs if job.eligible_s - now_s < window_s / 2)
