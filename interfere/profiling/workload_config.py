"""Which resident workloads are measured, in which pairs and groups; broken settings are refused."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError
from interfere.profiling import affinity, workloads
from interfere.profiling.affinity import choose_layout
from interfere.profiling.campaign_table import CampaignLabels
from interfere.profiling.measurer import MeasuringConfig, check_distinct_pairs, check_minimums
from interfere.profiling.worker_pool import WorkerPool
from interfere.profiling.workload_profiler import BLOCK_S, SOLO_S, SOURCE, WorkloadProfiler
from interfere.records import WorkloadGroup
from interfere.records.checks import check
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE, set_sharing_mode

START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports, once; building and facts, of each workload
BLOCK_OVERHEAD_S = 0.15  # last steps and collecting of traces; measured on the built-in workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig(MeasuringConfig):
    """Workloads of interfere's own kind, each resident in a process of its own on one core, or on two."""

    workloads: tuple[str, ...]  # built-in names or module:factory
    block_s: float = BLOCK_S
    solo_s: float = SOLO_S  # of each workload alone
    campaign: str = "campaign"

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
    def names(self) -> tuple[str, ...]:
        """The names of the workloads."""
        return self.workloads

    @property
    def labels(self) -> CampaignLabels:
        """The columns that are equal in all rows."""
        return CampaignLabels(
            device_type=CPU_CORE.name,
            device_name=affinity.processor_name(),
            campaign=self.campaign,
            source=SOURCE,
            mode=self.mode,
        )

    @property
    def identity(self) -> dict[str, object]:
        """The workloads, and how long and in which order they are measured."""
        return {"workloads": list(self.workloads), "block_s": self.block_s, "seed": self.seed}

    @property
    def command(self) -> str:
        """The command line that measures the same again."""
        sizes = Counter(map(len, self.groups))
        options = [
            f"interfere profile campaign --device-type cpu --jobs {','.join(self.workloads)} --passes {self.passes}",
            f"--max-blocks {self.max_blocks} --seed {self.seed}",
            *([f"--mode {self.mode}"] if self.mode != DEFAULT_MODE else []),
            *([f"--block-s {self.block_s:g}"] if self.block_s != BLOCK_S else []),
            *(f"--group-size {size} --group-count {count}" for size, count in sorted(sizes.items())),
        ]
        return " ".join(options)

    @contextmanager
    def open_profiler(self, raw_folder: Path) -> Iterator[WorkloadProfiler]:
        """Start a worker for each workload, and stay away from the measured cores until the context is left."""
        layout, log = choose_layout(self.mode, self.core), raw_folder / "workers.log"
        groups = self.schedule(self.workloads).groups
        with (
            WorkerPool(self.workloads, groups=groups, layout=layout, log=log) as pool,
            affinity.avoid_cores(*layout.cores),
        ):
            yield WorkloadProfiler(pool, CPU_CORE.name, solo_s=self.solo_s, block_s=self.block_s, seed=self.seed)

    def expected_start_s(self) -> float:
        """Seconds until all workloads are resident."""
        return START_S + BUILD_S * len(self.workloads)

    def expected_solo_s(self) -> float:
        """Seconds of one profile."""
        return self.solo_s + FACTS_S

    def expected_block_s(self, members: WorkloadGroup) -> float:
        """Seconds of one block: a round of slices grows with the jobs, since all together run as much longer."""
        return self.block_s * len(members) / 2 + BLOCK_OVERHEAD_S
