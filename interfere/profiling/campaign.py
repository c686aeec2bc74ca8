"""Profiles workloads alone and then in pairs or larger groups into one table; killed and run again, it continues.

Laws: every block is on disk before the next one starts; the table is a pure function of the raw folder; the workers are
gone when the call returns, however it returns.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.devices.possible_modes import CPU_MODES
from interfere.errors import InvalidInputError
from interfere.profiling import affinity, workloads
from interfere.profiling.campaign_table import CampaignLabels, write_campaign_table
from interfere.profiling.design.placement import choose_layout
from interfere.profiling.intervals import has_converged
from interfere.profiling.measurement_log import BlocksByGroup, MeasurementLog, lock_log
from interfere.profiling.quality_gates import WARN_STEAL
from interfere.profiling.schedule import (
    BlockSchedule,
    all_pairs,
    is_unstable,
    pending_blocks,
    remaining_blocks,
    slowdowns_per_side,
)
from interfere.profiling.worker_pool import WorkerPool
from interfere.profiling.workload_profiler import SOLO_S, SOURCE, WorkloadProfiler, shared_window_s
from interfere.protocols import Profiler
from interfere.records import (
    DEFAULT_MODE,
    BlockRequest,
    JobProfile,
    MeasuredBlock,
    WorkloadGroup,
    WorkloadPair,
    group_key,
)

BLOCK_S = 2.2  # four windows of 0.55 s
WINDOWS_PER_BLOCK = 4
BLOCK_OVERHEAD_S = 0.15  # clock probes, last steps and collecting of traces; measured on the built-in workloads
START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports, once; building and facts, of each workload
PASSES, MAX_BLOCKS = 2, 6
WARN_EVERY_S = 30.0
REPEATS_BEFORE = 1.18  # 914 blocks of the shipped table for 771 accepted ones; weighs as ten blocks
COST_LEARNING_RATE = 0.1  # of the mean duration of a block, for the time left


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignConfig:
    """What to measure, and where to put it."""

    out: Path
    workloads: tuple[str, ...]  # built-in names or module:factory
    passes: int = PASSES  # blocks of every pair
    block_s: float = BLOCK_S
    solo_s: float = SOLO_S  # of each workload alone
    max_blocks: int = MAX_BLOCKS  # of a pair whose interval stays wide; equal to `passes` for a quick run
    seed: int = 0
    core: int | None = None  # None: the idlest one
    pairs: tuple[WorkloadPair, ...] | None = None  # None: all with self pairs, in mode priority both ways; (): none
    groups: tuple[WorkloadGroup, ...] = ()  # of three jobs or more
    mode: str = DEFAULT_MODE  # how jobs share: interfere.profiling.design.placement
    campaign: str = "campaign"
    resume: bool = True
    profiles: tuple[JobProfile, ...] = ()  # known already: their workloads are not profiled again

    def __post_init__(self) -> None:
        workloads.check_names(self.workloads)
        known = set(self.workloads)
        if unlisted := sorted({name for members in (*(self.pairs or ()), *self.groups) for name in members} - known):
            raise InvalidInputError("a pair names a workload that is not listed", value=unlisted, remedy="add it")
        check_distinct_pairs(self.pairs or (), self.mode)
        if self.mode not in CPU_MODES:
            remedy = f"one of {', '.join(CPU_MODES)}"
            raise InvalidInputError("this mode is not measured on CPU cores", value=self.mode, remedy=remedy)
        if self.groups and self.mode != DEFAULT_MODE:
            raise InvalidInputError(
                f"groups of three and more are measured in mode {DEFAULT_MODE} alone",
                value=self.mode,
                remedy="measure pairs in this mode",
            )
        check_minimums(
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("block_s", self.block_s, 0.4),
            ("solo_s", self.solo_s, 0.4),
            ("seed", self.seed, 0),
            ("workloads", len(self.workloads), 1),
        )

    @property
    def schedule(self) -> BlockSchedule:
        """The pairs and groups, and how often each is measured."""
        pairs = all_pairs(self.workloads, self.mode) if self.pairs is None else self.pairs
        return BlockSchedule(
            groups=(*pairs, *self.groups),
            passes=self.passes,
            max_blocks=self.max_blocks,
            seed=self.seed,
            mode=self.mode,
        )

    @property
    def command(self) -> str:
        """The command line that measures the same again."""
        sizes = Counter(map(len, self.groups))
        options = [
            f"interfere profile campaign --device cpu --workloads {','.join(self.workloads)} --passes {self.passes}",
            f"--max-blocks {self.max_blocks} --seed {self.seed}",
            *([f"--mode {self.mode}"] if self.mode != DEFAULT_MODE else []),
            *([f"--block-s {self.block_s:g}"] if self.block_s != BLOCK_S else []),
            *(f"--groups {size} --group-count {count}" for size, count in sorted(sizes.items())),
        ]
        return " ".join(options)


def check_distinct_pairs(pairs: tuple[WorkloadPair, ...], mode: str = DEFAULT_MODE) -> None:
    """Raise InvalidInputError when a pair is listed twice; in whichever order, unless the first has priority."""
    if len({group_key(pair, mode) for pair in pairs}) != len(pairs):
        raise InvalidInputError("a pair is listed twice", value=pairs, remedy="list it once; its order does not matter")


def check_minimums(*settings: tuple[str, float, float]) -> None:
    """Raise InvalidInputError for the first (name, value, minimum) whose value is below its minimum or NaN."""
    for name, value, minimum in settings:
        if not value >= minimum:
            raise InvalidInputError(f"{name} is too small", value=value, remedy=f"at least {minimum}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignProgress:
    """How far a campaign is. `total` may grow while intervals are wide; `warning` is empty when all is well."""

    done: int
    total: int
    seconds_left: float
    text: str
    warning: str = ""


Report = Callable[[CampaignProgress], None]


def run_campaign(config: CampaignConfig, report: Report) -> Table:
    """Measure what is missing, write `jobs.parquet pairs.parquet raw.parquet card.md`, and return the table.

    Raises UnfitError (no affinity, folder not writable or in use, a workload that fails) and ConflictError (the folder
    holds another campaign). After an interruption the folder keeps every finished block, and the same call continues.
    """
    affinity.allowed_cores()  # refuses, before a folder is made, where nothing could ever be measured
    with lock_log(config.out / "raw") as log:
        log.bind_campaign(_identity(config), resume=config.resume)
        measurement = _Measurement(config, log, report)
        if not measurement.is_complete:
            measurement.run()
        return _write_table(config, measurement)


def _identity(config: CampaignConfig) -> dict[str, object]:
    """The settings that must stay the same for blocks to belong together."""
    return {
        "campaign": config.campaign,
        "workloads": list(config.workloads),
        "block_s": config.block_s,
        "seed": config.seed,
        "device_type": CPU_CORE.name,
        "device_name": affinity.processor_name(),
        "mode": config.mode,
    }


class _Measurement:
    """One call of a campaign: what the log holds so far, and the measuring of what is missing."""

    def __init__(self, config: CampaignConfig, log: MeasurementLog, report: Report) -> None:
        self.config, self.log, self.report = config, log, report
        self.schedule = config.schedule
        self.blocks_by_group: BlocksByGroup = log.blocks_by_group()
        self.profiles = {profile.workload: profile for profile in config.profiles} | log.profiles()
        self.unprofiled = [name for name in config.workloads if name not in self.profiles]
        self.done = sum(map(len, self.blocks_by_group.values())) + len(config.workloads) - len(self.unprofiled)
        self.cost_ratio = 1.0  # of the seconds that a block takes to those expected
        self.last_steal_warning_s = -WARN_EVERY_S

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.unprofiled and next(pending_blocks(self.schedule, self.blocks_by_group), None) is None

    def run(self) -> None:
        """Start the workers, profile the missing workloads, measure the missing blocks, end the workers."""
        config, layout = self.config, choose_layout(self.config.mode, self.config.core)
        core_text = " and ".join(map(str, layout.cores))
        self._report_progress(
            f"starting {len(config.workloads)} workloads on core {core_text}",
            start_s=START_S + BUILD_S * len(config.workloads),
        )
        with (
            WorkerPool(
                config.workloads, groups=self.schedule.groups, layout=layout, log=self.log.folder / "workers.log"
            ) as pool,
            affinity.avoid_cores(*layout.cores),
        ):
            profiler = WorkloadProfiler(
                pool,
                CPU_CORE.name,
                solo_s=config.solo_s,
                window_s=config.block_s / WINDOWS_PER_BLOCK,
                profiles=self.profiles,
            )
            self._profile_workloads(profiler, core_text)
            self._measure_groups(profiler, core_text)
        self._report_progress("measured")

    def _profile_workloads(self, profiler: Profiler, core: str) -> None:
        while self.unprofiled:
            name = self.unprofiled[0]
            self._report_progress(f"alone: {name}")
            solo = profiler.profile_solo(name)
            self.profiles[name] = solo.profile
            self.log.append_profile(solo.profile)
            self.unprofiled.pop(0)
            self.done += 1
            if solo.steal_frac > WARN_STEAL:
                warning = f"other programs took {solo.steal_frac:.0%} of core {core} beside {name}"
                self._report_progress(f"alone: {name}", warning)

    def _measure_groups(self, profiler: Profiler, core: str) -> None:
        for request in pending_blocks(self.schedule, self.blocks_by_group):
            self._report_progress(f"pass {request.pass_index + 1}: {_group_text(request)}")
            start_s = time.monotonic()
            block = profiler.measure_block(request)
            self.log.append_block(block)
            self.blocks_by_group.setdefault(block.key, []).append(block)
            self.done += 1
            cost_ratio = (time.monotonic() - start_s) / self._expected_block_s(request.members)
            self.cost_ratio += COST_LEARNING_RATE * (cost_ratio - self.cost_ratio)
            self._warn(request, block, core)

    def _warn(self, request: BlockRequest, block: MeasuredBlock, core: str) -> None:
        """Report an unstable pair always, and a disturbed block now and then."""
        pair_text = _group_text(request)
        pass_text = f"pass {request.pass_index + 1}"
        now_s = time.monotonic()
        if is_unstable(self.blocks_by_group[block.key], self.config.passes):
            self._report_progress(pass_text, f"{pair_text} is unstable: {block.reason}")
        elif block.steal_frac > WARN_STEAL and now_s - self.last_steal_warning_s > WARN_EVERY_S:
            self.last_steal_warning_s = now_s
            warning = f"other programs took {block.steal_frac:.0%} of core {core}, e.g. in {pair_text}"
            self._report_progress(pass_text, warning)

    def _report_progress(self, text: str, warning: str = "", *, start_s: float = 0.0) -> None:
        remaining = remaining_blocks(self.schedule, self.blocks_by_group)
        blocks_s = sum(count * self._expected_block_s(members) for members, count in remaining.items())
        blocks = sum(remaining.values())
        solo_s = self.config.solo_s + FACTS_S
        self.report(
            CampaignProgress(
                done=self.done,
                total=self.done + len(self.unprofiled) + blocks,
                seconds_left=start_s + len(self.unprofiled) * solo_s + blocks_s * self.cost_ratio * self._repeats,
                text=text,
                warning=warning,
            )
        )

    def _expected_block_s(self, members: WorkloadGroup) -> float:
        """Seconds of a block of this group, from the step times alone as far as they are known."""
        window_s = self.config.block_s / WINDOWS_PER_BLOCK
        step_time_s = max((self.profiles[name].step_time_s for name in members if name in self.profiles), default=0.0)
        size = len(members)
        return size * window_s + 2 * shared_window_s(size, window_s, step_time_s) + BLOCK_OVERHEAD_S * size / 2

    @property
    def _repeats(self) -> float:
        """Blocks measured for each that is accepted, so far; before any, as on the shipped table's machine."""
        blocks = [block for blocks in self.blocks_by_group.values() for block in blocks]
        return (len(blocks) + 10 * REPEATS_BEFORE) / (sum(block.accepted for block in blocks) + 10)


