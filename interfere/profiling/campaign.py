"""A campaign: profile workloads alone, then their pairs, into one table; killed and run again, it goes on.

Laws: every block is on disk before the next one starts; the table is a pure function of the raw folder; the workers are
gone when the call returns, however it returns.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from interfere.data.dataset_card import write_card
from interfere.data.parquet import write_rows
from interfere.data.schema import raw_schema
from interfere.data.tables import Table, read_table, write_table
from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError
from interfere.profiling import affinity, workloads
from interfere.profiling.fleet import Fleet
from interfere.profiling.pairs import (
    Pair,
    Plan,
    all_pairs,
    blocks_left,
    is_unstable,
    measure_block,
    rows,
    series,
    stretch,
    todo,
)
from interfere.profiling.protocol import WARN_STEAL, is_settled
from interfere.profiling.raw import Block, RawLog, locked
from interfere.profiling.solo import SOLO_S, SOURCE, measure_solo
from interfere.records import JobProfile

BLOCK_S = 2.2  # four windows of 0.55 s
WINDOWS_PER_BLOCK = 4
FLIPS_S = 0.15  # probes, last steps and collecting, per block; measured on the built-in workloads
START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports once; per workload
PASSES, MAX_BLOCKS = 2, 6
WARN_EVERY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignConfig:
    """What to measure, and where to put it."""

    out: Path
    workloads: tuple[str, ...]  # built-in names or module:factory
    passes: int = PASSES  # blocks of every pair
    block_s: float = BLOCK_S
    solo_s: float = SOLO_S  # of each workload alone
    max_blocks: int = MAX_BLOCKS  # at most this many while the interval is wide; = passes for a quick run
    seed: int = 0
    core: int | None = None  # None: the idlest one
    pairs: tuple[Pair, ...] | None = None  # None: all unordered pairs with self pairs; (): profiles only
    campaign: str = "campaign"
    resume: bool = True
    profiles: tuple[JobProfile, ...] = ()  # already measured ones are taken as they are

    def __post_init__(self) -> None:
        workloads.check_names(self.workloads)
        known = set(self.workloads)
        if stray := sorted({name for pair in self.pairs or () for name in pair} - known):
            raise InvalidInputError("a pair names a workload that is not listed", value=stray, remedy="add it")
        keys = [frozenset(pair) for pair in self.pairs or ()]
        if len(set(keys)) != len(keys):
            raise InvalidInputError("a pair is listed twice", value=self.pairs, remedy="order does not matter: once")
        for name, value, low in (
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("block_s", self.block_s, 0.4),
            ("solo_s", self.solo_s, 0.4),
            ("seed", self.seed, 0),
            ("workloads", len(self.workloads), 1),
        ):
            if not value >= low:
                raise InvalidInputError(f"{name} is too small", value=value, remedy=f"at least {low}")

    @property
    def plan(self) -> Plan:
        """The pairs and how often."""
        pairs = all_pairs(self.workloads) if self.pairs is None else self.pairs
        return Plan(pairs=pairs, passes=self.passes, max_blocks=self.max_blocks, seed=self.seed)

    @property
    def command(self) -> str:
        """The command line that measures this again."""
        names = ",".join(self.workloads)
        return (
            f"interfere profile campaign --device cpu --workloads {names} --passes {self.passes} "
            f"--max-blocks {self.max_blocks} --seed {self.seed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignProgress:
    """Where a campaign stands. `total` may grow while intervals are wide; `warning` is empty when all is well."""

    done: int
    total: int
    seconds_left: float
    text: str
    warning: str = ""


Report = Callable[[CampaignProgress], None]


def run_campaign(config: CampaignConfig, report: Report) -> Table:
    """Measure what is missing, write `jobs.parquet pairs.parquet raw.parquet card.md`, return the table.

    Raises UnfitError (no affinity, folder not writable or in use, a workload that fails) and ConflictError (the folder
    holds another campaign). Interrupted, the folder keeps every finished block and the same call goes on.
    """
    affinity.allowed_cores()  # refuses, before a folder is made, where nothing could ever be measured
    with locked(config.out / "raw") as raw:
        raw.bind(_identity(config), resume=config.resume)
        blocks: dict[frozenset[str], list[Block]] = {}
        for block in raw.blocks():
            blocks.setdefault(block.key, []).append(block)
        solos = {profile.workload: profile for profile in config.profiles} | raw.solos()
        missing = [name for name in config.workloads if name not in solos]
        if missing or any(True for _ in todo(config.plan, blocks)):
            _measure(config, raw, solos, missing, blocks, report)
        return _write(config, solos, blocks)


def _identity(config: CampaignConfig) -> dict[str, object]:
    """What must stay the same for blocks to belong together."""
    return {
        "campaign": config.campaign,
        "workloads": list(config.workloads),
        "block_s": config.block_s,
        "seed": config.seed,
        "device_type": CPU_CORE.name,
        "device_name": affinity.processor_name(),
    }


def _measure(
    config: CampaignConfig,
    raw: RawLog,
    solos: dict[str, JobProfile],
    missing: list[str],
    blocks: dict[frozenset[str], list[Block]],
    report: Report,
) -> None:
    core, plan = affinity.pick_core(config.core), config.plan
    twins = [first for first, second in plan.pairs if first == second]
    block_cost_s, warned = config.block_s + FLIPS_S, -WARN_EVERY_S
    solo_cost_s = config.solo_s + FACTS_S
    done, solos_left = sum(map(len, blocks.values())) + len(config.workloads) - len(missing), len(missing)

    def tell(text: str, warning: str = "", extra_s: float = 0.0) -> None:
        left = blocks_left(plan, blocks)
        report(
            CampaignProgress(
                done=done,
                total=done + solos_left + left,
                seconds_left=extra_s + solos_left * solo_cost_s + left * block_cost_s,
                text=text,
                warning=warning,
            )
        )

    tell(
        f"starting {len(config.workloads)} workloads on core {core}",
        extra_s=START_S + BUILD_S * len(config.workloads),
    )
    with (
        Fleet(config.workloads, twins=twins, core=core, log=raw.folder / "workers.log") as fleet,
        affinity.away_from(core),
    ):
        for name in missing:
            tell(f"alone: {name}")
            solos[name], steal = measure_solo(fleet, name, CPU_CORE.name, seconds=config.solo_s)
            raw.append_solo(solos[name])
            done, solos_left = done + 1, solos_left - 1
            if steal > WARN_STEAL:
                tell(f"alone: {name}", f"other programs took {steal:.0%} of core {core} beside {name}")
        for pair, pass_index, attempt in todo(plan, blocks):
            names = f"{pair[0]} beside {pair[1]}"
            tell(f"pass {pass_index + 1}: {names}")
            begin = time.monotonic()
            block = measure_block(
                fleet,
                pair,
                pass_index=pass_index,
                attempt=attempt,
                window_s=config.block_s / WINDOWS_PER_BLOCK,
                step_s=max(solos[name].step_time_s for name in pair),
                stretch=stretch(blocks.get(frozenset(pair), [])),
                now_s=time.time(),
            )
            raw.append_block(block)
            blocks.setdefault(block.key, []).append(block)
            done += 1
            block_cost_s += 0.1 * (time.monotonic() - begin - block_cost_s)
            if is_unstable(blocks[block.key], config.passes):
                tell(f"pass {pass_index + 1}", f"{names} is unstable: {block.reason}")
            elif block.steal_frac > WARN_STEAL and time.monotonic() - warned > WARN_EVERY_S:
                warned = time.monotonic()
                tell(
                    f"pass {pass_index + 1}",
                    f"other programs took {block.steal_frac:.0%} of core {core}, e.g. in {names}",
                )
    tell("measured")


def _write(config: CampaignConfig, solos: dict[str, JobProfile], blocks: dict[frozenset[str], list[Block]]) -> Table:
    device_name = affinity.processor_name()
    measured = [blocks[frozenset(pair)] for pair in _measured(config, blocks)]
    pairs = tuple(
        row
        for known in measured
        for row in rows(
            known,
            passes=config.passes,
            device_type=CPU_CORE.name,
            device_name=device_name,
            campaign=config.campaign,
            source=SOURCE,
        )
    )
    jobs = tuple(solos[name] for name in config.workloads)
    write_table(config.out, Table(name=config.out.name, jobs=jobs, pairs=pairs))
    write_rows(config.out / "raw.parquet", raw_rows(measured), raw_schema())
    table = read_table(config.out)
    write_card(config.out, table, command=config.command, note=_went(config, blocks))
    return table


def _measured(config: CampaignConfig, blocks: dict[frozenset[str], list[Block]]) -> list[Pair]:
    """Every pair with blocks, those of earlier calls in this folder included."""
    return [pair for pair in all_pairs(config.workloads) if frozenset(pair) in blocks]


def _went(config: CampaignConfig, blocks: dict[frozenset[str], list[Block]]) -> str:
    """How the measuring went, in one line."""
    measured = [block for known in blocks.values() for block in known]
    refused = sum(bool(block.reason) for block in measured)
    wide = sum(1 for known in blocks.values() if not is_settled(series(known)))
    return (
        f"{len(measured)} blocks measured, {refused} of them refused by a gate and repeated; {wide} of {len(blocks)} "
        f"unordered pairs ended after {config.max_blocks} blocks or fewer with an interval wider than ±3 %"
    )


def raw_rows(measured: Iterable[Sequence[Block]]) -> list[dict[str, object]]:
    """One row per block and side, without its chunks: they stay in `raw/blocks.jsonl`."""
    kept = []
    for block in (block for blocks in measured for block in blocks):
        for side, other in (block.sides, block.sides[::-1]):
            row = {name: value for name, value in asdict(block).items() if name not in ("sides", "chunks")}
            facts = asdict(side)
            row = {"victim": facts.pop("workload"), "neighbour": other.workload, **row, **facts}
            kept.append(
                {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
            )
    return kept
