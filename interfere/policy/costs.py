"""What sharing would cost, and whether it is allowed: one table of predicted slowdowns per device class.

A pair (i, j) costs f_i(τ_i s_ij) + f_j(τ_j s_ji) with predicted medians s; see `objectives` for f and τ. Of a resident
j, which has paid f_j(τ_j) whatever is decided, only the rest counts.
A cap holds on the quantile 1 - risk of the prediction. Every forbidden pair knows the rule that binds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.objectives import Objective
from interfere.protocols import Predictor
from interfere.records import ActionKind, Device, Job, JobProfile, Limits

GIB = float(2**30)

Resolve = Callable[[Job, str], JobProfile | None]
"""(job, device type) -> the profile to predict from, or None for a workload nobody profiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """Devices that nothing in a prediction tells apart."""

    type: str
    mode: str
    memory_bytes: float
    pool: str = ""

    @classmethod
    def of(cls, device: Device) -> "DeviceClass":
        """Class of a device; NaN memory becomes -1 so that equal classes compare equal."""
        return cls(
            type=device.type,
            mode=device.mode,
            memory_bytes=-1.0 if math.isnan(device.memory_bytes) else device.memory_bytes,
            pool=device.pool,
        )

    def shut_to(self, job: Job) -> str:
        """Why a job may not start there whoever else does; empty where it may."""
        if not job.pools or self.pool in job.pools:
            return ""
        return f"pool: {job.id} allows [{', '.join(job.pools)}], the device is in {self.pool or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts:
    """r row jobs beside c column jobs on one device class. `cost` is inf where `reason` is not empty."""

    cost: NDArray[np.float64]  # float64[r, c], of the pair; beside a resident what is added
    worst: NDArray[np.float64]  # float64[r, c], the larger cost of the two jobs
    row_slowdown: NDArray[np.float64]  # float64[r, c]
    column_slowdown: NDArray[np.float64]  # float64[r, c]
    rows: tuple[Job, ...]
    columns: tuple[Job, ...]
    row_profiles: tuple[JobProfile | None, ...]
    column_profiles: tuple[JobProfile | None, ...]
    where: DeviceClass
    limits: Limits
    row_bytes: NDArray[np.float64]
    column_bytes: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    column_upper: NDArray[np.float64]
    row_known: NDArray[np.bool_]
    column_known: NDArray[np.bool_]
    domain_reason: str
    running: bool = False  # are the columns residents already?

    def reason(self, i: int, j: int) -> str:
        """The rule that forbids row i beside column j; empty when allowed."""
        if ActionKind.START_SHARED not in self.limits.allowed:
            return "start_shared is not an allowed action"
        if shut := self.where.shut_to(self.rows[i]) or ("" if self.running else self.where.shut_to(self.columns[j])):
            return shut
        if unknown := self._unknown(i, j):
            return unknown
        total = self.row_bytes[i] + self.column_bytes[j]
        if 0 <= self.where.memory_bytes < total:
            return (
                f"memory: {self.row_bytes[i] / GIB:.3g} GiB + {self.column_bytes[j] / GIB:.3g} GiB > "
                f"{self.where.memory_bytes / GIB:.3g} GiB"
            )
        for job, upper in ((self.rows[i], self.row_upper[i, j]), (self.columns[j], self.column_upper[i, j])):
            limit = cap_of(job, self.limits)
            if upper > limit:
                return f"slowdown cap: {job.id} could reach {upper:.2f} > {limit:.2f} at risk {self.limits.risk:g}"
        return ""

    def too_large(self, i: int) -> str:
        """Why row i does not fit there even alone; empty when it does."""
        if 0 <= self.where.memory_bytes < self.row_bytes[i]:
            return f"memory: {self.row_bytes[i] / GIB:.3g} GiB > {self.where.memory_bytes / GIB:.3g} GiB"
        return ""

    def _unknown(self, i: int, j: int) -> str:
        """Why nothing is predicted for the two; empty when something is."""
        row, column = self.rows[i], self.columns[j]
        for job, known in ((row, self.row_known[i]), (column, self.column_known[j])):
            if not known:
                return f"no profile of workload {job.workload!r} on {self.where.type}: it runs alone first"
        if not self.domain_reason and np.isnan(self.row_slowdown[i, j] + self.column_slowdown[i, j]):
            return (
                f"{row.workload} beside {column.workload} is unlike all that the model learned from: measure this "
                "pair first, or set allow_extrapolation"
            )
        return self.domain_reason


def cap_of(job: Job, limits: Limits) -> float:
    """The tighter of the job's own cap and the request's; inf without any."""
    return float(np.fmin(np.fmin(job.max_slowdown, limits.max_slowdown), np.inf))


