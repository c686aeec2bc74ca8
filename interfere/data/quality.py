"""The quality of a table: how well repeated measurements agree, how much an additive model explains, and what for.

`icc` is the one-way random intraclass correlation of a single block, ICC(1,1) of Shrout and Fleiss (1979), on log
slowdown: ``(MSB − MSW) / (MSB + (k − 1) MSW)`` over rows with k blocks each. `additive R²` is the share of the variance
of log slowdown that the additive model explains, by least squares on the table itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.additive_fit import fit_table
from interfere.data.tables import Table
from interfere.records import NAN, GroupMeasurement, PairMeasurement, PairStatus
from interfere.records.checks import METRICS
from interfere.records.measurements import GANG_SUFFIX
from interfere.sharing_modes import SharingMode

MIN_ICC = 0.5  # below this a model would learn noise: training refuses the table


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownFigures:
    """Figures of measured slowdowns of pairs or of groups; NaN where there are too few rows."""

    rows_by_status: tuple[tuple[str, int], ...]
    icc: float
    icc_rows: int  # rows with at least two blocks
    slowdown_median: float
    slowdown_p90: float
    slowdown_max: float
    steal_p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuality(SlowdownFigures):
    """The quality figures of the pairs of a table."""

    additive_r2: float
    over_two_frac: float  # share of rows with a slowdown above 2, the fair share of two busy jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuality(SlowdownFigures):
    """The quality figures of the groups of one size in one domain."""

    device_type: str
    mode: SharingMode
    metric: str
    size: int  # jobs of a group
    groups: int
    jobs: int  # workloads that take part
    blocks: tuple[int, ...]  # fewest and most accepted blocks of a valid row; empty where the table states none

    @property
    def title(self) -> str:
        """The domain and the size of the groups in words; the mean step time as metric is left out."""
        metric = () if self.metric == "step_time_mean" else (self.metric,)
        return ", ".join((self.device_type, self.mode, *metric, f"groups of {self.size}"))


def domain_tables(table: Table) -> tuple[tuple[str, Table], ...]:
    """Return (title, table) for each domain of a table: the pairs and profiles of a device type, sharing mode and
    metric.

    Where one job of each pair was important, pairs with an important victim and the others are separate domains. Titles
    leave the metric out where the table has one metric alone. Slowdowns are comparable only within a domain.
    """
    keys = sorted({_domain_key(pair) for pair in table.pairs})
    metrics = {metric for _, _, metric, _ in keys}
    found = []
    for key in keys:
        device_type, mode, metric, important = key
        jobs = sorted((job for job in table.jobs if job.device_type == device_type), key=lambda job: job.workload)
        pairs = sorted(
            (pair for pair in table.pairs if _domain_key(pair) == key),
            key=lambda pair: (pair.victim, pair.neighbour),
        )
        role = (f"{important} important",) if important else ()
        title = ", ".join((device_type, mode, *((metric,) if len(metrics) > 1 else ()), *role))
        found.append((title, Table(name=table.name, jobs=tuple(jobs), pairs=tuple(pairs))))
    return tuple(found)


def _domain_key(pair: PairMeasurement) -> tuple[str, str, str, str]:
    return pair.device_type, pair.mode, pair.metric, pair.important


def icc(passes: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    """Return ICC(1,1) of n rows with k values each (k equal and at least 2, n at least 2).

    NaN for fewer values, or where nothing varies.
    """
    values = np.asarray(passes, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 2:
        return NAN
    n, k = values.shape
    means = values.mean(axis=1)
    between = k * float(((means - means.mean()) ** 2).sum()) / (n - 1)
    within = float(((values - means[:, None]) ** 2).sum()) / (n * (k - 1))
    total = between + (k - 1) * within
    return (between - within) / total if total > 0 else NAN


def block_slowdowns(row: PairMeasurement | GroupMeasurement) -> tuple[float, ...]:
    """Return the slowdown of a row in each block.

    Where copies of the victim ran together, `passes` holds a slowdown of each copy in each block. The slowdown of the
    block is their geometric mean.
    """
    copies = row.copies if isinstance(row, GroupMeasurement) else 1
    if isinstance(row, PairMeasurement) and row.victim == row.neighbour and not row.important:
        copies = 2
    if copies == 1 or len(row.passes) % copies:
        return row.passes
    log_slowdowns = np.log(np.reshape(row.passes, (-1, copies)))
    return tuple(map(float, np.exp(log_slowdowns.mean(axis=1))))


def table_quality(table: Table) -> TableQuality:
    """Return all quality figures of the pairs of one table."""
    ok_pairs = table.ok_pairs
    slowdowns = np.array([pair.slowdown for pair in ok_pairs])
    return TableQuality(
        **_figures(table.pairs),
        additive_r2=fit_table(table).r2,
        over_two_frac=float((slowdowns > 2).mean()) if len(ok_pairs) else NAN,
    )


def group_quality(table: Table) -> tuple[GroupQuality, ...]:
    """Return the quality figures of the groups of each size, by device type, mode and metric."""
    rows_by_key: dict[tuple[str, SharingMode, str, int], list[GroupMeasurement]] = {}
    for row in table.groups:
        rows_by_key.setdefault((row.device_type, row.mode, row.metric, len(row.members)), []).append(row)
    return tuple(_group_quality(rows) for _, rows in sorted(rows_by_key.items()))


def _group_quality(rows: Sequence[GroupMeasurement]) -> GroupQuality:
    """Return the quality figures of the rows of groups of one size in one domain."""
    first, ok = rows[0], [row for row in rows if row.status is PairStatus.OK]
    blocks = [len(row.passes) // row.members.count(row.victim) for row in ok if row.passes]
    return GroupQuality(
        **_figures(rows),
        device_type=first.device_type,
        mode=first.mode,
        metric=first.metric,
        size=len(first.members),
        groups=len({row.members for row in rows}),
        jobs=len({row.victim for row in rows}),
        blocks=(min(blocks), max(blocks)) if blocks else (),
    )


def _figures(rows: Sequence[PairMeasurement | GroupMeasurement]) -> dict[str, Any]:
    """Return the fields of SlowdownFigures; the ICC compares two blocks of each row.

    They are the first two, or the first ones of two campaigns where both measured the row.
    """
    ok = [row for row in rows if row.status is PairStatus.OK]
    blocks_of_row: dict[tuple[object, ...], list[tuple[float, ...]]] = {}
    for row in ok:
        blocks_of_row.setdefault(_row_key(row), []).append(block_slowdowns(row))
    repeats = [
        (*(blocks[0] for blocks in campaigns if blocks), *(block for blocks in campaigns for block in blocks[1:]))
        for campaigns in blocks_of_row.values()
    ]
    first_two = [np.log(blocks[:2]) for blocks in repeats if len(blocks) >= 2]
    slowdowns = [row.slowdown for row in ok]
    return {
        "rows_by_status": tuple((status.value, sum(row.status is status for row in rows)) for status in PairStatus),
        "icc": icc(first_two),
        "icc_rows": len(first_two),
        "slowdown_median": _quantile(slowdowns, 0.5),
        "slowdown_p90": _quantile(slowdowns, 0.9),
        "slowdown_max": _quantile(slowdowns, 1.0),
        "steal_p90": _quantile([row.steal_frac for row in ok if row.steal_frac == row.steal_frac], 0.9),
    }


def _row_key(row: PairMeasurement | GroupMeasurement) -> tuple[object, ...]:
    """Return what two campaigns have in common where they measured the same."""
    beside = (row.neighbour, row.important) if isinstance(row, PairMeasurement) else row.company
    return row.victim, beside, row.device_type, row.mode, row.metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatability:
    """How far the slowdowns of two campaigns of a table lie apart: |later ÷ earlier - 1| over the rows of both."""

    metric: str
    earlier: str
    later: str
    rows: int
    median: float
    p90: float


def repeatabilities(table: Table) -> tuple[Repeatability, ...]:
    """Return the repeatability of each metric from each campaign of the table to the next one, by age."""
    times_s: dict[str, float] = {}
    slowdowns: dict[tuple[str, str], dict[tuple[object, ...], float]] = {}
    rows: tuple[PairMeasurement | GroupMeasurement, ...] = (*table.ok_pairs, *table.ok_groups)
    for row in rows:
        times_s[row.campaign] = max(row.measured_at_s, times_s.get(row.campaign, row.measured_at_s))
        slowdowns.setdefault((row.metric, row.campaign), {})[_row_key(row)] = row.slowdown
    campaigns = sorted(times_s, key=lambda campaign: (times_s[campaign], campaign))
    found = []
    for metric in sorted({metric for metric, _ in slowdowns}):
        for earlier, later in pairwise(campaigns):
            before, after = slowdowns.get((metric, earlier), {}), slowdowns.get((metric, later), {})
            differences = [abs(after[key] / before[key] - 1.0) for key in before.keys() & after.keys()]
            if differences:
                found.append(
                    Repeatability(
                        metric=metric,
                        earlier=earlier,
                        later=later,
                        rows=len(differences),
                        median=_quantile(differences, 0.5),
                        p90=_quantile(differences, 0.9),
                    )
                )
    return tuple(found)


MIN_LOSS = 0.1  # slowdown less one of the job on one device: the ratio of two smaller ones is noise
BESIDE_JOBS, BESIDE_GANGS = "beside jobs on one device", "beside gangs on the same devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangExcess:
    """What gangs lose, relative to what the same jobs on one device lose: (s_gang - 1) ÷ (s_job - 1).

    The job on one device runs beside the same neighbour, or beside the job of the gang that is the neighbour.
    """

    beside: str
    rows: int
    median: float
    p10: float
    p90: float


def gang_excesses(table: Table) -> tuple[GangExcess, ...]:
    """Return what the gangs of a table lose beside jobs, and beside gangs; nothing where it has no gang.

    Slowdowns of step times are compared within a campaign.
    """
    rows = [row for row in table.ok_pairs if row.metric == METRICS[0] and not row.important]
    slowdowns: dict[tuple[str, ...], float] = {
        (row.victim, row.neighbour, row.device_type, row.mode, row.campaign): row.slowdown for row in rows
    }
    ratios: dict[str, list[float]] = {BESIDE_JOBS: [], BESIDE_GANGS: []}
    for (victim, neighbour, *domain), slowdown in slowdowns.items():
        if victim.endswith(GANG_SUFFIX):
            single = victim.removesuffix(GANG_SUFFIX), neighbour.removesuffix(GANG_SUFFIX), *domain
            loss = slowdowns.get(single, NAN) - 1.0
            if loss >= MIN_LOSS:
                beside = BESIDE_GANGS if neighbour.endswith(GANG_SUFFIX) else BESIDE_JOBS
                ratios[beside].append((slowdown - 1.0) / loss)
    return tuple(
        GangExcess(
            beside=beside,
            rows=len(of_rows),
            median=_quantile(of_rows, 0.5),
            p10=_quantile(of_rows, 0.1),
            p90=_quantile(of_rows, 0.9),
        )
        for beside, of_rows in ratios.items()
        if of_rows
    )


def _quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else NAN


# --- what a domain may be used for ------------------------------------------------------------------------------------

MIN_PAIRS_ALONE = 10  # unordered pairs that a training of its own needs
CALIBRATION_PAIRS = 20  # unordered pairs after which a domain's levels are its own, beside a large table of another
DENSE_SHARE = 0.5  # of all ordered pairs, from which a completion of the matrix is worth its name


class Limitation(StrEnum):
    """A gap in a table, with the uses that it rules out."""

    SELF_PAIRS_ONLY = (
        "only copies of one job were run together: may say whether a job shares with a copy of itself; says nothing "
        "about two different jobs"
    )
    TOO_FEW_TO_TRAIN = (
        "too few pairs for a model of its own: may calibrate the levels of a model that was trained on another device "
        "type; rankings of pairs that were not measured are those of the other device type"
    )
    LEVELS_BORROWED = (
        "fewer pairs than levels of its own need: predictions lean on other tables, and their intervals are too narrow"
    )
    ONE_DIRECTION = "most pairs were measured in one direction: what a job does to others is known of few"
    NOISE = "repeated blocks disagree: training refuses it; measure longer blocks, or on a quieter machine"
    NO_FACTS = "most jobs have no step time alone: jobs that were not measured in pairs cannot be told apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntendedUse:
    """The amount of measurements in a domain, and the uses that they support."""

    domain: str  # device type, mode, and metric where several
    jobs: int
    measured: int  # valid ordered pairs
    possible: int  # ordered pairs of its jobs
    limitations: tuple[Limitation, ...]

    def text(self) -> str:
        """Return the measurements and their uses as a line of text."""
        share = f"{self.measured} of {self.possible} ordered pairs of {self.jobs} jobs"
        if self.limitations:
            return f"{self.domain}: {share}. {'; '.join(self.limitations)}"
        gain = "completes the matrix" if self.measured >= DENSE_SHARE * self.possible else "predicts other pairs"
        return f"{self.domain}: {share}: enough to train a model that {gain} and predicts unseen jobs like these"


def intended_uses(table: Table) -> tuple[IntendedUse, ...]:
    """Return the intended use of each domain of a table, in order of the domains' names."""
    return tuple(_of_domain(title, domain_table) for title, domain_table in domain_tables(table))


