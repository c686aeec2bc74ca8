"""What a campaign measures: its workloads, pairs and groups, how often and how long; broken settings are refused."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import InvalidInputError
from interfere.profiling import workloads
from interfere.profiling.schedule import BlockSchedule, all_pairs
from interfere.profiling.workload_profiler import SOLO_S
from interfere.records import JobProfile, WorkloadGroup, WorkloadPair, group_key
from interfere.records.checks import check
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE, SharingMode, set_sharing_mode

BLOCK_S = 2.2  # four windows of 0.55 s
PASSES, MAX_BLOCKS = 2, 6


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
    mode: SharingMode = DEFAULT_MODE  # how jobs share: interfere.profiling.design.placement
    campaign: str = "campaign"
    resume: bool = True
    profiles: tuple[JobProfile, ...] = ()  # known already: their workloads are not profiled again

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))
        workloads.check_names(self.workloads)
        known = set(self.workloads)
        if unlisted := sorted({name for members in (*(self.pairs or ()), *self.groups) for name in members} - known):
            raise InvalidInputError("a pair names a workload that is not listed", value=unlisted, remedy="add it")
        check_distinct_pairs(self.pairs or (), self.mode)
        if self.mode not in CPU_MODES:
            remedy = f"one of {', '.join(CPU_MODES)}"
            raise InvalidInputError("this mode is not measured on CPU cores", value=self.mode, remedy=remedy)
        if self.groups and not self.mode.properties.is_default:
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


def check_distinct_pairs(pairs: tuple[WorkloadPair, ...], mode: SharingMode = DEFAULT_MODE) -> None:
    """Raise InvalidInputError when a pair is listed twice; in whichever order, unless the first has priority."""
    if len({group_key(pair, mode) for pair in pairs}) != len(pairs):
        raise InvalidInputError("a pair is listed twice", value=pairs, remedy="list it once; its order does not matter")


def check_minimums(*settings: tuple[str, float, float]) -> None:
    """Raise InvalidInputError for the first (name, value, minimum) whose value is below its minimum or NaN."""
    for name, value, minimum in settings:
        if not value >= minimum:
            raise InvalidInputError(f"{name} is too small", value=value, remedy=f"at least {minimum}")
