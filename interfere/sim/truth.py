"""The truth of a replay: measured slowdowns of pairs, and what holds where the measurements have gaps.

A speed above 1 comes from a wrong time of the job on its own (21 % of Lucid's): slowdowns are clipped at 1. A gang
beside a gang loses `GANG_EXCESS` of what one device of each does, as gangs on two CPU cores did: no table of GPUs says
more. Two workloads share only where both ordered pairs were measured and feasible.
Law: what was clipped, filled and left out is counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table, merge_roles
from interfere.errors import InvalidInputError
from interfere.records import PairStatus
from interfere.records.checks import METRICS
from interfere.sharing_modes import OptionalSharingMode, SharingMode

Floats = NDArray[np.float64]
MeasuredGroups = Mapping[tuple[str, tuple[str, ...]], float]
"""(victim, its two or more neighbours, sorted) -> slowdown ≥ 1; NaN where they must not share."""
# (s - 1) of a gang beside a gang over (s - 1) of the same jobs on one device: median of the shipped table `core`, whose
# card tells the spread. A gang waits for its ranks also where it runs alone, and may wait while the neighbour works.
GANG_EXCESS = 0.79
STEP_TIME = METRICS[0]  # a replay advances jobs by steps
UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST = "alone", "median", "worst"  # what workloads without truth do


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthTable:
    """Slowdowns of n workloads on one device type in one sharing mode."""

    device_type: str
    mode: SharingMode
    workloads: tuple[str, ...]
    table: Floats  # float64[n, n] ≥ 1: victim i beside neighbour j; NaN where the two must not share
    clipped: int = 0  # ordered pairs that were measured faster than without sharing
    filled: int = 0  # ordered pairs predicted by a model, where the caller asked for that
    unmeasured: int = 0  # ordered pairs that must not share since a row of either direction is missing
    groups: MeasuredGroups = field(default_factory=dict)  # of three and more that were measured
    assumed: int = 0  # workloads that nobody measured, at the median or worst of those measured: a scenario
    step_time_s: Mapping[str, float] = field(default_factory=dict)  # of workloads alone, as far as known

    @property
    def index(self) -> dict[str, int]:
        """The row, which is also the column, of each workload in the table."""
        return {workload: k for k, workload in enumerate(self.workloads)}

    def note(self) -> str:
        """Return one line on the changes made to the measured table."""
        measured = len(self.workloads) - self.assumed
        pairs = measured**2
        groups = f"; {len(self.groups)} rows of measured groups" if self.groups else ""
        assumed = f"; {self.assumed} workloads without any truth share by an assumption" if self.assumed else ""
        return (
            f"truth: {measured} workloads on {self.device_type}, {self.mode}; of {pairs} ordered pairs "
            f"{self.clipped} clipped at 1, {self.filled} filled by a model, {self.unmeasured} without truth "
            f"never share{groups}{assumed}"
        )


def truth_of(table: Table, *, device_type: str = "", mode: OptionalSharingMode = "") -> TruthTable:
    """Return the true slowdowns that a table of measurements holds: of step times, and of several campaigns the
    geometric mean.

    Device type and mode may be left out where the table has only one of each. Raises InvalidInputError where no domain,
    or more than one, matches.
    """
    rows = [row for row in merge_roles(table.pairs) if row.metric == STEP_TIME]
    rows = [row for row in rows if not device_type or row.device_type == device_type]
    rows = [row for row in rows if not mode or row.mode == mode]
    domains = sorted({(row.device_type, row.mode) for row in rows})
    if len(domains) != 1:
        available = sorted({f"{row.device_type}, {row.mode}" for row in table.pairs})
        raise InvalidInputError(
            f"table {table.name}: one device type and mode is the truth of a replay",
            value="; ".join(", ".join(domain) for domain in domains) or f"{device_type} {mode}: no row",
            remedy=f"name one of: {'; '.join(available)}",
        )
    (device_type, mode) = domains[0]
    workloads = sorted({workload for row in rows for workload in (row.victim, row.neighbour)})
    index = {workload: k for k, workload in enumerate(workloads)}
    log_sum, campaigns = np.zeros((2, len(workloads), len(workloads)))
    infeasible = np.zeros_like(log_sum, dtype=bool)
    for row in rows:
        cell = index[row.victim], index[row.neighbour]
        if row.status is PairStatus.OK:
            log_sum[cell] += math.log(row.slowdown)
            campaigns[cell] += 1
        infeasible[index[row.victim], index[row.neighbour]] |= not row.feasible
    infeasible |= infeasible.T
    slowdown = np.full_like(log_sum, np.nan)
    measured = (campaigns > 0) & ~infeasible
    slowdown[measured] = np.exp(log_sum[measured] / campaigns[measured])
    clipped = int((slowdown < 1).sum())
    slowdown = np.where(slowdown < 1, 1.0, slowdown)
    unmeasured = np.isnan(slowdown + slowdown.T) & ~infeasible
    slowdown[unmeasured] = np.nan
    return TruthTable(
        device_type=device_type,
        mode=mode,
        workloads=tuple(workloads),
        table=slowdown,
        clipped=clipped,
        unmeasured=int(unmeasured.sum()),
        groups=_measured_groups(table, device_type, mode),
        step_time_s={job.workload: job.step_time_s for job in table.jobs if job.device_type == device_type},
    )


def _measured_groups(table: Table, device_type: str, mode: SharingMode) -> MeasuredGroups:
    """Return the measured groups of a domain. Unstable groups are left out, and so are composed from their pairs."""
    groups: dict[tuple[str, tuple[str, ...]], float] = {}
    for row in table.groups:
        if (row.device_type, row.mode, row.metric) != (device_type, mode, STEP_TIME):
            continue
        if row.status is PairStatus.OK:
            groups[row.victim, row.company] = max(1.0, row.slowdown)
        elif not row.feasible:
            for k, victim in enumerate(row.members):
                groups[victim, row.members[:k] + row.members[k + 1 :]] = math.nan
    return groups


def assume_unknown(truth: TruthTable, workloads: Iterable[str], assumption: str) -> TruthTable:
    """Return the truth extended by these workloads, where it lacks them.

    Each is assumed to slow down, and to be slowed down, as the median or the worst measured pair. A replay on this
    truth is a scenario, not a result from measurements.
    """
    unknown = tuple(sorted({name for name in workloads if name} - set(truth.workloads)))
    if not unknown:
        return truth
    measured = truth.table[np.isfinite(truth.table)]
    slowdown = float(np.max(measured) if assumption == UNKNOWN_WORST else np.median(measured))
    known = len(truth.workloads)
    table = np.full((known + len(unknown), known + len(unknown)), slowdown)
    table[:known, :known] = truth.table
    return replace(truth, workloads=(*truth.workloads, *unknown), table=table, assumed=len(unknown))


def known_on_any(truths: Sequence[TruthTable]) -> TruthTable:
    """Return the slowdowns that are known on any of several device types, on the first that knows them.

    It says what is covered, not what is true of a device.
    """
    first, *others = truths
    if not others:
        return first
    workloads = tuple(sorted({name for truth in truths for name in truth.workloads}))
    table = np.full((len(workloads), len(workloads)), np.nan)
    for truth in truths:
        place = np.searchsorted(workloads, truth.workloads)
        known = table[np.ix_(place, place)]
        table[np.ix_(place, place)] = np.where(np.isnan(known), truth.table, known)
    return replace(first, workloads=workloads, table=table)


def relative_speed(truth: TruthTable, reference: TruthTable, hours: Mapping[str, float]) -> float:
    """Return the speed of a device type relative to another: the geometric mean over workloads of their times alone.

    `hours`: weights by workload. NaN where no workload of a trace was measured alone on both.
    """
    both = [name for name in hours if truth.step_time_s.get(name, 0.0) > 0 < reference.step_time_s.get(name, 0.0)]
    weights = sum(hours[name] for name in both)
    if not weights:
        return math.nan
    logs = (hours[name] * math.log(reference.step_time_s[name] / truth.step_time_s[name]) for name in both)
    return math.exp(math.fsum(logs) / weights)


class Composition(StrEnum):
    """The rule that composes the slowdown of an unmeasured group from the slowdowns of its pairs.

    Measured groups lie between the two choices.

    On ParvaGPU's A100 three to five copies of a model slow one another down by less than the product and by more than
    the sum; on one CPU core that jobs share in turn the sum is exact where each would use all of it.
    """

    SUM = "sum"  # 1 + Σ (s - 1) over the pairs of a victim
    PRODUCT = "product"  # Π s over the pairs of a victim


class TableTruth:
    """The truth of a cluster, from one truth table or from several of different device types.

    A measured group has its measured slowdown; any other is composed of its pairs.
    """

    def __init__(
        self,
        tables: Iterable[TruthTable],
        composition: Composition = Composition.SUM,
        *,
        gang_excess: float = 1.0,
        loading_workload: str = "",
    ) -> None:
        """Keep the slowdowns.

        `gang_excess` is what a job on several devices loses beside others (slowdown less one), relative to the same job
        on one device: 1 as schedulers expect, `GANG_EXCESS` as measured. `loading_workload`: what any job counts as
        while it loads or ends; empty: its own workload.
        """
        self._composition, self.gang_excess, self.loading_workload = composition, gang_excess, loading_workload
        self._slowdowns, self._groups = dict[str, dict[tuple[str, str], float]](), dict[str, MeasuredGroups]()
        for table in tables:
            self._groups[table.device_type] = table.groups
            self._slowdowns[table.device_type] = {
                (victim, neighbour): float(table.table[i, j])
                for victim, i in table.index.items()
                for neighbour, j in table.index.items()
            }

    def slowdown(self, victim: str, neighbours: Sequence[str], device_type: str) -> float:
        """Return the slowdown of the victim beside its neighbours; NaN where one of its pairs is unknown."""
        known = self._slowdowns.get(device_type, {})
        pairs = [known.get((victim, neighbour), math.nan) for neighbour in neighbours]
        if len(pairs) == 1:
            return pairs[0]
        measured = self._groups.get(device_type, {}).get((victim, tuple(sorted(neighbours))))
        if measured is not None:
            return measured
        if self._composition is Composition.PRODUCT:
            return math.prod(pairs)
        return 1.0 + math.fsum(slowdown - 1.0 for slowdown in pairs)