def _of_domain(title: str, table: Table) -> IntendedUse:
    pairs = table.ok_pairs
    names = {name for pair in pairs for name in (pair.victim, pair.neighbour)}
    ordered = {(pair.victim, pair.neighbour) for pair in pairs}
    unordered = {tuple(sorted(pair)) for pair in ordered}
    mixed = {(a, b) for a, b in ordered if a != b}
    with_step_time = sum(job.step_time_s == job.step_time_s for job in table.jobs if job.workload in names)
    found = []
    if ordered and not mixed:
        found.append(Limitation.SELF_PAIRS_ONLY)
    if len(unordered) < MIN_PAIRS_ALONE:
        found.append(Limitation.TOO_FEW_TO_TRAIN)
    elif len(unordered) < CALIBRATION_PAIRS:
        found.append(Limitation.LEVELS_BORROWED)
    if mixed and 2 * sum((b, a) in mixed for a, b in mixed) < len(mixed):
        found.append(Limitation.ONE_DIRECTION)
    if table_quality(table).icc < MIN_ICC:
        found.append(Limitation.NOISE)
    if names and 2 * with_step_time < len(names):
        found.append(Limitation.NO_FACTS)
    return IntendedUse(
        domain=title, jobs=len(names), measured=len(ordered), possible=len(names) ** 2, limitations=tuple(found)
    )
