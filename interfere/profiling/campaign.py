"""Profiles workloads alone and then in pairs or larger groups into one table; killed and run again, it continues.

Laws: every block is on disk before the next one starts; the table is a pure function of the raw folder; the workers are
gone when the call returns, however it returns.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.profiling import affinity
from interfere.profiling.campaign_table import CampaignLabels, write_campaign_table
from interfere.profiling.design.campaign_config import CampaignConfig
from interfere.profiling.design.placement import choose_layout
from interfere.profiling.intervals import has_converged
from interfere.profiling.measurement_log import BlocksByGroup, MeasurementLog, lock_log
from interfere.profiling.quality_gates import WARN_STEAL
from interfere.profiling.schedule import (
    is_unstable,
    pending_blocks,
    remaining_blocks,
    slowdowns_per_side,
)
from interfere.profiling.worker_pool import WorkerPool
from interfere.profiling.workload_profiler import SOURCE, WorkloadProfiler, shared_window_s
from interfere.protocols import Profiler
from interfere.records import (
    BlockRequest,
    MeasuredBlock,
    WorkloadGroup,
)

WINDOWS_PER_BLOCK = 4
BLOCK_OVERHEAD_S = 0.15  # clock probes, last steps and collecting of traces; measured on the built-in workloads
START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports, once; building and facts, of each workload
WARN_EVERY_S = 30.0
REPEATS_BEFORE = 1.18  # 914 blocks of the shipped table for 771 accepted ones; weighs as ten blocks
COST_LEARNING_RATE = 0.1  # of the mean duration of a block, for the time left


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
        note=_summary(blocks_by_group),
    )


def _summary(blocks_by_group: BlocksByGroup) -> str:
    """One line about how the measuring went, for the card: of pairs, and of groups of each size."""
    blocks = [block for blocks in blocks_by_group.values() for block in blocks]
    rejected = sum(not block.accepted for block in blocks)
    sizes = sorted({len(members) for members in blocks_by_group})
    of_sizes = ", ".join(
        _wide_intervals(size, [blocks for members, blocks in blocks_by_group.items() if len(members) == size])
        for size in sizes
    )
    return (
        f"{len(blocks)} blocks measured, {rejected} of them refused by a gate and repeated; "
        f"an interval wider than ±3 % is left to {of_sizes}"
    )


def _wide_intervals(size: int, blocks_of_groups: Sequence[Sequence[MeasuredBlock]]) -> str:
    """How many groups of one size kept a wide interval, of how many, and how many accepted blocks these have."""
    counts = [sum(block.accepted for block in blocks) for blocks in blocks_of_groups]
    wide = sum(not has_converged(slowdowns_per_side(blocks)) for blocks in blocks_of_groups)
    name = "pairs" if size == 2 else f"groups of {size}"
    range_text = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"{wide} of {len(counts)} {name} ({range_text} block{'' if max(counts) == 1 else 's'} each)"
