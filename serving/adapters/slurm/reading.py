"""Parses `squeue --json` and `sinfo --json` of several versions of Slurm into records. Pure functions.

22.05 writes plain numbers and one state; from 23.02 on a number is {"set", "infinite", "number"} and a state a list.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from interfere.errors import InvalidInputError
from interfere.serving.adapters.slurm.records import NOTE, Gpu, GpuAddress, Node, Note, SlurmJob, is_safe

# States and flags of a node on which nothing new starts.
_AWAY = {
    "down",
    "drain",
    "draining",
    "drained",
    "fail",
    "failing",
    "maintenance",
    "maint",
    "reserved",
    "not_responding",
    "no_respond",
    "powering_down",
    "powered_down",
    "power_down",
    "reboot_requested",
    "reboot_issued",
    "unknown",
    "error",
    "future",
    "planned_drain",
    "invalid_reg",
}
_HELD = re.compile(r"(gpu|shard):([^:,()]+):(\d+)")


def read_jobs(text: str, only_user: int | None = None) -> tuple[SlurmJob, ...]:
    """All jobs of `squeue --json`. With `only_user`, notes are read from that user's own comments, and from nowhere
    else: anybody may write a comment. Raises InvalidInputError when it is not that."""
    return tuple(_job(row, only_user) for row in _rows(text, "squeue", "jobs"))


def read_nodes(text: str) -> tuple[Node, ...]:
    """All nodes of `sinfo --json`. Raises InvalidInputError when it is not that."""
    return tuple(map(_node, _rows(text, "sinfo", "nodes")))


def _rows(text: str, command: str, key: str) -> Sequence[Mapping[str, Any]]:
    try:
        document = json.loads(text)
        errors, rows = document.get("errors") or [], document[key]
        if errors:
            raise ValueError("; ".join(str(one.get("description") or one.get("error")) for one in errors))
        if not all(isinstance(row, Mapping) for row in rows):
            raise TypeError(f"{key} is no list of objects")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"`{command} --json` did not answer with {key} ({error})",
            value=repr(text[:80]),
            remedy=f"run `{command} --json` by hand; it needs the JSON serializer of Slurm 21.08 or later",
        ) from None
    return rows  # type: ignore[no-any-return]  # checked above


def _job(row: Mapping[str, Any], only_user: int | None) -> SlurmJob:
    job_id, node = str(_number(row.get("job_id"))), str(row.get("nodes") or "")
    state = row.get("job_state")
    states = [state] if isinstance(state, str) else list(state or ["UNKNOWN"])
    note = _note(row, only_user)
    return SlurmJob(
        id=job_id,
        state="COMPLETING" if "COMPLETING" in states else str(states[0]),
        reason=str(row.get("state_reason") or ""),
        comment=str(row.get("comment") or ""),
        note=note,
        note_in="AdminComment" if only_user is None else "Comment",
        tres=str(row.get("tres_per_node") or ""),
        special=_special(row, job_id, note),
        partition=str(row.get("partition") or ""),
        user_id=_number(row.get("user_id")),
        priority=_number(row.get("priority")),
        submit_s=float(_number(row.get("submit_time"))),
        eligible_s=float(_number(row.get("eligible_time"))),
        start_s=float(_number(row.get("start_time"))),
        end_s=float(_number(row.get("end_time"))),
        restarts=_number(row.get("restart_cnt")),
        node=node,
        held=tuple(
            (kind, gres, int(count))
            for kind, gres, count in _HELD.findall(",".join(map(str, row.get("gres_detail") or [])))
            if int(count)
        ),
    )


def _note(row: Mapping[str, Any], only_user: int | None) -> Note | None:
    deferred, comment = Note.parse(str(row.get("admin_comment") or "")), str(row.get("comment") or "")
    if only_user is None:
        return deferred
    own = comment.startswith(NOTE) and all(map(is_safe, comment.split("|"))) and comment.count("|") <= 1
    if _number(row.get("user_id")) != only_user or not own:
        return None
    return Note.parse(comment.partition("|")[2]) or deferred


def _special(row: Mapping[str, Any], job_id: str, note: Note | None) -> str:
    """Why a pending job is left to Slurm alone."""
    checks = {
        "array": _number(row.get("array_job_id")) != 0 or bool(row.get("array_task_string")),
        "heterogeneous": _number(row.get("het_job_id")) != 0,
        "several nodes": _number(row.get("node_count")) > 1,
        "own choice of nodes": bool(row.get("excluded_nodes")) or (bool(row.get("required_nodes")) and not _to(note)),
        "features": bool(row.get("features")),
        "reservation": bool(row.get("resv_name")),
        "dependency": bool(row.get("dependency")),
        "several partitions": "," in str(row.get("partition") or ""),
        "held": str(row.get("state_reason") or "").startswith("JobHeld") or bool(row.get("hold")),
        "no number": not job_id.isdecimal(),
    }
    return next((why for why, holds in checks.items() if holds), "")


def _to(note: Note | None) -> GpuAddress | None:
    return note.to if note else None


def _node(row: Mapping[str, Any]) -> Node:
    name = str(row.get("name") or row.get("hostname") or "")
    state = row.get("state")
    words = [state] if isinstance(state, str) else list(state or ["unknown"])
    words += list(row.get("state_flags") or [])
    gpus: dict[str, int] = {}
    shards: dict[str, int] = {}
    for kind, gres, count in _HELD.findall(str(row.get("gres") or "")):
        (gpus if kind == "gpu" else shards)[gres] = int(count)
    partitions = row.get("partitions") or []
    return Node(
        name=name,
        usable=not _AWAY & {str(word).lower() for word in words},
        partitions=tuple(map(str, partitions)),
        # a type that several GPUs share is the address of none of them: SLURM_JOB_GPUS still counts them
        gpus=tuple(
            Gpu(address=GpuAddress(name, gres), index=sum(list(gpus.values())[:k]), shards=shards.get(gres, 0))
            for k, (gres, count) in enumerate(gpus.items())
            if count == 1
        ),
    )


def _number(value: object) -> int:
    """A number of either version; 0 for none, infinite or unset."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else 0
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
