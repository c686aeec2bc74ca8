"""What paging costs: how much slower jobs step when what they touch together exceeds the memory of their device.

A job touches its working set; where that is unknown, all the memory that it needs may be touched at every step. Of t
bytes that the jobs of a device touch together, the share s = max(0, 1 - M / t) does not fit the memory M. The price is
a factor on the time of every member, by s: piecewise linear through `MEASURED`, and on along its last line. So for an
unknown working set it is the most that paging may cost. It counts in what groups cost, not in predicted slowdowns, caps
or admission: `rules.memory` refuses known working sets that exceed the memory.

Law 1: without oversubscription (ratio 1) there is no price. Law 2: more memory, or a smaller demand, never raises it.
Law 3: it is 1 where all that is touched fits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.rules.group_rules import Bools, Group
from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.slowdowns import GroupSlowdowns
from interfere.records import Device, Job, MemoryDemand

Floats = NDArray[np.float64]

# (share that does not fit, price): ratios 1.05, 1.25, 1.5 and 2 of `python -m tests.bench.paging 4`, medians of rounds.
# The pages were those of files, on one machine's disk. No GPU was measured: the price of its pages may be another.
MEASURED = ((0.0, 1.0), (1 - 1 / 1.05, 3.51), (1 - 1 / 1.25, 23.43), (1 - 1 / 1.5, 50.19), (1 - 1 / 2.0, 85.74))
_SHARES, _PRICES = (np.array(column) for column in zip(*MEASURED, strict=True))


def price_of_share(share: ArrayLike) -> Floats:
    """Return float64[...]: the price of paging by the share of the touched memory that does not fit."""
    share = np.asarray(share, dtype=np.float64)
    slope = (_PRICES[-1] - _PRICES[-2]) / (_SHARES[-1] - _SHARES[-2])
    return np.asarray(np.interp(share, _SHARES, _PRICES) + slope * np.maximum(0.0, share - _SHARES[-1]))


def touched_bytes(demands: Sequence[MemoryDemand]) -> Floats:
    """Return float64[n]: the memory that each job touches; what it needs where its working set is unknown, else 0."""
    sizes = np.array([(each.working_set_bytes, each.needed_bytes) for each in demands], dtype=np.float64).reshape(-1, 2)
    return np.nan_to_num(np.where(np.isnan(sizes[:, 0]), sizes[:, 1], sizes[:, 0]))


def paging_price(touched: ArrayLike, memory: DeviceMemory) -> Floats:
    """Return float64[...]: the price by the bytes that all jobs of a device touch together."""
    touched = np.asarray(touched, dtype=np.float64)
    if not pages(memory):
        return np.ones(touched.shape)
    return price_of_share(1.0 - memory.memory_bytes / np.maximum(touched, memory.memory_bytes))


def pages(memory: DeviceMemory) -> bool:
    """Return whether jobs of a device may hold more than its memory."""
    return memory.oversubscription_ratio > 1 and memory.memory_bytes > 0


def paging_of(jobs: Sequence[Job], device: Device, context: PlanningContext) -> float:
    """Return the price of paging of jobs that share a device of the snapshot; a job alone pays none."""
    device_class = context.device_class(device)
    if len(jobs) < 2 or not pages(device_class.memory):
        return 1.0
    touched = touched_bytes([context.demand(job, device_class) for job in jobs])
    return float(paging_price(touched.sum(), device_class.memory))


class PagedSlowdowns(GroupSlowdowns):
    """The slowdowns by which the costs of groups are counted: those that are predicted, times the price of paging."""

    @classmethod
    def of(cls, slowdowns: GroupSlowdowns) -> GroupSlowdowns:
        """Return the slowdowns with the price of paging; the same where the devices have no oversubscription."""
        if not pages(slowdowns.jobs.device_class.memory):
            return slowdowns
        return cls(slowdowns.jobs, slowdowns.pending, slowdowns.context)

    def of_groups(self, group: Group, present: Sequence[Bools] | None = None, count: int = 0) -> list[Floats]:
        """float64[...] each: as `GroupSlowdowns.of_groups`, times the price; a job alone pays none."""
        slowdown, price = super().of_groups(group, present, count), self.price(group, present, count)
        return [own * price for own in slowdown]

    def exceedances(
        self, group: Group, slowdown: Sequence[Floats], limits: Sequence[Sequence[Floats | float]]
    ) -> list[Floats]:
        """float64[...] each: as `GroupSlowdowns.exceedances`, of the slowdowns with the price."""
        price = self.price(group)
        unpaged = [own / price for own in slowdown]
        return super().exceedances(group, unpaged, [[case / price for case in cases] for cases in limits])

    def price(self, group: Group, present: Sequence[Bools] | None = None, count: int = 0) -> Floats:
        """Return float64[...]: the price of each group, as for `of_groups`."""
        if (len(group) if present is None else count) < 2:
            return np.asarray(1.0)
        touched = touched_bytes(self.jobs.demands)
        total: Floats | float = 0.0
        for k, member in enumerate(group):
            total = total + (touched[member] if present is None else np.where(present[k], touched[member], 0.0))
        return paging_price(total, self.jobs.device_class.memory)


def with_paging(slowdowns: GroupSlowdowns, group: Group, slowdown: Sequence[Floats]) -> Sequence[Floats]:
    """Return predicted slowdowns times the price, where `slowdowns` have one."""
    if not isinstance(slowdowns, PagedSlowdowns):
        return slowdown
    price = slowdowns.price(group)
    return [own * price for own in slowdown]
