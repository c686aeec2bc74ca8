"""What a planner knows of kernels: for each identity its mean time SK and its mean gap SG (FIKIT's two tables).

Laws: a table made from a timeline predicts its total time exactly, launch by launch only as far as equal identities
take equal times; an identity that the table never saw is refused, never guessed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np

from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import NAN
from interfere.timeline.records import SHORTEST_S, Identity, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One identity."""

    identity: Identity
    launches: int
    run_s: float  # SK
    run_sd_s: float  # NaN for one launch
    gap_s: float  # SG
    gap_sd_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFit:
    """How far the means of a table are from the launches themselves."""

    launches: int
    identities: int
    total_error_frac: float  # of the sum of run times: predicted ÷ real - 1
    run_error_frac: float  # mean |predicted - real| over the mean run time
    gap_error_frac: float  # the same of gaps; NaN without any


class KernelTable:
    """SK and SG by identity."""

    def __init__(self, rows: Mapping[Identity, KernelRow]) -> None:
        self._rows = dict(rows)

    @classmethod
    def measured(cls, timeline: Timeline) -> "KernelTable":
        """From a profiled run."""
        groups: dict[Identity, list[tuple[float, float]]] = {}
        for kernel in timeline.kernels:
            groups.setdefault(kernel.identity, []).append((kernel.duration_s, kernel.gap_s))
        return cls({identity: _row(identity, seen) for identity, seen in groups.items()})

    @property
    def rows(self) -> tuple[KernelRow, ...]:
        """In order of first launch."""
        return tuple(self._rows.values())

    def row(self, identity: Identity) -> KernelRow:
        """Raises NotFoundError for a kernel that was never measured."""
        if identity not in self._rows:
            raise NotFoundError(
                "no such kernel in the table", value=identity.name, remedy="profile the job that launches it first"
            )
        return self._rows[identity]

    def believe(self, timeline: Timeline) -> Timeline:
        """The timeline as a planner expects it: each launch at the means of its identity."""
        rows = [self.row(kernel.identity) for kernel in timeline.kernels]
        return replace(
            timeline,
            kernels=tuple(
                replace(kernel, duration_s=row.run_s, gap_s=row.gap_s)
                for kernel, row in zip(timeline.kernels, rows, strict=True)
            ),
            gaps="means by identity",
        )

    def fit(self, timeline: Timeline) -> TableFit:
        """The table against launches, those it was made of or others."""
        believed = self.believe(timeline)
        pairs = list(zip(believed.kernels, timeline.kernels, strict=True))
        gap_s = math.fsum(kernel.gap_s for kernel in timeline.kernels)
        return TableFit(
            launches=len(pairs),
            identities=len(self._rows),
            total_error_frac=believed.busy_s / timeline.busy_s - 1,
            run_error_frac=math.fsum(abs(a.duration_s - b.duration_s) for a, b in pairs) / timeline.busy_s,
            gap_error_frac=math.fsum(abs(a.gap_s - b.gap_s) for a, b in pairs) / gap_s if gap_s else NAN,
        )


def mistaken(timeline: Timeline, error_frac: float, seed: int) -> Timeline:
    """What a planner with errors believes: SK and SG off by log-normal factors of median 1 and this spread."""
    if not (math.isfinite(error_frac) and error_frac >= 0):
        raise InvalidInputError("a relative error must be finite and ≥ 0", value=error_frac, remedy="such as 0.2")
    sigma = math.sqrt(math.log1p(error_frac**2))  # of a log-normal with this coefficient of variation
    factors = np.exp(sigma * np.random.default_rng(seed).standard_normal((len(timeline.kernels), 2)))
    return replace(
        timeline,
        kernels=tuple(
            replace(k, duration_s=max(SHORTEST_S, k.duration_s * float(run)), gap_s=k.gap_s * float(gap))
            for k, (run, gap) in zip(timeline.kernels, factors, strict=True)
        ),
    )


def _row(identity: Identity, seen: list[tuple[float, float]]) -> KernelRow:
    runs, gaps = [run for run, _ in seen], [gap for _, gap in seen]
    many = len(seen) > 1
    return KernelRow(
        identity=identity,
        launches=len(seen),
        run_s=fmean(runs),
        run_sd_s=stdev(runs) if many else NAN,
        gap_s=fmean(gaps),
        gap_sd_s=stdev(gaps) if many else NAN,
    )