def _group_text(request: BlockRequest) -> str:
    first, *others = request.members
    return f"{first} beside {', '.join(others)}"


def _write_table(config: CampaignConfig, measurement: _Measurement) -> Table:
    """Write every pair and group that the folder holds, those of earlier calls included."""
    blocks_by_group = measurement.blocks_by_group
    order = {name: k for k, name in enumerate(config.workloads)}
    measured = sorted(
        blocks_by_group, key=lambda members: (len(members), sorted(order[name] for name in members), members)
    )
    return write_campaign_table(
        config.out,
        [measurement.profiles[name] for name in config.workloads],
        [blocks_by_group[members] for members in measured],
        CampaignLabels(
            device_type=CPU_CORE.name,
            device_name=affinity.processor_name(),
            campaign=config.campaign,
            source=SOURCE,
            mode=config.mode,
        ),
        passes=config.passes,
        command=config.command,
        note=_summary(config, blocks_by_group),
    )


def _summary(config: CampaignConfig, blocks_by_group: BlocksByGroup) -> str:
    """One line about how the measuring went, for the card."""
    blocks = [block for blocks in blocks_by_group.values() for block in blocks]
    rejected = sum(not block.accepted for block in blocks)
    wide = sum(not has_converged(slowdowns_per_side(blocks)) for blocks in blocks_by_group.values())
    return (
        f"{len(blocks)} blocks measured, {rejected} of them refused by a gate and repeated; "
        f"{wide} of {len(blocks_by_group)} pairs and groups ended after {config.max_blocks} blocks or fewer "
        "with an interval wider than ±3 %"
    )
