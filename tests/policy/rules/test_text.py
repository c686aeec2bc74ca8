"""Rules in words: every kind has a sentence, and the numbers of a rule are in it."""

import pytest

from interfere.policy.rules.group_rules import RuleGroup
from interfere.policy.rules.text import format_demand, format_duration, render, summary_rule
from interfere.records import MemoryBasis, MemoryDemand, Rule, RuleKind
from interfere.reports.numbers import format_gib

GIB = 2.0**30


@pytest.mark.parametrize("kind", RuleKind)
def test_every_kind_has_a_sentence_alone_and_for_several_pairs(kind: RuleKind) -> None:
    demand = MemoryDemand(needed_bytes=GIB, working_set_bytes=GIB)
    rule = Rule(kind=kind, job_id="x", demand=demand)
    assert render(rule)
    assert render(summary_rule("x", RuleGroup(kind, workload="w"), 1)).endswith(" (1 pair)")
    assert render(summary_rule("x", RuleGroup(kind, workload="w"), 12)).endswith(" (12 pairs)")


def test_sizes_and_times_as_people_read_them() -> None:
    assert format_gib(61 * GIB) == "61 GiB"
    assert [format_duration(s) for s in (5.0, 90.0, 6840.0, -7200.0)] == ["5 s", "1.5 min", "1.9 h", "-2 h"]


def test_a_demand_names_what_it_is_known_from() -> None:
    assert format_demand(MemoryDemand(needed_bytes=GIB)) == "1 GiB"
    traced = MemoryDemand(needed_bytes=GIB, basis=MemoryBasis.STATIC_TRACE)
    assert format_demand(traced) == "1 GiB (static trace)"
    measured = MemoryDemand(
        needed_bytes=3 * GIB,
        basis=MemoryBasis.MEASURED_USE,
        known_bytes=2 * GIB,
        known_basis=MemoryBasis.WORKING_SET,
    )
    assert format_demand(measured) == "3 GiB (measured use, more than the 2 GiB (working set) known)"
