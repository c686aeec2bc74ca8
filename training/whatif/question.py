"""The question of `interfere whatif`: its options, their defaults, and which values are refused."""

import math
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import InvalidInputError
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS
from interfere.sharing_modes import OptionalSharingMode
from interfere.sim.schedulers.names import MATCHING, canonical_name, name_with_seats, parse_name
from interfere.sim.truth import UNKNOWN_ALONE

QUEUES = ("fifo+easy", "qssf+easy", "sjf+easy", "tiresias+first-fit", "srtf+first-fit")
LOADS = (0.5, 0.65, 0.75, 0.85, 0.95)
CAPS = (1.25, 1.5)  # beside none
CHECKPOINT_S = 62.0  # the mean that Tiresias measured (Gu et al., NSDI 2019)
NODE_GPUS = 8
SUGGESTED_PAIRS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The options of the command, each as its help line says."""

    trace: Path
    table: Path | None = None  # one of table and model
    model: Path | None = None
    name_map: Path | None = None
    unknown: str = UNKNOWN_ALONE
    device_type: str = ""
    mode: OptionalSharingMode = ""
    gpus: int | None = None
    per_node: int = NODE_GPUS
    queues: tuple[str, ...] = QUEUES
    loads: tuple[float, ...] = LOADS
    caps: tuple[float, ...] = CAPS
    seats: tuple[int, ...] = ()  # jobs that may share a device, beside two
    draws: int = 0
    pairs: int = SUGGESTED_PAIRS
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.table is None) == (self.model is None):
            raise InvalidInputError(
                "slowdowns come from one source",
                value="no --table and no --model"
                if self.table is None
                else f"--table {self.table} --model {self.model}",
                remedy="give --table with measured pairs, or --model with a model folder (cpu and gpu are shipped)",
            )
        if self.model is not None and self.unknown != UNKNOWN_ALONE:
            raise InvalidInputError(
                "--unknown needs measured pairs", value=f"--unknown {self.unknown}", remedy="give --table, not --model"
            )
        if not self.queues:
            raise InvalidInputError("no queue to replay", value="none", remedy=f"for example {QUEUES[0]}")
        for name in self.queues:
            parsed = parse_name(name)
            if parsed.sharing or parsed.drop or parsed.is_policy or parsed.head == "slots":
                raise InvalidInputError(
                    "--queue names a queue without sharing and deadlines; it is replayed with sharing and without",
                    value=name,
                    remedy=f"for example {', '.join(QUEUES)}",
                )
        for load in self.loads:
            if not 0 < load < 1:
                raise InvalidInputError(
                    "--load lies between 0 and 1: beyond, gains grow with the length of the trace",
                    value=load,
                    remedy="for example 0.85",
                )
        for cap in self.caps:
            if not 1 < cap < math.inf:
                raise InvalidInputError("--cap is a slowdown above 1", value=cap, remedy="for example 1.25")
        self._check_seats()

    def _check_seats(self) -> None:
        """Raises InvalidInputError for seats that are always compared, are too many, or would change nothing."""
        for seats in self.seats:
            if not DEFAULT_SEATS < seats <= MAX_SEATS:
                raise InvalidInputError(
                    f"--seats lies between {DEFAULT_SEATS + 1} and {MAX_SEATS}: two jobs a device are always compared",
                    value=seats,
                    remedy="for example 3",
                )
        if self.seats and not any(name_with_seats(f"{queue}+{MATCHING}", 3) for queue in self.queue_names):
            raise InvalidInputError(
                "--seats would change nothing: it needs a queue that stops no job",
                value=", ".join(self.queues),
                remedy="leave it out, or give --queue fifo+easy, qssf+easy or sjf+easy",
            )

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues by their names in the registry, each once."""
        return tuple(dict.fromkeys(canonical_name(name) for name in self.queues))
