"""Slurm's jobs, nodes and GPUs as records, read from `squeue --json` and `sinfo --json`, and the note that the advisor
leaves on a job. Pure functions.

22.05 writes plain numbers and one state; from 23.02 on a number is {"set", "infinite", "number"} and a state a list.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from interfere.errors import InvalidInputError
from interfere.serving.adapters.problem import first_reason

NOTE = "interfere:"  # begins the AdminComment of every advised job
STATES = ("deferred", "clearing", "placed", "moving", "freed", "ended")
# Whatever a user or a server wrote and an update repeats: nothing that could begin another word or line of scontrol.
_SAFE = re.compile(r"[\w.:;=/+-]*", re.ASCII)
_REQUEST = re.compile(r"gres[:/]shard(?::(?P<type>\d*[A-Za-z_][\w.-]*))?(?::(?P<count>\d{1,4}))?", re.ASCII)

# States and flags of a node on which nothing new starts.
_AWAY = re.compile(
    r"down|drain(ing|ed)?|fail(ing)?|maint(enance)?|reserved|not_responding|no_respond|power(ing|ed)?_down"
    r"|reboot_(requested|issued)|unknown|error|future|planned_drain|invalid_reg"
)
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")
_ENDED = re.compile(r"COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE")
_HELD = re.compile(r"(gpu|shard):([^:,()]+):(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class GpuAddress:
    """The address of one GPU: its node, and a GRES type that no other GPU of this node has."""

    node: str
    gres: str

    def __str__(self) -> str:
        return f"{self.node}/{self.gres}"


class Held(NamedTuple):
    """What a job holds of one GPU."""

    kind: str  # gpu or shard
    address: GpuAddress
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as `sinfo` knows it."""

    address: GpuAddress
    index: int  # what SLURM_JOB_GPUS calls it on its node
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node and its GPUs, in the order of their indices."""

    name: str
    usable: bool  # neither down, drained nor reserved
    partitions: tuple[str, ...]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The advisor's note in the AdminComment, or behind a | in the comment where a user advises only own jobs.

    `deferred`: submitted, not yet decided.
    `clearing`: the few milliseconds between two updates, in which a job has no GPU request at all: such a job
    must never be scheduled (slurmctld 22.05.8 divides by zero).
    `moving`: requeued, to start on another GPU once it has stopped.
    `placed` with `after`: it starts when those running jobs, whose places it takes, have ended.
    `ended`: cancelled for holding more memory than it was granted; `why` says how much.
    """

    state: str = "deferred"  # one of STATES
    to: GpuAddress | None = None
    tres: str = ""  # what the job asked for before
    decision: str = ""
    round_s: int = 0  # when it was decided
    tries: int = 0
    after: tuple[str, ...] = ()  # ids of jobs whose end it waits for
    grant_bytes: int = 0  # memory that it was granted on its GPU; 0: none
    slots: str = ""  # that hold it, as ranges: 0-3+8
    spent_s: int = 0  # that it ran before it was moved, less what it lost to the jobs beside it
    why: str = ""  # it was ended

    def __str__(self) -> str:
        fields = {
            "to": self.to,
            "tres": self.tres,
            "decision": self.decision,
            "round": self.round_s,
            "tries": self.tries,
            "after": ":".join(self.after),
            "grant": self.grant_bytes,
            "slots": self.slots,
            "spent": self.spent_s,
            "why": self.why,
        }
        return NOTE + ";".join([self.state, *(f"{key}={value}" for key, value in fields.items() if value)])

    @classmethod
    def parse(cls, text: str) -> "Note | None":
        """Return the note in an AdminComment; None where it is another comment. Fields that cannot be read take
        their defaults."""
        if not text.startswith(NOTE) or not is_safe(text):
            return None
        state, *rest = text.removeprefix(NOTE).split(";")
        fields = dict(part.partition("=")[::2] for part in rest)
        node, _, gres = fields.get("to", "").partition("/")
        return cls(
            state=state if state in STATES else "deferred",
            to=GpuAddress(node, gres) if node and gres else None,
            tres=fields.get("tres", ""),
            decision=fields.get("decision", ""),
            round_s=_whole(fields.get("round", "")),
            tries=_whole(fields.get("tries", "")),
            after=tuple(filter(str.isdecimal, fields.get("after", "").split(":"))),
            grant_bytes=_whole(fields.get("grant", "")),
            slots=fields.get("slots", ""),
            spent_s=_whole(fields.get("spent", "")),
            why=fields.get("why", ""),
        )


