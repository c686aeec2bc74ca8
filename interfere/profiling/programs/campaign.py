"""Profiles commands alone and then in pairs into one table; run again, it continues, and more commands may join.

Laws: a command that cannot be measured is a failure with its reason and never stops the others; the table holds every
command and pair measured in its folder so far, and nothing of one that failed; a measured name is one command line.
"""

import json
import shlex
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.errors import ConflictError, InvalidInputError, NotFoundError, TableError, UnfitError
from interfere.file_writing import write_atomically
from interfere.profiling import affinity
from interfere.profiling.campaign import CampaignProgress, Report
from interfere.profiling.campaign_table import CampaignLabels, write_campaign_table
from interfere.profiling.design.campaign_config import check_distinct_pairs, check_minimums
from interfere.profiling.measurement_log import BlocksByGroup, MeasurementLog, lock_log
from interfere.profiling.programs.profiler import ProgramProfiler, RunConditions
from interfere.profiling.programs.run_analysis import SOURCE
from interfere.profiling.programs.spec import Command
from interfere.profiling.quality_gates import WARN_STEAL
from interfere.profiling.schedule import BlockSchedule, all_pairs, is_unstable, pending_blocks, remaining_blocks
from interfere.protocols import Profiler
from interfere.records import JobProfile, WorkloadPair
from interfere.records.checks import check
from interfere.sharing_modes import SharingMode, set_sharing_mode

