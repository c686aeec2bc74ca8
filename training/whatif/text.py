"""A what-if answer for a terminal of 80 characters."""

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.schedulers.names import GREEDY, MATCHING
from interfere.sim.truth import Composition
from interfere.training.whatif import wording
from interfere.training.whatif.answer import WhatIfAnswer
from interfere.training.whatif.effects import Effect


def summary(answer: WhatIfAnswer) -> Group:
    """Coverage, the verdict, the tables and what to measure."""
    parts: list[Text | Table] = [Text(wording.coverage_text(answer), style="bold")]
    if answer.interrupted:
        parts.append(Text(f"interrupted: {answer.replays} of {answer.planned} replays were done", style="bold"))
    parts += [Text(wording.verdict(answer)[0], style="bold"), Text(wording.placement_text(answer.comparisons))]
    if text := wording.scenario_text(answer):
        parts.append(Text(text))
    parts += [_by_queue(answer), *_by_load(answer)]
    if seated := seats_effects(answer):
        parts += [_by_seats(seated), Text(wording.GROUPS, style="dim")]
    if answer.missing.pairs:
        parts.append(
            Text(f"{answer.missing.unmeasured_share:.0%} of the hours in which jobs would meet are not measured")
        )
        parts.append(_pairs(answer))
    parts.append(Text(wording.population_text(answer), style="dim"))
    parts += [Text(note, style="dim") for note in wording.notes(answer)]
    return Group(*parts)


def effect_label(effect: Effect) -> str:
    """How jobs are placed, in words."""
    words = [effect.sharing]
    if effect.gangs_share:
        words.append("gangs (assumed)")
    if math.isfinite(effect.max_slowdown):
        words.append(f"cap {effect.max_slowdown:g}")
    if effect.is_other_scenario:
        words.append(f"unknown {effect.scenario}")
    if effect.overloaded:
        words.append("overloaded")
    return ", ".join(words)


def _by_queue(answer: WhatIfAnswer) -> Table:
    table = _table("By queue and cap", "queue", "load", "placement", "change of mean", "mean (h)", "past 1.5")
    for effect in cap_effects(answer):
        table.add_row(
            effect.queue,
            f"{effect.load:.2f}",
            effect_label(effect),
            wording.change_text(effect.change),
            f"{effect.mean_completion_s / 3600:,.2f}",
            f"{effect.past_cap:.0%}",
        )
    return table


def cap_effects(answer: WhatIfAnswer) -> list[Effect]:
    """The effects at the trace's own load and at the one at which caps were compared, overloaded worlds last."""
    capped = {effect.target_load for effect in answer.effects if math.isfinite(effect.max_slowdown)}
    loads = capped | {None}
    pairs = [effect for effect in answer.effects if effect.seats == DEFAULT_SEATS]
    shown = [effect for effect in pairs if effect.target_load in loads and not effect.is_other_scenario]
    return sorted(shown, key=lambda effect: (effect.overloaded, effect.target_load or 0.0))


def seats_effects(answer: WhatIfAnswer) -> list[Effect]:
    """The effects of more than two seats, each queue and load led by that of two; overloaded worlds last."""

    def place(effect: Effect) -> tuple[bool, float, str]:
        return effect.overloaded, effect.target_load or 0.0, effect.queue

    seated = {place(effect) for effect in answer.effects if effect.seats > DEFAULT_SEATS}
    shown = [effect for effect in answer.effects if effect.sharing == MATCHING and place(effect) in seated]
    return sorted(shown, key=lambda effect: (*place(effect), effect.seats, effect.composition != Composition.SUM))


def seats_label(effect: Effect) -> str:
    """How many jobs share a device, and how groups were composed of pairs."""
    overloaded = ", overloaded" if effect.overloaded else ""
    return f"{effect.seats}{f', by {effect.composition}' if effect.seats > DEFAULT_SEATS else ''}{overloaded}"


def _by_seats(effects: Sequence[Effect]) -> Table:
    table = _table("By jobs a device, under matching", "queue", "load", "jobs", "change of mean", "against two")
    for effect in effects:
        table.add_row(
            effect.queue,
            f"{effect.load:.2f}",
            seats_label(effect),
            wording.change_text(effect.change),
            wording.change_text(effect.change_to_pairs),
        )
    return table


def _by_load(answer: WhatIfAnswer) -> list[Table]:
    loads = sorted({effect.target_load for effect in answer.effects if effect.target_load is not None})
    if not loads:
        return []
    table = _table(
        "Change of the mean completion time by greedy sharing without a cap, by load (%)",
        "queue",
        *(f"{x:g}" for x in loads),
    )
    kinds = dict.fromkeys(
        (effect.queue, effect.gangs_share)
        for effect in answer.effects
        if effect.sharing == GREEDY and effect.target_load is not None
    )
    for queue, gangs in kinds:
        found = {
            effect.target_load: effect.change
            for effect in answer.effects
            if (effect.queue, effect.gangs_share, effect.sharing) == (queue, gangs, GREEDY)
            and math.isinf(effect.max_slowdown)
            and not effect.is_other_scenario
        }
        cells = [found.get(load) for load in loads]
        label = f"{queue}, gangs (assumed)" if gangs else queue
        table.add_row(label, *("" if cell is None else f"{100 * cell.mean:+.1f}" for cell in cells))
    return [table]


def _pairs(answer: WhatIfAnswer) -> Table:
    table = _table("Measure these pairs first", "pair", "GPU hours", "narrows")
    for pair in answer.missing.pairs:
        table.add_row(wording.pair_name(pair.names), f"{pair.gpu_h:,.0f}", f"{pair.narrows:.1%}")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="left" if heading == "placement" else "right", overflow="fold")
    return table
