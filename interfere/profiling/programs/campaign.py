"""Commands alone, then in pairs, into one table; killed and run again, it goes on, and more commands may join later.

Laws: a command that cannot be measured is a failure with its reason and never stops the others; the table holds every
command and pair measured in its folder so far, and nothing of one that failed; a measured name is one command line.
"""

import json
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data.dataset_card import write_card
from interfere.data.parquet import write_atomically, write_rows
from interfere.data.schema import raw_schema
from interfere.data.tables import Table, read_table, write_table
from interfere.devices import CPU_CORE
from interfere.errors import ConflictError, InvalidInputError, NotFoundError, TableError, UnfitError
from interfere.profiling import affinity
from interfere.profiling.campaign import CampaignProgress, raw_rows
from interfere.profiling.pairs import Pair, Plan, all_pairs, blocks_left, is_unstable, rows, todo
from interfere.profiling.programs.bench import Bench, Conditions
from interfere.profiling.programs.reading import SOURCE
from interfere.profiling.programs.spec import Command
from interfere.profiling.protocol import WARN_STEAL
from interfere.profiling.raw import Block, RawLog, locked
from interfere.records import JobProfile
from interfere.records.checks import check, mode_violations

WINDOW_S = 5.0  # a hundred steps of 50 ms; the samples of CPU time (0.1 s apart) are good to 2 % of it
LIMIT_S = 300.0  # imports, downloads and compilation of a large model take minutes
GRACE_S = 10.0  # what container runtimes give between SIGTERM and SIGKILL
REPEATS, PASSES, MAX_BLOCKS = 2, 2, 4  # every one is a start of the command: fewer than where workers are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """What to measure, how, and where to put it."""

    out: Path
    commands: tuple[Command, ...]
    pairs: tuple[Pair, ...] | None = None  # None: all unordered pairs with self pairs; (): profiles only
    device_type: str = CPU_CORE.name  # any other: nothing is pinned, the environment decides where commands run
    mode: str = "timeslice"
    device_name: str = ""  # empty on a CPU core: the processor
    core: int | None = None  # None: the idlest one
    window_s: float = WINDOW_S
    repeats: int = REPEATS  # starts of each command alone
    passes: int = PASSES  # blocks of every pair
    max_blocks: int = MAX_BLOCKS  # at most so many while the interval is wide
    limit_s: float = LIMIT_S
    grace_s: float = GRACE_S
    seed: int = 0
    resume: bool = True

    def __post_init__(self) -> None:
        names = [command.name for command in self.commands]
        if len(set(names)) != len(names):
            raise InvalidInputError("a command is named twice", value=names, remedy="one name, one command")
        if stray := sorted({name for pair in self.pairs or () for name in pair} - set(names)):
            raise NotFoundError(
                f"no such command: {stray[0]}", value=", ".join(stray), remedy=f"one of {', '.join(names)}"
            )
        keys = [frozenset(pair) for pair in self.pairs or ()]
        if len(set(keys)) != len(keys):
            raise InvalidInputError("a pair is listed twice", value=self.pairs, remedy="order does not matter: once")
        for name, value, low in (
            ("commands", len(names), 1),
            ("window_s", self.window_s, 0.5),
            ("repeats", self.repeats, 1),
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("limit_s", self.limit_s, 1.0),
            ("grace_s", self.grace_s, 0.0),
            ("seed", self.seed, 0),
        ):
            if not value >= low:
                raise InvalidInputError(f"{name} is too small", value=value, remedy=f"at least {low}")
        check(mode_violations(self.mode))
        if self.on_core and self.mode != "timeslice":
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
    def machine(self) -> str:
        """The very device."""
        return self.device_name or (affinity.processor_name() if self.on_core else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A command that has no profile, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The table of the folder and what is missing from it."""

    table: Table
    failures: tuple[Failure, ...]


Report = Callable[[CampaignProgress], None]


def run_commands(config: CommandConfig, report: Report) -> Outcome:
    """Measure what is missing, write `jobs.parquet pairs.parquet raw.parquet card.md`, return what there is.

    Raises UnfitError (no affinity, folder not writable or in use, no command at all could be measured) and
    ConflictError (the folder holds another kind of campaign, or a name stands for another command).
    """
    core = affinity.pick_core(config.core) if config.on_core else None
    with locked(config.out / "raw") as raw:
        raw.bind(_identity(config), resume=config.resume)
        session = _Session(config, raw, core, report)
        for command in config.commands:
            session.names.check(command)
        with nullcontext() if core is None else affinity.away_from(core):
            session.alone()
            session.together()
        if not session.solos:
            raise session.errors[0]
        table = _write(config, session)
        return Outcome(table=table, failures=tuple(session.failures))


def _identity(config: CommandConfig) -> dict[str, object]:
    """What must stay the same for measurements to belong together."""
    return {
        "campaign": SOURCE,
        "device_type": config.device_type,
        "mode": config.mode,
        "device_name": config.machine,
    }


class _Names:
    """Which command line every measured name stands for, in one file. A command that failed may be corrected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise TableError(
                f"{path.name} is not ours", value=f"{path}: {error}", remedy="delete it; commands are told by name then"
            ) from None

    def check(self, command: Command) -> None:
        """Raises ConflictError when the name was measured as another command."""
        kept = self.known.get(command.name, _facts(command))
        if differs := [field for field, value in _facts(command).items() if kept.get(field) != value]:
            raise ConflictError(
                f"the name {command.name} stands for another command in this folder: its {', '.join(differs)} differs",
                value=f"{self.path.parent.parent}: {shlex.join(kept['argv'])}",
                remedy="choose another name or folder (--name, --out)",
            )

    def keep(self, command: Command) -> None:
        """From now on."""
        self.known[command.name] = _facts(command)
        text = json.dumps(self.known, indent=2) + "\n"
        write_atomically(self.path, lambda temporary: Path(temporary).write_text(text))


def _facts(command: Command) -> dict[str, Any]:
    """As kept: of the environment its names only, as values may be secrets."""
    return {**asdict(command), "argv": list(command.argv), "env": sorted(name for name, _ in command.env)}


class _Session:
    """One call: what is measured so far, and what went wrong."""

    def __init__(self, config: CommandConfig, raw: RawLog, core: int | None, report: Report) -> None:
        self.config, self.raw, self.report = config, raw, report
        self.names, self.solos = _Names(raw.folder / "commands.json"), raw.solos()
        self.blocks: dict[frozenset[str], list[Block]] = {}
        for block in raw.blocks():
            self.blocks.setdefault(block.key, []).append(block)
        self.failures: list[Failure] = []
        self.errors: list[UnfitError] = []
        self.done, self.start_s = 0, config.window_s + 2.0  # of one start and its window; learnt below
        self.bench = Bench(
            raw.folder / "runs",
            Conditions(
                device_type=config.device_type,
                core=core,
                window_s=config.window_s,
                limit_s=config.limit_s,
                grace_s=config.grace_s,
            ),
        )

    def alone(self) -> None:
        """The profiles that are missing."""
        missing = [command for command in self.config.commands if command.name not in self.solos]
        for index, command in enumerate(missing):
            self._tell(f"alone: {command.name}", solos_left=len(missing) - index)
            begin = time.monotonic()
            try:
                self.solos[command.name], steal = self.bench.solo(command, self.config.repeats)
            except UnfitError as error:
                self.errors.append(error)
                self.failures.append(Failure(name=command.name, reason=f"{error.what}: {error.value}"))
                self._tell(f"alone: {command.name}", str(error), solos_left=len(missing) - index - 1)
                continue
            self.names.keep(command)
            self.raw.append_solo(self.solos[command.name])
            self.done += 1
            self.start_s = (time.monotonic() - begin) / self.config.repeats
            if steal > WARN_STEAL:
                said = f"other programs took {steal:.0%} of the core beside {command.name}"
                self._tell(f"alone: {command.name}", said, solos_left=len(missing) - index - 1)

    def together(self) -> None:
        """The blocks that are missing of pairs whose commands both have a profile."""
        by_name = {command.name: command for command in self.config.commands}
        for pair, pass_index, attempt in todo(self._plan, self.blocks):
            names = f"{pair[0]} beside {pair[1]}"
            self._tell(f"pass {pass_index + 1}: {names}")
            commands = (by_name[pair[0]], by_name[pair[1]])
            block = self.bench.block(commands, pass_index=pass_index, attempt=attempt)
            self.raw.append_block(block)
            self.blocks.setdefault(block.key, []).append(block)
            self.done += 1
            if block.reason:
                lost = is_unstable(self.blocks[block.key], self.config.passes)
                end = "is unstable" if lost else "is measured again"
                self._tell(f"pass {pass_index + 1}", f"{names} {end}: {block.reason}")
        self._tell("measured")

    @property
    def _plan(self) -> Plan:
        names = [command.name for command in self.config.commands if command.name in self.solos]
        pairs = all_pairs(names) if self.config.pairs is None else self.config.pairs
        pairs = tuple(pair for pair in pairs if set(pair) <= set(names))
        return Plan(pairs=pairs, passes=self.config.passes, max_blocks=self.config.max_blocks, seed=self.config.seed)

    def _tell(self, text: str, warning: str = "", *, solos_left: int = 0) -> None:
        blocks = blocks_left(self._plan, self.blocks)
        self.report(
            CampaignProgress(
                done=self.done,
                total=self.done + solos_left + blocks,
                # A block is two starts and three windows.
                seconds_left=solos_left * self.config.repeats * self.start_s
                + blocks * (2 * self.start_s + self.config.window_s),
                text=text,
                warning=warning,
            )
        )


def _write(config: CommandConfig, session: _Session) -> Table:
    jobs: tuple[JobProfile, ...] = tuple(session.solos.values())
    measured = list(session.blocks.values())
    pairs = tuple(
        row
        for blocks in measured
        for row in rows(
            blocks,
            passes=config.passes,
            device_type=config.device_type,
            device_name=config.machine,
            campaign=SOURCE,
            source=SOURCE,
            mode=config.mode,
        )
    )
    write_table(config.out, Table(name=config.out.name, jobs=jobs, pairs=pairs))
    write_rows(config.out / "raw.parquet", raw_rows(measured), raw_schema())
    table = read_table(config.out)
    refused = sum(bool(block.reason) for blocks in measured for block in blocks)
    note = f"{sum(map(len, measured))} blocks measured, {refused} of them refused by a gate and repeated"
    write_card(config.out, table, note=note)
    return table