WINDOW_S = 5.0  # a hundred steps of 50 ms; the samples of CPU time (0.1 s apart) are good to 2 % of it
LIMIT_S = 300.0  # imports, downloads and compilation of a large model take minutes
GRACE_S = 10.0  # what container runtimes give between SIGTERM and SIGKILL
REPEATS, PASSES, MAX_BLOCKS = 2, 2, 4  # every one starts the command: fewer than where workers stay resident
START_GUESS_S = 2.0  # of one start, for the time left, until one was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCampaignConfig:
    """What to measure, how, and where to put it."""

    out: Path
    commands: tuple[Command, ...]
    pairs: tuple[WorkloadPair, ...] | None = None  # None: all unordered pairs with self pairs; (): profiles only
    device_type: str = CPU_CORE.name  # any other: nothing is pinned, the environment decides where commands run
    mode: SharingMode = SharingMode.TIMESLICE
    device_name: str = ""  # empty on a CPU core: the processor
    core: int | None = None  # None: the idlest one
    gpu_uuid: str = ""  # of the GPU to which the commands are pinned: sampled while each runs alone
    window_s: float = WINDOW_S
    repeats: int = REPEATS  # starts of each command alone
    passes: int = PASSES  # blocks of every pair
    max_blocks: int = MAX_BLOCKS  # of a pair whose interval stays wide
    limit_s: float = LIMIT_S
    grace_s: float = GRACE_S
    seed: int = 0
    resume: bool = True

    def __post_init__(self) -> None:
        names = [command.name for command in self.commands]
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
    def full_device_name(self) -> str:
        """The device's own name: as configured, or the processor of a CPU core."""
        return self.device_name or (affinity.processor_name() if self.on_core else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailure:
    """A command that has no profile, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCampaignResult:
    """The table of the folder, and the commands of this call that are missing from it."""

    table: Table
    failures: tuple[CommandFailure, ...]


def run_program_campaign(config: ProgramCampaignConfig, report: Report) -> ProgramCampaignResult:
    """Measure what is missing, write `jobs.parquet pairs.parquet raw.parquet card.md`, and return the table.

    Raises UnfitError (no affinity, folder not writable or in use, no command at all could be measured) and
    ConflictError (the folder holds another kind of campaign, or a name stands for another command).
    """
    core = affinity.pick_core(config.core) if config.on_core else None
    with lock_log(config.out / "raw") as log:
        log.bind_campaign(_identity(config), resume=config.resume)
        measurement = _Measurement(config, log, core, report)
        for command in config.commands:
            measurement.registry.check(command)
        with nullcontext() if core is None else affinity.avoid_cores(core):
            measurement.profile_commands()
            measurement.measure_pairs()
        if not measurement.profiles:
            raise measurement.errors[0]
        table = _write_table(config, measurement)
        return ProgramCampaignResult(table=table, failures=tuple(measurement.failures))


def _identity(config: ProgramCampaignConfig) -> dict[str, object]:
    """The settings that must stay the same for measurements to belong together."""
    return {
        "campaign": SOURCE,
        "device_type": config.device_type,
        "mode": config.mode,
        "device_name": config.full_device_name,
    }


class _CommandRegistry:
    """The command line of every measured name, in one file. A command that failed is not in it and may be corrected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.records: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise TableError(
                f"{path.name} is not a file that the profiler wrote",
                value=f"{path}: {error}",
                remedy="delete it; commands are then known by their names alone",
            ) from None

    def check(self, command: Command) -> None:
        """Raise ConflictError when the name was measured as another command."""
        record = _command_record(command)
        known = self.records.get(command.name, record)
        if changed := [field for field, value in record.items() if known.get(field) != value]:
            raise ConflictError(
                f"the name {command.name} stands for another command in this folder: its {', '.join(changed)} differs",
                value=f"{self.path.parent.parent}: {shlex.join(known['argv'])}",
                remedy="choose another name or folder (--name, --out)",
            )

    def add(self, command: Command) -> None:
        """Record that the name stands for this command."""
        self.records[command.name] = _command_record(command)
        text = json.dumps(self.records, indent=2) + "\n"
        write_atomically(self.path, lambda temporary: Path(temporary).write_text(text))


def _command_record(command: Command) -> dict[str, Any]:
    """The command as the registry keeps it: of the environment the names only, as values may be secrets."""
    return {**asdict(command), "argv": list(command.argv), "env": sorted(name for name, _ in command.env)}


class _Measurement:
    """One call of a campaign: what the log holds so far, the measuring of what is missing, and what failed."""

    def __init__(self, config: ProgramCampaignConfig, log: MeasurementLog, core: int | None, report: Report) -> None:
        self.config, self.log, self.report = config, log, report
        self.registry, self.profiles = _CommandRegistry(log.folder / "commands.json"), log.profiles()
        self.blocks_by_group: BlocksByGroup = log.blocks_by_group()
        self.unprofiled = [command for command in config.commands if command.name not in self.profiles]
        self.failures: list[CommandFailure] = []
        self.errors: list[UnfitError] = []
        self.done = 0
        self.start_and_window_s = config.window_s + START_GUESS_S  # of a command alone; learnt below
        conditions = RunConditions(
            device_type=config.device_type,
            core=core,
            window_s=config.window_s,
            limit_s=config.limit_s,
            grace_s=config.grace_s,
            gpu_uuid=config.gpu_uuid,
        )
        self.profiler: Profiler = ProgramProfiler(
            log.folder / "runs",
            conditions,
            {command.name: command for command in config.commands},
            solo_repeats=config.repeats,
        )

    def profile_commands(self) -> None:
        """Profile the commands that have no profile yet."""
        while self.unprofiled:
            command = self.unprofiled[0]
            text = f"alone: {command.name}"
            self._report_progress(text)
            start_s = time.monotonic()
            try:
                solo = self.profiler.profile_solo(command.name)
            except UnfitError as error:
                self.errors.append(error)
                self.failures.append(CommandFailure(name=command.name, reason=f"{error.what}: {error.value}"))
                self.unprofiled.pop(0)
                self._report_progress(text, str(error))
                continue
            self.profiles[command.name] = solo.profile
            self.registry.add(command)
            self.log.append_profile(solo.profile)
            self.unprofiled.pop(0)
            self.done += 1
            self.start_and_window_s = (time.monotonic() - start_s) / self.config.repeats
            if solo.steal_frac > WARN_STEAL:
                warning = f"other programs took {solo.steal_frac:.0%} of the core beside {command.name}"
                self._report_progress(text, warning)

    def measure_pairs(self) -> None:
        """Measure the missing blocks of pairs whose commands both have a profile."""
        for request in pending_blocks(self._schedule, self.blocks_by_group):
            pair_text, pass_text = f"{request.members[0]} beside {request.members[1]}", f"pass {request.pass_index + 1}"
            self._report_progress(f"{pass_text}: {pair_text}")
            block = self.profiler.measure_block(request)
            self.log.append_block(block)
            self.blocks_by_group.setdefault(block.key, []).append(block)
            self.done += 1
            if not block.accepted:
                unstable = is_unstable(self.blocks_by_group[block.key], self.config.passes)
                consequence = "is unstable" if unstable else "is measured again"
                self._report_progress(pass_text, f"{pair_text} {consequence}: {block.reason}")
        self._report_progress("measured")

    @property
    def _schedule(self) -> BlockSchedule:
        config = self.config
        names = [command.name for command in config.commands if command.name in self.profiles]
        pairs = all_pairs(names) if config.pairs is None else config.pairs
        pairs = tuple(pair for pair in pairs if set(pair) <= set(names))
        return BlockSchedule(groups=pairs, passes=config.passes, max_blocks=config.max_blocks, seed=config.seed)

    def _report_progress(self, text: str, warning: str = "") -> None:
        profiles = len(self.unprofiled)
        blocks = sum(remaining_blocks(self._schedule, self.blocks_by_group).values())
        solo_s = self.config.repeats * self.start_and_window_s
        block_s = 2 * self.start_and_window_s + self.config.window_s  # two starts and three windows
        self.report(
            CampaignProgress(
                done=self.done,
                total=self.done + profiles + blocks,
                seconds_left=profiles * solo_s + blocks * block_s,
                text=text,
                warning=warning,
            )
        )


def _write_table(config: ProgramCampaignConfig, measurement: _Measurement) -> Table:
    jobs: tuple[JobProfile, ...] = tuple(measurement.profiles.values())
    blocks_of_pairs = list(measurement.blocks_by_group.values())
    blocks = [block for blocks in blocks_of_pairs for block in blocks]
    rejected = sum(not block.accepted for block in blocks)
    labels = CampaignLabels(
        device_type=config.device_type,
        device_name=config.full_device_name,
        campaign=SOURCE,
        source=SOURCE,
        mode=config.mode,
    )
    note = f"{len(blocks)} blocks measured, {rejected} of them refused by a gate and repeated"
    return write_campaign_table(config.out, jobs, blocks_of_pairs, labels, passes=config.passes, note=note)
