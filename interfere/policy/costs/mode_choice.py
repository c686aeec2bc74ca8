"""Costs of pairs on empty devices whose sharing mode the plan may choose: of every pair those under its best mode.

Each empty device takes the mode of the pair that starts on it, whatever others take, so the plan that is best under the
least cost of every pair is the best of all plans and modes together. Law: a pair is forbidden where it is forbidden
under every mode; the rule is then that of the device's own mode. Of equal costs the device's own mode is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.costs.pair_predictions import PairPredictions
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import PairRule, RuleGroup
from interfere.records import Rule
from interfere.sharing_modes import SharingMode

Bools = NDArray[np.bool_]


def modes_to_compare(device_class: DeviceClass, context: PlanningContext) -> tuple[SharingMode, ...]:
    """The mode of the devices, then those that the limits let the plan choose and the model knows for their type."""
    limits = context.limits
    known = [
        mode
        for mode in sorted(limits.choosable_modes - {device_class.mode})
        if limits.allow_extrapolation or not context.predictor.knows(device_class.type, mode)
    ]
    return (device_class.mode, *known)


def under_best_modes(tables: Sequence[PairCosts]) -> PairCosts:
    """One table of the cheapest mode of each pair, from one of each mode, that of the devices first."""
    first = tables[0]
    if len(tables) == 1:
        return first
    best = np.argmin(np.stack([table.cost for table in tables]), axis=0)

    def chosen(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.asarray(np.take_along_axis(np.stack(arrays), best[None], axis=0)[0])

    names = [field.name for field in fields(PairPredictions)]
    cost = chosen([table.cost for table in tables])
    allowed = np.isfinite(cost)
    return replace(
        first,
        predictions=PairPredictions(
            **{name: chosen([getattr(table.predictions, name) for table in tables]) for name in names}
        ),
        cost=cost,
        row_cost=chosen([table.row_cost for table in tables]),
        column_cost=chosen([table.column_cost for table in tables]),
        max_job_cost=chosen([table.max_job_cost for table in tables]),
        rules=replace(
            first.rules, rules=tuple(_Unless(rule_of_mode=rule, allowed=allowed) for rule in first.rules.rules)
        ),
        modes=tuple(table.device_class.mode for table in tables),
        mode_index=best,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unless:
    """A rule of one mode on the pairs that no mode allows."""

    rule_of_mode: PairRule
    allowed: Bools  # bool[r, c]: under some mode

    @property
    def mask(self) -> Bools:
        """bool[r, c]: does the rule forbid the pair?"""
        return self.rule_of_mode.mask & ~self.allowed

    def rule(self, row: int, column: int) -> Rule:
        """The rule with its numbers for a pair that it forbids."""
        return self.rule_of_mode.rule(row, column)

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        """The group of each of the pairs of one row job that it forbids."""
        return self.rule_of_mode.groups(row, columns)
