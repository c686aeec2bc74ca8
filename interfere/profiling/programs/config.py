"""Which commands are measured, how, and under which names; run again, measuring goes on, and more commands may join."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError, NotFoundError
from interfere.profiling import affinity
from interfere.profiling.campaign_table import CampaignLabels
from interfere.profiling.measurer import MeasuringConfig, check_distinct_pairs, check_minimums
from interfere.profiling.programs.profiler import SOURCE, ProgramProfiler, RunConditions
from interfere.profiling.programs.spec import Command
from interfere.records import WorkloadGroup
from interfere.records.checks import check
from interfere.sharing_modes import set_sharing_mode

WINDOW_S = 5.0  # a hundred steps of 50 ms; the samples of CPU time (0.1 s apart) are good to 2 % of it
LIMIT_S = 300.0  # imports, downloads and compilation of a large model take minutes
GRACE_S = 10.0  # what container runtimes give between SIGTERM and SIGKILL
REPEATS, MAX_BLOCKS = 2, 4  # every one starts the command: fewer than where workers stay resident
START_GUESS_S = 2.0  # of one start, for the time left


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig(MeasuringConfig):
    """Programs that are not ours, each started anew for every measurement."""

    commands: tuple[Command, ...]
    max_blocks: int = MAX_BLOCKS
    device_type: str = CPU_CORE.name  # any other: nothing is pinned, the environment decides where commands run
    device_name: str = ""  # empty on a CPU core: the processor
    gpu_uuid: str = ""  # of the GPU to which the commands are pinned: sampled while each runs alone
    window_s: float = WINDOW_S
    repeats: int = REPEATS  # starts of each command alone
    limit_s: float = LIMIT_S
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) != len(names):
            raise InvalidInputError("a command is named twice", value=names, remedy="give each its own name")
        if unlisted := sorted({name for pair in self.pairs or () for name in pair} - set(names)):
            raise NotFoundError(
                f"no such command: {unlisted[0]}", value=", ".join(unlisted), remedy=f"one of {', '.join(names)}"
            )
        check_distinct_pairs(self.pairs or ())
        check_minimums(
            ("commands", len(names), 1),
            ("window_s", self.window_s, 0.5),
            ("repeats", self.repeats, 1),
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("limit_s", self.limit_s, 1.0),
            ("grace_s", self.grace_s, 0.0),
            ("seed", self.seed, 0),
        )
        check(set_sharing_mode(self))
        if self.on_core and not self.mode.properties.is_default:
            raise InvalidInputError(
                "one CPU core is shared in time slices only", value=self.mode, remedy="leave --mode out"
            )
        if self.core is not None and not self.on_core:
            raise InvalidInputError(
                f"commands on {self.device_type} are not pinned", value=f"core {self.core}", remedy="leave --core out"
            )

    @property
    def on_core(self) -> bool:
        """Whether the device is one CPU core, to which commands are pinned."""
        return self.device_type == CPU_CORE.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the commands."""
        return tuple(command.name for command in self.commands)

    @property
    def labels(self) -> CampaignLabels:
        """The columns that are equal in all rows."""
        return CampaignLabels(
            device_type=self.device_type,
            device_name=self.device_name or (affinity.processor_name() if self.on_core else ""),
            campaign=SOURCE,
            source=SOURCE,
            mode=self.mode,
        )

    @property
    def identity(self) -> dict[str, object]:
        """Nothing more: commands may join, and other windows measure the same."""
        return {}

    @property
    def job_records(self) -> dict[str, dict[str, Any]]:
        """The command of each name; of its environment the variables only, as values may be secrets."""
        return {
            command.name: {**asdict(command), "argv": list(command.argv), "env": sorted(key for key, _ in command.env)}
            for command in self.commands
        }

    @contextmanager
    def open_profiler(self, raw_folder: Path) -> Iterator[ProgramProfiler]:
        """Choose the core, and stay away from it until the context is left; commands are started when measured."""
        conditions = RunConditions(
            device_type=self.device_type,
            core=affinity.pick_core(self.core) if self.on_core else None,
            window_s=self.window_s,
            limit_s=self.limit_s,
            grace_s=self.grace_s,
            gpu_uuid=self.gpu_uuid,
        )
        with nullcontext() if conditions.core is None else affinity.avoid_cores(conditions.core):
            yield ProgramProfiler(
                raw_folder / "runs",
                conditions,
                {command.name: command for command in self.commands},
                solo_repeats=self.repeats,
            )

    def expected_start_s(self) -> float:
        """Nothing is started before it is measured."""
        return 0.0

    def expected_solo_s(self) -> float:
        """Seconds of one profile."""
        return self.repeats * (START_GUESS_S + self.window_s)

    def expected_block_s(self, members: WorkloadGroup) -> float:
        """Seconds of one block: two starts and three windows."""
        return len(members) * START_GUESS_S + 3 * self.window_s
