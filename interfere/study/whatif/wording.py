"""The sentences of a what-if answer, the same for a terminal, a page and programs."""

import math
from collections.abc import Sequence

from interfere.reports.document import Tone
from interfere.sim.ratio_interval import CONFIDENCE
from interfere.sim.schedulers.records import Sharing
from interfere.sim.uncertainty import UncertainMean
from interfere.study.whatif.effects import SAME_SHARE, Effect, PlacementComparison, WhatIfFindings

SCENARIOS = {
    "alone": "run alone",
    "median": "share as the median measured pair",
    "worst": "share as the worst measured pair",
}

GROUPS = (
    "Three and more jobs on a device, under queues that stop no job: matching alone forms such groups. One that nobody "
    "measured slows each job down by the sum of its pairs, 1 + Σ (s - 1), or by their product; measured groups lie "
    "between the two."
)


def coverage_text(answer: WhatIfFindings) -> str:
    """Return a sentence on the share of the trace that the slowdowns cover. A reader needs it before any gain."""
    coverage = answer.coverage
    source = "The model predicts slowdowns of" if answer.is_predicted else "Measured slowdowns cover"
    text = f"{source} {coverage.job_share:.1%} of the jobs and {coverage.gpu_h_share:.1%} of the GPU hours"
    if coverage.has_gangs:
        share = coverage.known_gang_gpu_h / coverage.known_gpu_h
        text += (
            f"; {share:.1%} of these hours are of jobs on several GPUs, which no table measured in pairs: they share "
            "only where a line says so"
        )
    if answer.is_predicted:
        text = f"{text}; nothing of it is measured: every figure below is as good as these predictions"
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in answer.left_out)
    return f"{text}; jobs left out of all this: {left_out}" if left_out else text


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage with its sign."""
    return "" if math.isnan(share) else f"{100 * share:+.{digits}f} %"


def interval(change: UncertainMean | None) -> str:
    """The interval of the mean in brackets; empty where too little is known for one."""
    if change is None or not change.interval.is_known:
        return ""
    return f"[{100 * change.interval.low:+.1f}, {100 * change.interval.high:+.1f}]"


def change_text(change: UncertainMean | None) -> str:
    """The change with its interval."""
    return "" if change is None else f"{percent(change.mean)} {interval(change)}".rstrip()


def main_effects(answer: WhatIfFindings) -> list[Effect]:
    """Return the effects of greedy placement in stable worlds, under each queue at the trace's own load.

    Where all worlds are overloaded, return the effects at the highest load of the study.
    """
    plain = [effect for effect in answer.effects if effect.is_plain and effect.sharing is Sharing.GREEDY]
    own = [effect for effect in plain if effect.target_load is None and not effect.overloaded]
    if own:
        return own
    loads = [effect.target_load for effect in plain if effect.target_load is not None]
    return [effect for effect in plain if loads and effect.target_load == max(loads)]


def load_text(effect: Effect) -> str:
    """At which load, in words."""
    return f"its own load ({effect.load:.2f})" if effect.target_load is None else f"a load of {effect.target_load:g}"


def verdict(answer: WhatIfFindings) -> tuple[str, Tone]:
    """The first sentence, and its tone: good, bad or unsure."""
    effects = main_effects(answer)
    if not effects or effects[0].change is None:
        return "No replay was finished that compares sharing with none.", Tone.UNSURE
    first = effects[0]
    assert first.change is not None
    ends = first.change.interval
    text = (
        f"At {load_text(first)}, sharing two jobs a GPU would change the mean completion time by "
        f"{change_text(first.change)} under {first.queue}"
    )
    if all(effect.shared == 0 for effect in effects):
        return f"At {load_text(first)} no job would share: devices are free whenever one arrives.", Tone.UNSURE
    others = [effect for effect in effects[1:] if effect.change is not None]
    if others:
        text += "; " + ", ".join(f"{effect.queue} {change_text(effect.change)}" for effect in others)
    if not ends.is_known:
        return f"{text}. No interval: {ends.missing}.", Tone.UNSURE
    tone = Tone.GOOD if ends.high < 0 else Tone.BAD if ends.low > 0 else Tone.UNSURE
    doubt = (
        ""
        if tone is not Tone.UNSURE
        else f" Under {first.queue} the interval holds 0: no change can be told from none."
    )
    return f"{text}.{doubt}", tone


def population_text(answer: WhatIfFindings) -> str:
    """Return a sentence on the populations that the intervals and spreads describe."""
    changes = [effect.change for effect in main_effects(answer) if effect.change is not None]
    if not changes:
        return ""
    change = next((each for each in changes if each.interval.is_known), changes[0])
    reason = f", none here: {change.interval.missing}" if change.interval.missing else ""
    return (
        f"In brackets: {CONFIDENCE:.0%} interval of the {change.interval.population}{reason}; it is from overlapping "
        "batches of these days and says nothing about other clusters. Spread: what "
        f"{CONFIDENCE:.0%} of {change.spread.population} bring."
    )


def placement_text(comparisons: Sequence[PlacementComparison]) -> str:
    """Greedy or matching: which one to choose."""
    if not comparisons:
        return "Greedy placement and matching were not compared."
    gap = min(comparisons, key=lambda each: each.difference)
    ratio = sum(each.matching_cpu_s for each in comparisons) / max(sum(each.greedy_cpu_s for each in comparisons), 1e-9)
    cost = f"takes {ratio:.1f} × the CPU time"
    at = f"{gap.queue} at load {gap.load:.2f}"
    if gap.difference < -SAME_SHARE:
        return (
            f"Matching ends jobs up to {percent(-gap.difference)[1:]} sooner than greedy placement ({at}); it {cost}."
        )
    return (
        f"Greedy placement is within 1 % of matching wherever they were compared (at best {percent(gap.difference)}, "
        f"{at}), and matching {cost}: choose greedy, the simpler one."
    )


def scenario_text(answer: WhatIfFindings) -> str:
    """Return a sentence on how much the workloads without truth could change the answer."""
    if not answer.unknown or answer.is_predicted:
        return ""
    queue = answer.study.schedulers[0].label
    found = [
        effect
        for effect in answer.effects
        if effect.queue == queue
        and effect.sharing is Sharing.GREEDY
        and effect.target_load is None
        and not effect.overloaded
        and not effect.gangs_share
        and math.isinf(effect.max_slowdown)
        and effect.change is not None
    ]
    parts = [f"{change_text(effect.change)} if they {SCENARIOS[effect.scenario]}" for effect in found]
    share = sum(each.gpu_h for each in answer.unknown) / max(answer.coverage.gpu_h, 1e-12)
    head = f"Workloads without a measured pair have {share:.0%} of the GPU hours"
    return f"{head}; under {queue}: {', '.join(parts)}." if parts else f"{head}."


def pair_name(names: tuple[str, str]) -> str:
    """An unordered pair in words."""
    first, second = names
    return f"{first} beside a second copy of it" if first == second else f"{first} beside {second}"


def notes(answer: WhatIfFindings) -> list[str]:
    """Return the warnings that a reader needs before relying on the report."""
    oracle = [record.label for record in answer.study.schedulers if record.knows_durations]
    texts = [
        *answer.notes,
        "Durations are those of the trace, and the scheduler knows slowdowns as they are: a real one errs in both.",
        *(
            [f"{', '.join(oracle)}: the queue knows how long jobs will run, as users' limits at best tell."]
            if oracle
            else []
        ),
        f"Two jobs share a device at most{', more only where a line says so' if answer.study.seats else ''}. Pairs "
        "whose memory does not fit are formed unless the table says so.",
    ]
    if answer.coverage.has_gangs:
        texts.append(
            "Jobs on several GPUs share only in the lines that say so, and there slow down as on one GPU: nobody "
            "measured that."
        )
    if any(effect.overloaded for effect in answer.effects):
        texts.append("Worlds with an own load of 1 or more stand apart: gains there grow with the length of the trace.")
    texts.append(f"{answer.replays} of {answer.planned} replays, {answer.cpu_s:.0f} s of CPU.")
    return texts
