"""Profiles workloads alone and then their pairs into one table; a campaign that was killed continues when run again.

Laws: every block is on disk before the next one starts; the table is a pure function of the raw folder; the workers are
gone when the call returns, however it returns.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError
from interfere.profiling import affinity, workloads
from interfere.profiling.campaign_table import CampaignLabels, write_campaign_table
from interfere.profiling.intervals import has_converged
from interfere.profiling.measurement_log import BlocksByPair, MeasurementLog, lock_log
from interfere.profiling.quality_gates import WARN_STEAL
from interfere.profiling.schedule import (
    PairSchedule,
    all_pairs,
    is_unstable,
    pending_blocks,
    remaining_blocks,
    slowdowns_per_side,
)
from interfere.profiling.worker_pool import WorkerPool
from interfere.profiling.workload_profiler import SOLO_S, SOURCE, WorkloadProfiler
from interfere.protocols import Profiler
from interfere.records import BlockRequest, JobProfile, PairBlock, WorkloadPair

BLOCK_S = 2.2  # four windows of 0.55 s
WINDOWS_PER_BLOCK = 4
BLOCK_OVERHEAD_S = 0.15  # clock probes, last steps and collecting of traces; measured on the built-in workloads
START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports, once; building and facts, of each workload
PASSES, MAX_BLOCKS = 2, 6
WARN_EVERY_S = 30.0
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
    pairs: tuple[WorkloadPair, ...] | None = None  # None: all unordered pairs with self pairs; (): profiles only
    campaign: str = "campaign"
    resume: bool = True
    profiles: tuple[JobProfile, ...] = ()  # known already: their workloads are not profiled again

    def __post_init__(self) -> None:
        workloads.check_names(self.workloads)
        known = set(self.workloads)
        if unlisted := sorted({name for pair in self.pairs or () for name in pair} - known):
            raise InvalidInputError("a pair names a workload that is not listed", value=unlisted, remedy="add it")
        check_distinct_pairs(self.pairs or ())
        check_minimums(
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("block_s", self.block_s, 0.4),
            ("solo_s", self.solo_s, 0.4),
            ("seed", self.seed, 0),
            ("workloads", len(self.workloads), 1),
        )

    @property
    def schedule(self) -> PairSchedule:
        """The pairs, and how often each is measured."""
        pairs = all_pairs(self.workloads) if self.pairs is None else self.pairs
        return PairSchedule(pairs=pairs, passes=self.passes, max_blocks=self.max_blocks, seed=self.seed)

    @property
    def command(self) -> str:
        """The command line that measures the same again."""
        names = ",".join(self.workloads)
        return (
            f"interfere profile campaign --device cpu --workloads {names} --passes {self.passes} "
            f"--max-blocks {self.max_blocks} --seed {self.seed}"
        )


def check_distinct_pairs(pairs: tuple[WorkloadPair, ...]) -> None:
    """Raise InvalidInputError when a pair is listed twice, in whichever order."""
    if len({frozenset(pair) for pair in pairs}) != len(pairs):
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
    }


class _Measurement:
    """One call of a campaign: what the log holds so far, and the measuring of what is missing."""

    def __init__(self, config: CampaignConfig, log: MeasurementLog, report: Report) -> None:
        self.config, self.log, self.report = config, log, report
        self.schedule = config.schedule
        self.blocks_by_pair: BlocksByPair = log.blocks_by_pair()
        self.profiles = {profile.workload: profile for profile in config.profiles} | log.profiles()
        self.unprofiled = [name for name in config.workloads if name not in self.profiles]
        self.done = sum(map(len, self.blocks_by_pair.values())) + len(config.workloads) - len(self.unprofiled)
        self.mean_block_s = config.block_s + BLOCK_OVERHEAD_S
        self.last_steal_warning_s = -WARN_EVERY_S

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.unprofiled and next(pending_blocks(self.schedule, self.blocks_by_pair), None) is None

    def run(self) -> None:
        """Start the workers, profile the missing workloads, measure the missing blocks, end the workers."""
        config, core = self.config, affinity.pick_core(self.config.core)
        self_paired = [first for first, second in self.schedule.pairs if first == second]
        self._report_progress(
            f"starting {len(config.workloads)} workloads on core {core}",
            start_s=START_S + BUILD_S * len(config.workloads),
        )
        with (
            WorkerPool(
                config.workloads, self_paired=self_paired, core=core, log=self.log.folder / "workers.log"
            ) as pool,
            affinity.avoid_core(core),
        ):
            profiler = WorkloadProfiler(
                pool,
                CPU_CORE.name,
                solo_s=config.solo_s,
                window_s=config.block_s / WINDOWS_PER_BLOCK,
                profiles=self.profiles,
            )
            self._profile_workloads(profiler, core)
            self._measure_pairs(profiler, core)
        self._report_progress("measured")

    def _profile_workloads(self, profiler: Profiler, core: int) -> None:
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

    def _measure_pairs(self, profiler: Profiler, core: int) -> None:
        for request in pending_blocks(self.schedule, self.blocks_by_pair):
            first, second = request.pair
            self._report_progress(f"pass {request.pass_index + 1}: {first} beside {second}")
            start_s = time.monotonic()
            block = profiler.measure_block(request)
            self.log.append_block(block)
            self.blocks_by_pair.setdefault(block.key, []).append(block)
            self.done += 1
            self.mean_block_s += COST_LEARNING_RATE * (time.monotonic() - start_s - self.mean_block_s)
            self._warn(request, block, core)

    def _warn(self, request: BlockRequest, block: PairBlock, core: int) -> None:
        """Report an unstable pair always, and a disturbed block now and then."""
        pair_text = f"{request.pair[0]} beside {request.pair[1]}"
        pass_text = f"pass {request.pass_index + 1}"
        now_s = time.monotonic()
        if is_unstable(self.blocks_by_pair[block.key], self.config.passes):
            self._report_progress(pass_text, f"{pair_text} is unstable: {block.reason}")
        elif block.steal_frac > WARN_STEAL and now_s - self.last_steal_warning_s > WARN_EVERY_S:
            self.last_steal_warning_s = now_s
            warning = f"other programs took {block.steal_frac:.0%} of core {core}, e.g. in {pair_text}"
            self._report_progress(pass_text, warning)

    def _report_progress(self, text: str, warning: str = "", *, start_s: float = 0.0) -> None:
        blocks = remaining_blocks(self.schedule, self.blocks_by_pair)
        solo_s = self.config.solo_s + FACTS_S
        self.report(
            CampaignProgress(
                done=self.done,
                total=self.done + len(self.unprofiled) + blocks,
                seconds_left=start_s + len(self.unprofiled) * solo_s + blocks * self.mean_block_s,
                text=text,
                warning=warning,
            )
        )


def _write_table(config: CampaignConfig, measurement: _Measurement) -> Table:
    """Write every pair that the folder holds, those of earlier calls with other pairs included."""
    blocks_by_pair = measurement.blocks_by_pair
    measured_pairs = [pair for pair in all_pairs(config.workloads) if frozenset(pair) in blocks_by_pair]
    return write_campaign_table(
        config.out,
        [measurement.profiles[name] for name in config.workloads],
        [blocks_by_pair[frozenset(pair)] for pair in measured_pairs],
        CampaignLabels(
            device_type=CPU_CORE.name,
            device_name=affinity.processor_name(),
            campaign=config.campaign,
            source=SOURCE,
        ),
        passes=config.passes,
        command=config.command,
        note=_summary(config, blocks_by_pair),
    )


def _summary(config: CampaignConfig, blocks_by_pair: BlocksByPair) -> str:
    """One line about how the measuring went, for the card."""
    blocks = [block for blocks in blocks_by_pair.values() for block in blocks]
    rejected = sum(not block.accepted for block in blocks)
    wide = sum(not has_converged(slowdowns_per_side(blocks)) for blocks in blocks_by_pair.values())
    return (
        f"{len(blocks)} blocks measured, {rejected} of them refused by a gate and repeated; "
        f"{wide} of {len(blocks_by_pair)} unordered pairs ended after {config.max_blocks} blocks or fewer "
        "with an interval wider than ±3 %"
    )