def is_safe(text: str) -> bool:
    """Whether a text may stand in a line for scontrol: it cannot begin another word or line."""
    return _SAFE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as `squeue` knows it. Times in unix seconds; 0 where there is none yet."""

    id: str
    state: str
    reason: str = ""
    comment: str = ""
    note: Note | None = None
    note_in: str = "AdminComment"  # or Comment, which needs no rights of an operator
    tres: str = ""  # tres_per_node
    special: str = ""  # why the job is not advised; empty for a plain job
    partition: str = ""
    user_id: int = 0
    priority: int = 0
    submit_s: float = 0.0
    eligible_s: float = 0.0
    start_s: float = 0.0  # of a pending job: when Slurm expects it to start
    end_s: float = 0.0
    limit_s: float = 0.0  # after which Slurm may end it; 0: never
    restarts: int = 0
    may_requeue: bool = False
    node: str = ""  # where it runs or ran; several nodes as Slurm writes them, such as n[0-1]
    expected_nodes: tuple[str, ...] = ()  # of a pending job: where Slurm expects it to start, if it says so
    held: tuple[Held, ...] = ()  # while it runs

    @property
    def workload(self) -> str:
        """The workload in the job's comment, e.g. `interfere:workload=resnet50;max_slowdown=1.5`; empty where there is
        none."""
        return self.comment_value("workload")

    @property
    def run_id(self) -> str:
        """The prefix of the ids of its observations. It changes when the job is requeued."""
        return f"{self.id}.{self.restarts}"

    @property
    def history_id(self) -> str:
        """The id of the job in the journal, which is its `run_id`."""
        return self.run_id

    @property
    def is_running(self) -> bool:
        """Whether the job holds its devices now."""
        return self.state in RUNNING

    @property
    def has_ended(self) -> bool:
        """Return whether the job has run and ended."""
        return _ENDED.fullmatch(self.state) is not None

    @property
    def places(self) -> tuple[GpuAddress, ...]:
        """The GPUs that a running job holds, in part or as a whole."""
        return tuple(dict.fromkeys(held.address for held in self.held))

    def comment_value(self, key: str) -> str:
        """Return the value of one key in the job's comment."""
        _, prefix, text = self.comment.partition(NOTE)
        if not prefix:
            return ""
        words = text.partition("|")[0].split()
        parts = words[0].split(";") if words else []
        return dict(part.partition("=")[::2] for part in parts).get(key, "")

    @property
    def shards(self) -> int:
        """The number of shards of one GPU that the job requests; 0 for a job with any other request."""
        request = _REQUEST.fullmatch(self.tres)
        return int(request["count"] or 1) if request else 0

    @property
    def takes_whole_gpus(self) -> bool:
        """Whether the job requests GPUs as a whole."""
        return re.search("gres[:/]gpu", self.tres) is not None

    @property
    def is_next_for_whole_gpus(self) -> bool:
        """Whether Slurm keeps the next free GPUs of the job's partition for it."""
        return self.state == "PENDING" and self.takes_whole_gpus and self.reason == "Resources"

    @property
    def typed(self) -> bool:
        """Whether the job's request names one GPU already."""
        request = _REQUEST.fullmatch(self.tres)
        return request is not None and request["type"] is not None

    def noting(self, note: Note) -> str:
        """Return the part of a scontrol update that writes a note on the job."""
        if self.note_in == "AdminComment":
            return f"AdminComment={note}"
        return f"Comment={self.comment.partition('|')[0]}|{note}"


