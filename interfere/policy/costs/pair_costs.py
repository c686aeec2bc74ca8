"""What sharing a device would cost, and which rule forbids it: one table of pairs for each device class.

A pair (i, j) costs f_i(τ_i s_ij) + f_j(τ_j s_ji) with predicted medians s; see `objectives` for f and τ. For a
resident only the added cost counts. A cap holds on the quantile 1 - risk of the prediction.
Law: a cost is infinite exactly where a rule forbids the pair.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.miss_probability import deadline_miss_probabilities, soft_cap_probabilities
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.occupancy import pair_occupancy_costs
from interfere.policy.costs.pair_predictions import PairPredictions, PairPredictor
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.availability import AvailabilityRule
from interfere.policy.rules.guest_ends_first import expected_runtimes_s, guest_rule
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.joint_throughput import joint_throughput_rule
from interfere.policy.rules.memory import pair_memory_rules
from interfere.policy.rules.pair_rules import PairRule, PairRules, UniformRule
from interfere.policy.rules.predictability import predictability_rules
from interfere.policy.rules.runtime import (
    median_runtimes_s,
    pair_end_s,
    relative_checkpoint_losses,
    slowdowns_to_miss,
)
from interfere.policy.rules.slowdown_caps import SlowdownCapRule, SlowdownCaps, time_caps
from interfere.records import ActionKind, Job, Limits, Rule, RuleKind
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts:
    """r row jobs beside c column jobs on one device class: who, what is predicted, what it costs, what forbids it."""

    rows: JobsOnClass
    columns: JobsOnClass
    predictions: PairPredictions
    cost: Floats  # float64[r, c], of the pair, beside a resident what is added; inf where a rule forbids it
    row_cost: Floats  # float64[r, c], what the row job costs of it; NaN or inf where the pair is forbidden
    column_cost: Floats  # float64[r, c], what the column job costs of it; the rest belongs to the pair
    max_job_cost: Floats  # float64[r, c], the larger cost of the two jobs, that of a resident as a whole
    rules: PairRules
    modes: tuple[SharingMode, ...] = ()  # among which the plan chose; empty where the devices keep theirs
    mode_index: NDArray[np.int64] | None = None  # int64[r, c], of the chosen one

    def mode(self, row: int, column: int) -> SharingMode:
        """The sharing mode under which the pair is predicted."""
        return self.device_class.mode if self.mode_index is None else self.modes[int(self.mode_index[row, column])]

    @property
    def device_class(self) -> DeviceClass:
        """The class of the devices."""
        return self.rows.device_class

    def symmetric(self) -> "PairCosts":
        """The costs of jobs among themselves: a pair that is forbidden one way is forbidden, and costs the same."""
        own = np.maximum(self.row_cost, self.column_cost.T)
        return replace(
            self,
            cost=np.maximum(self.cost, self.cost.T),
            row_cost=own,
            column_cost=own.T,
            max_job_cost=np.maximum(self.max_job_cost, self.max_job_cost.T),
            rules=replace(self.rules, symmetric=True),
        )

    def blocking_rule(self, row: int, column: int) -> Rule | None:
        """The rule that forbids a pair; None where it is allowed."""
        return self.rules.blocking_rule(row, column)


def pair_costs(
    rows: Sequence[Job],
    columns: Sequence[Job],
    device_class: DeviceClass,
    context: PlanningContext,
    *,
    row_times: Floats,
    column_times: Floats,
    running: bool = False,
) -> PairCosts:
    """Costs of every row job beside every column job on one device class; the columns are `running` already or not.

    `row_times` float64[r] and `column_times` float64[c]: τ of the jobs on this device type.
    """
    # 1. Look the jobs up.
    deadlines = any(not math.isnan(job.deadline_s) for job in (*rows, *columns))
    timed = math.isfinite(device_class.open_s) or deadlines
    row_jobs = JobsOnClass.of(rows, device_class, context, row_times, timed=timed)
    column_jobs = JobsOnClass.of(columns, device_class, context, column_times, timed=timed)
    predictor = PairPredictor(rows=row_jobs, columns=column_jobs, context=context)
    table = _PairTable(
        rows=row_jobs, columns=column_jobs, context=context, predictor=predictor, running=running, timed=timed
    )
    # 2. Predict medians, and upper quantiles where a cap may bind.
    caps = table.slowdown_caps()
    capped = timed or any(np.isfinite(cap.tightest()).any() for cap in caps)
    predictions = predictor.predict(capped=capped)
    # 3. Cost each job, then each pair.
    row_cost, column_cost = table.job_costs(predictions)
    max_job_cost = np.maximum(row_cost, column_cost)
    if running:
        column_cost = column_cost - table.cost_alone()
    cost = table.pair_cost(row_cost, column_cost, predictions)
    # 4. Collect the rules, and forbid what any of them forbids.
    rules = PairRules(rules=tuple(table.rules(predictions, caps, np.isnan(cost))))
    cost[rules.forbidden(cost.shape)] = np.inf
    return PairCosts(
        rows=row_jobs,
        columns=column_jobs,
        predictions=predictions,
        cost=cost,
        row_cost=row_cost,
        column_cost=column_cost,
        max_job_cost=max_job_cost,
        rules=rules,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairTable:
    """The stages of `pair_costs` for one table."""

    rows: JobsOnClass
    columns: JobsOnClass
    context: PlanningContext
    predictor: PairPredictor
    running: bool  # are the columns residents already?
    timed: bool  # does a deadline or a window play a part?

    @property
    def _limits(self) -> Limits:
        return self.context.limits

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.rows.jobs), len(self.columns.jobs)

    def slowdown_caps(self) -> tuple[SlowdownCaps, SlowdownCaps]:
        """The caps of the row jobs against the column jobs, and the other way round."""
        rows, columns = self.rows, self.columns
        return (
            SlowdownCaps.of(rows.jobs, rows.profiles, columns.jobs, self._limits),
            SlowdownCaps.of(columns.jobs, columns.profiles, rows.jobs, self._limits),
        )

    # --- costs ------------------------------------------------------------------------------------------------------

    def job_costs(self, predictions: PairPredictions) -> tuple[Floats, Floats]:
        """float64[r, c] each: what the row job costs beside the column job, and the column job beside the row job."""
        objective, rows, columns = self.context.objective, self.rows, self.columns
        ahead, back = predictions.row_slowdown, predictions.column_slowdown
        row_rate, column_rate = objective.rate(rows.jobs), objective.rate(columns.jobs)
        row_alone, column_alone = (row_rate * rows.relative_times)[:, None], column_rate * columns.relative_times
        row_cost = objective.constant(rows.jobs)[:, None] + row_alone * ahead
        column_cost = objective.constant(columns.jobs) + column_alone * back
        if objective.counts_ends:  # once the first of the two has ended, the other runs alone
            row_cost = pair_end_s(row_alone, column_alone, ahead, back)
            column_cost = pair_end_s(column_alone, row_alone, back, ahead)
        row_cost += (row_rate * relative_checkpoint_losses(rows.jobs, rows.runtimes))[:, None]
        if not self.running:
            column_cost += column_rate * relative_checkpoint_losses(columns.jobs, columns.runtimes)
        if objective.deadline_miss_price and self.timed and not np.isnan(ahead).all():
            profiled = self.predictor.profiled
            row_misses, column_misses = self._miss_probabilities(predictions)
            row_weights, column_weights = weights(rows.jobs)[rows.profiled], weights(columns.jobs)[columns.profiled]
            row_cost[profiled] += objective.deadline_miss_price * row_weights[:, None] * row_misses
            column_cost[profiled] += objective.deadline_miss_price * column_weights * column_misses
        return row_cost, column_cost

    def _miss_probabilities(self, predictions: PairPredictions) -> tuple[Floats, Floats]:
        """P(the job misses its deadline beside the other) for the profiled pairs: of row jobs, of column jobs."""
        rows, columns, now_s, at = self.rows, self.columns, self.context.now_s, self.predictor.profiled
        row_median_s = median_runtimes_s(rows.jobs, rows.relative_times)
        column_median_s = median_runtimes_s(columns.jobs, columns.relative_times)
        row_partner_s = column_median_s * predictions.column_slowdown
        column_partner_s = row_median_s * predictions.row_slowdown.T
        row_cases = slowdowns_to_miss(rows.jobs, rows.relative_times, now_s, row_partner_s)
        column_cases = slowdowns_to_miss(columns.jobs, columns.relative_times, now_s, column_partner_s)
        return deadline_miss_probabilities(
            self.predictor.slowdown_quantile,
            row_cases[:, at[0], at[1]],
            column_cases[:, at[1], at[0]],
            running=self.running,
        )

    def cost_alone(self) -> Floats:
        """float64[c]: what each resident costs without a neighbour."""
        objective, columns = self.context.objective, self.columns
        return objective.constant(columns.jobs) + objective.rate(columns.jobs) * columns.relative_times

    def pair_cost(self, row_cost: Floats, column_cost: Floats, predictions: PairPredictions) -> Floats:
        """float64[r, c]: what the pair costs, beside residents what it adds; NaN where nothing is predicted."""
        objective = self.context.objective
        cost = row_cost + column_cost
        if objective.soft_cap_price and not np.isnan(cost).all():
            past = soft_cap_probabilities(self.predictor.slowdown_quantile, self._limits.slowdown.soft_cap)
            cost[self.predictor.profiled] += objective.soft_cap_price * past
        if objective.prices_occupancy:
            cost += pair_occupancy_costs(self.rows, self.columns, predictions, objective, running=self.running)
        return cost

    # --- rules ------------------------------------------------------------------------------------------------------

    def rules(
        self, predictions: PairPredictions, caps: tuple[SlowdownCaps, SlowdownCaps], abstained: NDArray[np.bool_]
    ) -> Iterator[PairRule]:
        """Every rule on these pairs, in the order in which they bind. `abstained` bool[r, c]: is there no cost?"""
        rows, columns, limits = self.rows, self.columns, self._limits
        if ActionKind.START_SHARED not in limits.allowed:
            yield self._not_allowed()
        resident_rules = (None,) * len(columns.jobs)
        yield AvailabilityRule(rows.start_rules, resident_rules if self.running else columns.start_rules)
        yield from predictability_rules(
            rows.jobs,
            columns.jobs,
            rows.profiled,
            columns.profiled,
            abstained,
            rows.device_class,
            self.predictor.unknown_domain,
        )
        yield from pair_memory_rules(
            rows.ids,
            columns.ids,
            rows.demands,
            columns.demands,
            predictions.fit_probability,
            rows.device_class.memory,
            limits,
        )
        row_upper, column_upper = predictions.row_upper, predictions.column_upper.T
        yield self._cap_rule(rows, columns, caps[0], row_upper, column_upper.T, of_columns=False)
        yield self._cap_rule(columns, rows, caps[1], column_upper, row_upper.T, of_columns=True)
        yield joint_throughput_rule(
            rows.jobs,
            columns.jobs,
            predictions.row_slowdown,
            predictions.column_slowdown,
            limits.slowdown.min_joint_throughput,
        )
        if self.running and limits.guest_ends_first:
            guest_s = expected_runtimes_s(rows.jobs, rows.relative_times, predictions.row_slowdown)
            host_s = expected_runtimes_s(columns.jobs, columns.relative_times, predictions.column_slowdown.T).T
            yield guest_rule(rows.jobs, columns.jobs, guest_s, host_s)

    def _not_allowed(self) -> UniformRule:
        rows, columns, limits = self.rows, self.columns, self._limits
        return UniformRule(
            kind=RuleKind.ACTION_NOT_ALLOWED,
            mask=np.broadcast_to(np.True_, self._shape),
            rule_of=lambda i, j: Rule(
                kind=RuleKind.ACTION_NOT_ALLOWED,
                job_id=rows.jobs[i].id,
                partner_id=columns.jobs[j].id,
                action=ActionKind.START_SHARED,
                max_shared_gpus=limits.most_shared_gpus,
            ),
        )

    def _cap_rule(
        self,
        jobs: JobsOnClass,
        partners: JobsOnClass,
        caps: SlowdownCaps,
        upper: Floats,
        partner_upper: Floats,
        *,
        of_columns: bool,
    ) -> SlowdownCapRule:
        """The caps of one side; `upper` and `partner_upper` have its jobs in their rows."""
        time_cap = np.full(upper.shape, np.nan)
        if self.timed:
            time_cap = time_caps(jobs.runtimes, partners.runtimes, partner_upper)
        return SlowdownCapRule(
            jobs=jobs.jobs,
            partners=partners.jobs,
            profiles=jobs.profiles,
            runtimes=jobs.runtimes,
            caps=caps,
            time_cap=time_cap,
            upper=upper,
            risk=self._limits.slowdown.risk,
            caps_columns=of_columns,
        )
