"""Slurm's jobs, nodes and GPUs as records, and the note that the advisor leaves on a job."""

import re
from dataclasses import dataclass

NOTE = "interfere:"  # begins the AdminComment of every advised job
STATES = ("deferred", "clearing", "placed", "freed", "ended")
# Whatever a user or a server wrote and an update repeats: nothing that could begin another word or line of scontrol.
_SAFE = re.compile(r"[\w.:;=/+-]*", re.ASCII)
_REQUEST = re.compile(r"gres[:/]shard(?::(?P<type>\d*[A-Za-z_][\w.-]*))?(?::(?P<count>\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class GpuAddress:
    """One GPU: its node and the GRES type that only it has there."""

    node: str
    gres: str

    def __str__(self) -> str:
        return f"{self.node}/{self.gres}"


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
    `ended`: cancelled for holding more memory than it was granted; `why` says how much.
    """

    state: str = "deferred"  # one of STATES
    to: GpuAddress | None = None
    tres: str = ""  # what the job asked for before
    decision: str = ""
    round_s: int = 0  # when it was decided
    tries: int = 0
    grant_bytes: int = 0  # memory that it was granted on its GPU; 0: none
    why: str = ""  # it was ended

    def __str__(self) -> str:
        fields = {
            "to": self.to,
            "tres": self.tres,
            "decision": self.decision,
            "round": self.round_s,
            "tries": self.tries,
            "grant": self.grant_bytes,
            "why": self.why,
        }
        return NOTE + ";".join([self.state, *(f"{key}={value}" for key, value in fields.items() if value)])

    @classmethod
    def parse(cls, text: str) -> "Note | None":
        """The note in an AdminComment; None for another comment. Fields that cannot be read take their defaults."""
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
            grant_bytes=_whole(fields.get("grant", "")),
            why=fields.get("why", ""),
        )


def is_safe(text: str) -> bool:
    """Whether the text may stand in a line for scontrol."""
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
    start_s: float = 0.0
    end_s: float = 0.0
    restarts: int = 0
    node: str = ""  # where it runs or ran
    held: tuple[tuple[str, str, int], ...] = ()  # what it holds there: (gpu or shard, GRES type, count)

    @property
    def workload(self) -> str:
        """From the comment, e.g. `interfere:workload=resnet50;max_slowdown=1.5`; empty where the job says none."""
        return self.comment_value("workload")

    def comment_value(self, key: str) -> str:
        """One value of the comment."""
        _, prefix, text = self.comment.partition(NOTE)
        if not prefix:
            return ""
        words = text.partition("|")[0].split()
        parts = words[0].split(";") if words else []
        return dict(part.partition("=")[::2] for part in parts).get(key, "")

    @property
    def shards(self) -> int:
        """How many shards of one GPU it asks for; 0 when it asks for something else."""
        request = _REQUEST.fullmatch(self.tres)
        return int(request["count"] or 1) if request else 0

    @property
    def typed(self) -> bool:
        """Whether its request names one GPU already."""
        request = _REQUEST.fullmatch(self.tres)
        return request is not None and request["type"] is not None

    def noting(self, note: Note) -> str:
        """The part of an update that leaves a note on this job."""
        if self.note_in == "AdminComment":
            return f"AdminComment={note}"
        return f"Comment={self.comment.partition('|')[0]}|{note}"


def as_word(text: str) -> str:
    """The text as one word of a note: spaces become `_`, and what a note or scontrol gives a meaning is left out."""
    return "".join(c for c in "_".join(text.split()) if is_safe(c) and c not in ";=")


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