def peak_bytes(job: Job, profile: JobProfile | None) -> float:
    """Peak memory: what the job says, else what its profile measured, else NaN."""
    return profile.memory_peak_bytes if math.isnan(job.memory_peak_bytes) and profile else job.memory_peak_bytes


def pair_costs(
    rows: Sequence[Job],
    columns: Sequence[Job],
    where: DeviceClass,
    predictor: Predictor,
    resolve: Resolve,
    limits: Limits,
    objective: Objective,
    *,
    row_times: NDArray[np.float64],
    column_times: NDArray[np.float64],
    running: bool = False,
) -> PairCosts:
    """Costs of every row job beside every column job on one device class; the columns are `running` already or not.

    `row_times` float64[r] and `column_times` float64[c]: τ of the jobs on this device type.
    """
    row_profiles = [resolve(job, where.type) for job in rows]
    column_profiles = [resolve(job, where.type) for job in columns]
    r, c = len(rows), len(columns)
    domain = "" if limits.allow_extrapolation else predictor.knows(where.type, where.mode)
    ahead, back = np.full((r, c), np.nan), np.full((r, c), np.nan)
    row_upper, column_upper = ahead.copy(), back.copy()
    row_known = np.array([p is not None for p in row_profiles], dtype=bool)
    column_known = np.array([p is not None for p in column_profiles], dtype=bool)
    capped = any(math.isfinite(cap_of(job, limits)) for job in (*rows, *columns))
    if not domain and row_known.any() and column_known.any() and ActionKind.START_SHARED in limits.allowed:
        some = np.ix_(row_known, column_known)
        ahead[some], back[some] = _predict(
            row_profiles, column_profiles, where, predictor, 0.5, extrapolate=limits.allow_extrapolation
        )
        if capped:
            row_upper[some], column_upper[some] = _predict(
                row_profiles, column_profiles, where, predictor, 1 - limits.risk, extrapolate=limits.allow_extrapolation
            )
    of_rows = objective.constant(rows)[:, None] + (objective.rate(rows) * row_times)[:, None] * ahead
    of_columns = objective.constant(columns) + objective.rate(columns) * column_times * back
    cost = of_rows + of_columns
    if running:
        cost -= objective.constant(columns) + objective.rate(columns) * column_times
    row_bytes = np.array([peak_bytes(job, p) for job, p in zip(rows, row_profiles, strict=True)])
    column_bytes = np.array([peak_bytes(job, p) for job, p in zip(columns, column_profiles, strict=True)])
    row_cap = np.array([cap_of(job, limits) for job in rows])
    column_cap = np.array([cap_of(job, limits) for job in columns])
    forbidden = np.isnan(cost) | (row_upper > row_cap[:, None]) | (column_upper > column_cap[None, :])
    if where.memory_bytes >= 0:
        forbidden |= row_bytes[:, None] + column_bytes[None, :] > where.memory_bytes
    cost[forbidden] = np.inf
    cost[[bool(where.shut_to(job)) for job in rows], :] = np.inf
    if not running:
        cost[:, [bool(where.shut_to(job)) for job in columns]] = np.inf
    return PairCosts(
        cost=cost, worst=np.maximum(of_rows, of_columns), row_slowdown=ahead, column_slowdown=back,
        rows=tuple(rows), columns=tuple(columns), where=where,
        limits=limits, row_profiles=tuple(row_profiles), column_profiles=tuple(column_profiles),
        row_bytes=row_bytes, column_bytes=column_bytes, row_upper=row_upper, column_upper=column_upper,
        row_known=row_known, column_known=column_known, domain_reason=domain,
        running=running,
    )  # fmt: skip


def _predict(
    rows: Sequence[JobProfile | None],
    columns: Sequence[JobProfile | None],
    where: DeviceClass,
    predictor: Predictor,
    quantile: float,
    *,
    extrapolate: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both directions for the known jobs; each distinct profile is predicted once."""
    row_kinds, row_of = _distinct(rows)
    column_kinds, column_of = _distinct(columns)
    answer = predictor.predict_matrix(
        row_kinds, column_kinds, where.type, where.mode, quantile=quantile, allow_extrapolation=extrapolate
    )
    spread = np.ix_(row_of, column_of)
    return answer.victim_slowdown[spread].astype(np.float64), answer.neighbour_slowdown[spread].astype(np.float64)


def _distinct(profiles: Sequence[JobProfile | None]) -> tuple[list[JobProfile], list[int]]:
    kinds: dict[int, int] = {}
    found: list[JobProfile] = []
    place = []
    for profile in profiles:
        if profile is None:
            continue
        if id(profile) not in kinds:
            kinds[id(profile)] = len(found)
            found.append(profile)
        place.append(kinds[id(profile)])
    return found, place
