"""Measures jobs alone and then together into one table; killed and run again, it continues.

Resident workloads and commands are measured alike. A `MeasuringConfig` says which jobs and groups there are, and opens
the `Profiler` through which a job is started, watched and stopped.

Laws: every profile and block is on disk before the next one starts; the table is a pure function of the raw folder, and
is written whatever was disturbed; a job that cannot be measured is a failure with its reason and never stops the
others; all processes are gone when the call returns, however it returns.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError, NotFoundError, UnfitError, remedy_for_name
from interfere.profiling import affinity
from interfere.profiling.campaign_table import CampaignLabels, write_campaign_table
from interfere.profiling.measurement_log import BlocksByGroup, MeasurementLog, lock_log
from interfere.profiling.schedule import (
    BlockSchedule,
    all_pairs,
    estimates_per_side,
    has_converged,
    is_unstable,
    pending_blocks,
    remaining_blocks,
)
from interfere.protocols import Profiler
from interfere.records import (
    JobProfile,
    MeasuredBlock,
    WorkloadGroup,
    WorkloadPair,
    group_key,
)
from interfere.records.checks import check
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, set_sharing_mode

PROTOCOL = "slices"  # how a block is measured: blocks of another protocol are not continued
MIN_DISTURBANCE = 0.03  # share of the core that third processes took; smaller shares are not reported
COST_LEARNING_RATE = 0.2  # of the ratio of actual to expected seconds, for the time left


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringConfig(ABC):
    """Which groups are measured, how often, and into which folder. Subclasses state how a job is run."""

    out: Path
    pairs: tuple[WorkloadPair, ...] | None = None  # None: all with self pairs, in mode priority both ways; (): none
    groups: tuple[WorkloadGroup, ...] = ()  # of three jobs or more
    mode: SharingMode = DEFAULT_MODE
    passes: int = 2  # blocks of every group
    max_blocks: int = 6  # of a group whose interval stays wide; equal to `passes` for a quick run
    rounds: int = 1  # campaigns, each of `passes` blocks of every group, and each in new processes
    seed: int = 0
    core: int | None = None  # None: the idlest one
    resume: bool = True
    profiles: tuple[JobProfile, ...] = ()  # known already: their jobs are not profiled again
    device_type: str = CPU_CORE.name

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the jobs to measure."""

    @property
    def on_core(self) -> bool:
        """Whether the device is one CPU core, to which jobs are pinned."""
        return self.device_type == CPU_CORE.name

    @property
    @abstractmethod
    def labels(self) -> CampaignLabels:
        """The columns that have the same value in all rows of the table."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, object]:
        """Further settings that must stay the same for measurements to belong together."""

    @property
    def command(self) -> str:
        """The command line that measures the same again; empty where there is none."""
        return ""

    @property
    def job_records(self) -> dict[str, dict[str, Any]]:
        """The definition of the job behind each name, which must not change within a folder.

        Empty where the names define the jobs themselves.
        """
        return {}

    @abstractmethod
    def open_profiler(self, raw_folder: Path) -> AbstractContextManager[Profiler]:
        """Return a context in which the jobs are ready to run; leaving the context ends all their processes."""

    @abstractmethod
    def expected_start_s(self) -> float:
        """Return the expected seconds for opening the profiler."""

    @abstractmethod
    def expected_solo_s(self) -> float:
        """Return the expected seconds for profiling a job alone."""

    @abstractmethod
    def expected_block_s(self, members: WorkloadGroup) -> float:
        """Return the expected seconds for measuring a block of a group."""

    def schedule(self, names: Sequence[str], rounds: int) -> BlockSchedule:
        """Return the groups of these jobs, and how often each group is measured in the first `rounds` rounds."""
        pairs = all_pairs(names, self.mode) if self.pairs is None else self.pairs
        groups = tuple(members for members in (*pairs, *self.groups) if set(members) <= set(names))
        return BlockSchedule(
            groups=groups,
            passes=self.passes * rounds,
            max_blocks=self.max_blocks * rounds,
            seed=self.seed,
            mode=self.mode,
        )

    def check_settings(self, **least: float) -> None:
        """Raise InvalidInputError for a setting with which nothing can be measured, NotFoundError for an unknown job.

        `least` holds the smallest values of the settings of a subclass. In a mode that orders jobs a pair may be listed
        both ways.
        """
        check(set_sharing_mode(self))
        names, pairs = self.names, self.pairs or ()
        if not names or len(set(names)) != len(names):
            problem = "a job is named twice" if names else "no job is named"
            raise InvalidInputError(problem, value=", ".join(names), remedy="give each its own name")
        if unlisted := sorted({name for members in (*pairs, *self.groups) for name in members} - set(names)):
            remedy = remedy_for_name(unlisted[0], names)
            raise NotFoundError("a pair or group names a job that is not listed", value=unlisted[0], remedy=remedy)
        if len({group_key(pair, self.mode) for pair in pairs}) != len(pairs):
            raise InvalidInputError("a pair is listed twice", value=pairs, remedy="list it once, in any order")
        least = {"passes": 1, "max_blocks": self.passes, "rounds": 1, "seed": 0, **least}
        for name, minimum in least.items():
            if not getattr(self, name) >= minimum:  # or NaN
                problem, remedy = f"{name} is too small", f"at least {minimum}"
                raise InvalidInputError(problem, value=getattr(self, name), remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringProgress:
    """The progress of a measurement. `total` may grow while intervals are wide; `warning` is empty if all is well."""

    done: int
    total: int
    seconds_left: float
    text: str
    warning: str = ""


Report = Callable[[MeasuringProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job that has no profile, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """The measured table, the jobs that could not be measured, and all blocks with their disturbance."""

    table: Table
    failures: tuple[JobFailure, ...]
    blocks: tuple[MeasuredBlock, ...]


def measure(config: MeasuringConfig, report: Report) -> MeasuredTable:
    """Measure what is missing, write `jobs.parquet pairs.parquet raw.parquet card.md`, and return the table.

    Raises UnfitError (no affinity, folder not writable or in use, no job at all could be measured) and ConflictError
    (the folder holds other measurements). After an interruption the folder keeps every finished block, and the same
    call continues.
    """
    if config.on_core:  # refuse, before a folder is made, where nothing could ever be measured
        _ = affinity.allowed_cores() if config.core is None else affinity.pick_core(config.core)
    with lock_log(config.out / "raw") as log:
        log.bind_campaign(
            {
                "campaign": config.labels.campaign,
                "device_type": config.labels.device_type,
                "device_name": config.labels.device_name,
                "mode": config.mode,
                "protocol": PROTOCOL,
                **config.identity,
            },
            resume=config.resume,
        )
        log.check_jobs(config.job_records)
        measurement = _Measurement(config, log, report)
        failures = measurement.run()
        table = _write_table(config, measurement)
        blocks = tuple(block for blocks in measurement.blocks_by_group.values() for block in blocks)
        return MeasuredTable(table=table, failures=tuple(failures), blocks=blocks)


class _Measurement:
    """The state of one measurement: the blocks in the log so far, and the jobs that have no profile yet."""

    def __init__(self, config: MeasuringConfig, log: MeasurementLog, report: Report) -> None:
        self.config, self.log, self.report = config, log, report
        self.blocks_by_group: BlocksByGroup = log.blocks_by_group()
        self.profiles = {profile.workload: profile for profile in config.profiles} | log.profiles()
        self.unprofiled = [name for name in config.names if name not in self.profiles]
        self.done = len(log.blocks()) + len(config.names) - len(self.unprofiled)
        self.cost_ratio = 1.0  # of the seconds that a measurement takes to those expected
        self.was_warned = False  # of other programs

    def schedule(self, rounds: int) -> BlockSchedule:
        """Return what to measure together in the first `rounds` rounds: groups of jobs with a profile, or whose
        profiling may still succeed."""
        names = [name for name in self.config.names if name in self.profiles or name in self.unprofiled]
        return self.config.schedule(names, rounds)

    def run(self) -> list[JobFailure]:
        """Open the profiler for each round that lacks something, profile the missing jobs, and measure the missing
        blocks. Return the jobs that failed."""
        failures: list[JobFailure] = []
        for rounds in range(1, self.config.rounds + 1):
            pending = pending_blocks(self.schedule(rounds), self.blocks_by_group)
            if not self.unprofiled and next(pending, None) is None:
                continue
            self._report_progress(f"starting {len(self.config.names)} jobs", start_s=self.config.expected_start_s())
            with self.config.open_profiler(self.log.folder) as profiler:
                failures += self._profile_jobs(profiler)
                self._measure_groups(profiler, rounds)
            self._report_progress("measured")
        return failures

    def _profile_jobs(self, profiler: Profiler) -> list[JobFailure]:
        failures: list[JobFailure] = []
        errors: list[UnfitError] = []
        while self.unprofiled:
            name, start_s = self.unprofiled[0], time.monotonic()
            text = f"alone: {name}"
            self._report_progress(text)
            try:
                solo = profiler.profile_solo(name)
            except UnfitError as error:
                self.unprofiled.pop(0)
                errors.append(error)
                failures.append(JobFailure(name=name, reason=f"{error.what}: {error.value}"))
                self._report_progress(text, str(error))
                continue
            self.unprofiled.pop(0)
            self.profiles[name] = solo.profile
            self.log.record_job(name, self.config.job_records.get(name, {}))
            self.log.append_profile(solo.profile)
            self.done += 1
            self._learn_cost(time.monotonic() - start_s, self.config.expected_solo_s())
            self._warn_of_others(text, solo.steal_frac, name)
        if not self.profiles:
            raise errors[0]
        return failures

    def _measure_groups(self, profiler: Profiler, rounds: int) -> None:
        for request in pending_blocks(self.schedule(rounds), self.blocks_by_group):
            start_s, pass_text = time.monotonic(), f"pass {request.pass_index + 1}"
            group_text = f"{request.members[0]} beside {', '.join(request.members[1:])}"
            self._report_progress(f"{pass_text}: {group_text}")
            block = profiler.measure_block(request)
            self.log.append_block(block)
            blocks = self.blocks_by_group.setdefault(block.key, [])
            blocks.append(block)
            self.done += 1
            self._learn_cost(time.monotonic() - start_s, self.config.expected_block_s(request.members))
            if not block.accepted:
                consequence = "could not be measured" if is_unstable(blocks) else "is measured again"
                self._report_progress(pass_text, f"{group_text} {consequence}: {block.reason}")
            self._warn_of_others(pass_text, block.steal_frac, group_text)

    def _learn_cost(self, actual_s: float, expected_s: float) -> None:
        self.cost_ratio += COST_LEARNING_RATE * (actual_s / expected_s - self.cost_ratio)

    def _warn_of_others(self, text: str, steal_frac: float, where: str) -> None:
        """Warn once of other programs, at the first measurement that they disturbed."""
        if self.was_warned or not steal_frac > MIN_DISTURBANCE:
            return
        self.was_warned = True
        busiest = ", ".join(affinity.busiest_foreign_processes())
        remedy = f"To narrow them close {busiest}" if busiest else "No busy program is visible: another container?"
        warning = (
            f"other programs took {steal_frac:.0%} of the core beside {where}; it is subtracted, and intervals get "
            f"wider. {remedy}"
        )
        self._report_progress(text, warning)

    def _report_progress(self, text: str, warning: str = "", *, start_s: float = 0.0) -> None:
        remaining = remaining_blocks(self.schedule(self.config.rounds), self.blocks_by_group)
        blocks_s = sum(count * self.config.expected_block_s(members) for members, count in remaining.items())
        solo_s = len(self.unprofiled) * self.config.expected_solo_s()
        self.report(
            MeasuringProgress(
                done=self.done,
                total=self.done + len(self.unprofiled) + sum(remaining.values()),
                seconds_left=start_s + (solo_s + blocks_s) * self.cost_ratio,
                text=text,
                warning=warning,
            )
        )


def _write_table(config: MeasuringConfig, measurement: _Measurement) -> Table:
    """Write every pair and group in the folder into the table, whichever call measured them."""
    blocks_by_group = measurement.blocks_by_group
    order = {name: k for k, name in enumerate(measurement.profiles)}
    measured = sorted(
        blocks_by_group, key=lambda members: (len(members), sorted(order[name] for name in members), members)
    )
    return write_campaign_table(
        config.out,
        list(measurement.profiles.values()),
        [blocks_by_group[members] for members in measured],
        config.labels,
        passes_of_campaign=config.passes if config.rounds > 1 else 0,
        command=config.command,
        note=_summary(blocks_by_group),
    )


def _summary(blocks_by_group: BlocksByGroup) -> str:
    """Return a sentence on the course of the measurement, for the card."""
    blocks = [block for blocks in blocks_by_group.values() for block in blocks]
    if not blocks:
        return ""
    sides = [side for block in blocks for side in block.sides]
    slices = sum(len(side.slices) for side in sides)
    dropped = slices - sum(side.slices_counted for side in sides)
    disturbed = sum(block.steal_frac > MIN_DISTURBANCE for block in blocks)
    sizes = Counter(map(len, blocks_by_group))
    wide = Counter(
        len(members) for members, blocks in blocks_by_group.items() if not has_converged(estimates_per_side(blocks))
    )
    of_sizes = ", ".join(
        f"{wide[size]} of {count} {'pairs' if size == 2 else f'groups of {size}'}"
        for size, count in sorted(sizes.items())
    )
    return (
        f"{len(blocks)} blocks measured, {sum(not block.accepted for block in blocks)} of them refused and repeated; "
        f"{dropped / max(1, slices):.0%} of {slices} slices were disturbed and dropped; other programs took over "
        f"{MIN_DISTURBANCE:.0%} of the core in {disturbed} blocks; an interval wider than ±3 % is left to {of_sizes}"
    )
