"""A rule on pairs of jobs: where it forbids them as one array, and for one pair the rule with its numbers.

Law: a pair is forbidden exactly where `PairRules.blocking_rule` gives a rule; both read the same masks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.records.rules import Rule, RuleKind

Bools = NDArray[np.bool_]
Group = Sequence[NDArray[np.int64]]
"""Of each member of groups its place among n jobs; the arrays broadcast to the shape [...] of all groups."""


class RuleGroup(NamedTuple):
    """The key by which refusals are counted together: the kind of rule, and the workloads or device type that the model
    lacks."""

    kind: RuleKind
    workload: str = ""
    partner_workload: str = ""
    device_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRule:
    """One rule on r row jobs beside c column jobs."""

    mask: Bools  # bool[r, c]: where the rule forbids the pair
    rule: Callable[[int, int], Rule]  # (row, column) -> the rule with its numbers for a pair that it forbids
    # (row, columns) -> the group under which each forbidden pair of a row is reported.
    groups: Callable[[int, Sequence[int]], Sequence[RuleGroup]]

    @classmethod
    def of_kind(cls, kind: RuleKind, mask: Bools, rule: Callable[[int, int], Rule]) -> "PairRule":
        """Return a rule that reports all pairs under its kind."""
        return cls(mask=mask, rule=rule, groups=lambda _, columns: [RuleGroup(kind)] * len(columns))

    @classmethod
    def of_pairs(
        cls, mask: Bools, rule: Callable[[int, int], Rule], group: Callable[[int, int], RuleGroup]
    ) -> "PairRule":
        """Return a rule that reports each pair under a group of its own."""
        return cls(mask=mask, rule=rule, groups=lambda row, columns: [group(row, column) for column in columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRules:
    """All rules on the pairs of one table, in the order in which they bind."""

    rules: tuple[PairRule, ...] = ()

    def forbidden(self, shape: tuple[int, int]) -> Bools:
        """bool[r, c]: does any rule forbid the pair?"""
        forbidden = np.zeros(shape, dtype=bool)
        for rule in self.rules:
            forbidden |= rule.mask
        return forbidden

    def blocking_rule(self, row: int, column: int) -> Rule | None:
        """The first rule that forbids the pair; None where it is allowed."""
        return next((rule.rule(row, column) for rule in self.rules if rule.mask[row, column]), None)

    def blocking_groups(self, row: int, columns: Sequence[int]) -> list[RuleGroup | None]:
        """The group of the first rule that forbids each pair of one row; no `Rule` is built."""
        groups: dict[int, RuleGroup] = {}
        for rule in self.rules:
            forbidden = [j for j in columns if j not in groups and rule.mask[row, j]]
            groups.update(zip(forbidden, rule.groups(row, forbidden), strict=True))
        return [groups.get(j) for j in columns]
