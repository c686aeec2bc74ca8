"""What sharing would cost, and whether it is allowed: one table of predicted slowdowns per device class.

A pair (i, j) costs f_i(τ_i s_ij) + f_j(τ_j s_ji) with predicted medians s; see `objectives` for f and τ. Of a resident
j, which has paid f_j(τ_j) whatever is decided, only the rest counts.
A cap holds on the quantile 1 - risk of the prediction. Every forbidden pair knows the rule that binds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.miss_probability import deadline_miss_probabilities, soft_cap_probabilities
from interfere.policy.costs.objectives import weights
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.guest_ends_first import lasting_s, outlasts, why_not
from interfere.policy.rules.memory import Demand, do_not_fit, misfits, too_large
from interfere.policy.rules.runtime import FREE, Stay, left_s, lost_times, slowdowns_to_miss, stays
from interfere.policy.rules.slowdown_caps import caps_of, past_cap, protected_caps, time_caps
from interfere.protocols import Predictor
from interfere.records import NAN, ActionKind, Job, JobProfile, Limits, MatrixBatch

Floats = NDArray[np.float64]


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
    row_demands: tuple[Demand, ...]
    column_demands: tuple[Demand, ...]
    fits: NDArray[np.float64]  # float64[r, c], probability that both fit; NaN where nobody asks or knows
    row_upper: NDArray[np.float64]
    column_upper: NDArray[np.float64]
    row_known: NDArray[np.bool_]
    column_known: NDArray[np.bool_]
    domain_reason: str
    row_stays: tuple[Stay, ...]
    column_stays: tuple[Stay, ...]
    row_time: NDArray[np.float64]  # float64[r, c], caps of deadlines and windows; NaN for none
    column_time: NDArray[np.float64]
    lasting_s: tuple[Floats, Floats]  # float64[r, c] each: row here beside the column, column beside the row
    running: bool = False  # are the columns residents already?

    def either_way(self) -> "PairCosts":
        """Of jobs among themselves: what is forbidden one way is forbidden, and rounding makes no difference."""
        return replace(self, cost=np.maximum(self.cost, self.cost.T), worst=np.maximum(self.worst, self.worst.T))

    def reason(self, i: int, j: int) -> str:
        """The rule that forbids row i beside column j; empty when allowed."""
        return self._one_way(i, j) or (self._one_way(j, i) if self.rows is self.columns else "")

    def _one_way(self, i: int, j: int) -> str:
        if ActionKind.START_SHARED not in self.limits.allowed:
            most = self.limits.most_shared_gpus
            size = "" if most is None else f", or the job takes more devices than most_shared_gpus = {most}"
            return f"start_shared is not an allowed action{size}"
        if shut := self.kept_out(i) or ("" if self.running else self._shut(self.columns[j], self.column_stays[j])):
            return shut
        if unknown := self._unknown(i, j):
            return unknown
        one, other = self.row_demands[i], self.column_demands[j]
        if why := do_not_fit(one, other, float(self.fits[i, j]), self.where.room, self.limits):
            return why
        row, column = self.rows[i], self.columns[j]
        upper, time_cap = float(self.row_upper[i, j]), float(self.row_time[i, j])
        why = past_cap(row, column, self.row_profiles[i], upper, self.limits, self.row_stays[i], time_cap)
        upper, time_cap = float(self.column_upper[i, j]), float(self.column_time[i, j])
        why = why or past_cap(column, row, self.column_profiles[j], upper, self.limits, self.column_stays[j], time_cap)
        guest_s, host_s = (float(one[i, j]) for one in self.lasting_s)
        stays = self.running and self.limits.guest_ends_first and outlasts(guest_s, host_s)
        return why or (why_not(row, column, guest_s, host_s) if stays else "")

    def kept_out(self, i: int) -> str:
        """Why row i may not start there whoever else does, as long as it runs; empty where it may."""
        return self._shut(self.rows[i], self.row_stays[i])

    def _shut(self, job: Job, stay: Stay) -> str:
        return self.where.shut_to(job) or stay.shut(job.id, self.where.name)

    def too_large(self, i: int) -> str:
        """Why row i does not fit there even alone; empty when it does."""
        return too_large(self.row_demands[i], self.where.room)

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


def pair_costs(
    rows: Sequence[Job],
    columns: Sequence[Job],
    where: DeviceClass,
    context: PlanningContext,
    *,
    row_times: NDArray[np.float64],
    column_times: NDArray[np.float64],
    running: bool = False,
) -> PairCosts:
    """Costs of every row job beside every column job on one device class; the columns are `running` already or not.

    `row_times` float64[r] and `column_times` float64[c]: τ of the jobs on this device type.
    """
    predictor, limits, objective, now_s = context.predictor, context.limits, context.objective, context.now_s
    row_profiles = [context.profile(job, where.type) for job in rows]
    column_profiles = [context.profile(job, where.type) for job in columns]
    r, c = len(rows), len(columns)
    domain = "" if limits.allow_extrapolation else predictor.knows(where.type, where.mode)
    ahead, back = np.full((r, c), np.nan), np.full((r, c), np.nan)
    row_upper, column_upper = ahead.copy(), back.copy()
    row_known, column_known = (
        np.array([p is not None for p in x], dtype=bool) for x in (row_profiles, column_profiles)
    )
    timed = math.isfinite(where.open_s) or any(not math.isnan(job.deadline_s) for job in (*rows, *columns))
    row_stays, column_stays = (
        stays(jobs, times, where.open_s, now_s, limits.slowdown.risk) if timed else (FREE,) * len(jobs)
        for jobs, times in ((rows, row_times), (columns, column_times))
    )
    row_cap = np.minimum(caps_of(rows, row_profiles, limits)[:, None], protected_caps(rows, columns, limits))
    column_cap = np.minimum(caps_of(columns, column_profiles, limits)[:, None], protected_caps(columns, rows, limits)).T
    capped = timed or np.isfinite(row_cap).any() or np.isfinite(column_cap).any()
    fits = np.full((r, c), np.nan)
    some = np.ix_(row_known, column_known)
    if not domain and row_known.any() and column_known.any() and ActionKind.START_SHARED in limits.allowed:
        ahead[some], back[some], likely = _predict(row_profiles, column_profiles, where, predictor, 0.5, limits)
        if likely is not None:
            fits[some] = likely
        if capped:
            row_upper[some], column_upper[some], _ = _predict(
                row_profiles, column_profiles, where, predictor, 1 - limits.slowdown.risk, limits
            )
    row_time, column_time = (
        time_caps(one, other, upper) if timed else np.full(upper.shape, np.nan)
        for one, other, upper in ((row_stays, column_stays, column_upper), (column_stays, row_stays, row_upper.T))
    )
    of_rows = objective.constant(rows)[:, None] + (objective.rate(rows) * row_times)[:, None] * ahead
    of_columns = objective.constant(columns) + objective.rate(columns) * column_times * back
    of_rows += (objective.rate(rows) * lost_times(rows, row_stays))[:, None]
    if not running:
        of_columns += objective.rate(columns) * lost_times(columns, column_stays)
    if objective.deadline_miss_price and timed and not np.isnan(ahead).all():
        row_cases = slowdowns_to_miss(rows, row_times, now_s, left_s(columns, column_times) * back)
        column_cases = slowdowns_to_miss(columns, column_times, now_s, left_s(rows, row_times) * ahead.T)
        miss, other = deadline_miss_probabilities(
            lambda level: _predict(row_profiles, column_profiles, where, predictor, level, limits)[:2],
            row_cases[:, some[0], some[1]],
            column_cases[:, some[1], some[0]],
            running=running,
        )
        of_rows[some] += objective.deadline_miss_price * weights(rows)[row_known][:, None] * miss
        of_columns[some] += objective.deadline_miss_price * weights(columns)[column_known] * other
    cost = of_rows + of_columns
    if running:
        cost -= objective.constant(columns) + objective.rate(columns) * column_times
    if objective.soft_cap_price and not np.isnan(cost).all():
        past = soft_cap_probabilities(
            lambda level: _predict(row_profiles, column_profiles, where, predictor, level, limits)[:2],
            limits.slowdown.soft_cap,
        )
        cost[some] += objective.soft_cap_price * past
    row_demands, column_demands = ([context.demand(job, where) for job in jobs] for jobs in (rows, columns))
    forbidden = np.isnan(cost) | (row_upper > np.fmin(row_cap, row_time))
    forbidden |= (column_upper > np.fmin(column_cap, column_time.T)) | misfits(
        row_demands, column_demands, fits, where.room, limits
    )
    lasting = lasting_s(rows, row_times, ahead), lasting_s(columns, column_times, back.T).T
    if running and limits.guest_ends_first:
        forbidden |= outlasts(*lasting)
    cost[forbidden] = np.inf
    cost[_shut(rows, row_stays, where), :] = np.inf
    if not running:
        cost[:, _shut(columns, column_stays, where)] = np.inf
    return PairCosts(
        row_stays=row_stays,
        column_stays=column_stays,
        row_time=row_time,
        column_time=column_time.T,
        lasting_s=lasting,
        cost=cost,
        worst=np.maximum(of_rows, of_columns),
        row_slowdown=ahead,
        column_slowdown=back,
        rows=tuple(rows),
        columns=tuple(columns),
        where=where,
        limits=limits,
        row_profiles=tuple(row_profiles),
        column_profiles=tuple(column_profiles),
        row_demands=tuple(row_demands),
        column_demands=tuple(column_demands),
        fits=fits,
        row_upper=row_upper,
        column_upper=column_upper,
        row_known=row_known,
        column_known=column_known,
        domain_reason=domain,
        running=running,
    )


def _shut(jobs: Sequence[Job], found: Sequence[Stay], where: DeviceClass) -> list[bool]:
    return [bool(where.shut_to(job) or one.shut(job.id, where.name)) for job, one in zip(jobs, found, strict=True)]


def _predict(
    rows: Sequence[JobProfile | None],
    columns: Sequence[JobProfile | None],
    where: DeviceClass,
    predictor: Predictor,
    quantile: float,
    limits: Limits,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """Both directions for the known jobs, and how likely they fit; each distinct profile is predicted once."""
    row_kinds, row_of = _distinct(rows)
    column_kinds, column_of = _distinct(columns)
    answer = predictor.predict_matrix(
        MatrixBatch(
            victims=row_kinds,
            neighbours=column_kinds,
            device_type=where.type,
            mode=where.mode,
            device_memory_bytes=where.room.most_bytes if where.room.memory_bytes >= 0 else NAN,
            allow_extrapolation=limits.allow_extrapolation,
        ),
        quantile=quantile,
    )
    spread = np.ix_(row_of, column_of)
    fits = None
    if answer.feasibility is not None and not math.isnan(limits.memory.misfit_risk):
        fits = answer.feasibility[spread].astype(np.float64)
    ahead, back = answer.victim_slowdown[spread], answer.neighbour_slowdown[spread]
    return ahead.astype(np.float64), back.astype(np.float64), fits


def _distinct(profiles: Sequence[JobProfile | None]) -> tuple[tuple[JobProfile, ...], list[int]]:
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
    return tuple(found), place