def as_word(text: str) -> str:
    """Return a text as one word of a note: spaces become `_`, and characters with a meaning in notes or scontrol are
    left out."""
    return "".join(c for c in "_".join(text.split()) if is_safe(c) and c not in ";=")


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def read_jobs(text: str, only_user: int | None = None) -> tuple[SlurmJob, ...]:
    """Return all jobs in the output of `squeue --json`.

    With `only_user`, notes are read only from this user's comments, because any user may write a comment. Raises
    InvalidInputError when the text is not such output.
    """
    return tuple(_job(row, only_user) for row in _rows(text, "squeue", "jobs"))


def read_nodes(text: str) -> tuple[Node, ...]:
    """Return all nodes in the output of `sinfo --json`. Raises InvalidInputError when the text is not such output."""
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
        limit_s=60.0 * _number(row.get("time_limit")),
        restarts=_number(row.get("restart_cnt")),
        may_requeue=row.get("requeue") is True,
        node=node,
        expected_nodes=node_names(str(row.get("scheduled_nodes") or "")),
        held=tuple(
            Held(kind, GpuAddress(name, gres), int(count))
            for name, detail in zip(
                node_names(node), row.get("gres_detail") or [], strict=False
            )  # one a node, in order
            for kind, gres, count in _HELD.findall(str(detail))
            if int(count)
        ),
    )


def node_names(text: str) -> tuple[str, ...]:
    """Return the names in a list of nodes as Slurm writes it: `n[0-1,3],m7` are n0, n1, n3 and m7."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        before, bracket, rest = part.partition("[")
        if not bracket:
            names.append(part)
            continue
        numbers, _, after = rest.partition("]")
        for span in numbers.split(","):
            first, _, last = span.partition("-")
            for number in range(_whole(first), _whole(last or first) + 1):
                names += node_names(f"{before}{number:0{len(first)}d}{after}")
    return tuple(names)


def read_expected_nodes(text: str) -> dict[str, tuple[str, ...]]:
    """Return the nodes on which Slurm expects pending jobs to start, by job id; jobs without any are left out.

    `text`: lines of a job id and its nodes, as `squeue --format="%i %Y"` writes them.
    """
    found = re.findall(r"(?m)^(\d+) +([^\s(]\S*)$", text)
    return {job_id: node_names(nodes) for job_id, nodes in found}


def _note(row: Mapping[str, Any], only_user: int | None) -> Note | None:
    deferred, comment = Note.parse(str(row.get("admin_comment") or "")), str(row.get("comment") or "")
    if only_user is None:
        return deferred
    own = comment.startswith(NOTE) and all(map(is_safe, comment.split("|"))) and comment.count("|") <= 1
    if _number(row.get("user_id")) != only_user or not own:
        return None
    return Note.parse(comment.partition("|")[2]) or deferred


def _special(row: Mapping[str, Any], job_id: str, note: Note | None) -> str:
    """Return the reason why a pending job is left to Slurm alone."""
    is_ours = note is not None and note.to is not None  # the advisor chose its node
    checks = {
        "array": _number(row.get("array_job_id")) != 0 or bool(row.get("array_task_string")),
        "heterogeneous": _number(row.get("het_job_id")) != 0,
        "several nodes": _number(row.get("node_count")) > 1,
        "own choice of nodes": bool(row.get("excluded_nodes")) or (bool(row.get("required_nodes")) and not is_ours),
        "features": bool(row.get("features")),
        "reservation": bool(row.get("resv_name")),
        "dependency": bool(row.get("dependency")) and not (note is not None and note.after),
        "several partitions": "," in str(row.get("partition") or ""),
        "held": str(row.get("state_reason") or "").startswith("JobHeld") or bool(row.get("hold")),
        "no number": not job_id.isdecimal(),
    }
    return first_reason(checks)


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
        usable=not any(_AWAY.fullmatch(str(word).lower()) for word in words),
        partitions=tuple(map(str, partitions)),
        # a type that several GPUs share is the address of none of them: SLURM_JOB_GPUS still counts them
        gpus=tuple(
            Gpu(address=GpuAddress(name, gres), index=sum(list(gpus.values())[:k]), shards=shards.get(gres, 0))
            for k, (gres, count) in enumerate(gpus.items())
            if count == 1
        ),
    )


def _number(value: object) -> int:
    """Return an integer of Slurm's JSON, in the form of either version; 0 where it is absent, infinite or unset."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else 0
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
