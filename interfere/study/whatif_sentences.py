"""The sentences of a what-if answer, the verdict first."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interfere.reports.document import Tone
from interfere.reports.numbers import format_hours
from interfere.sim.schedulers.records import Sharing
from interfere.sim.truth import GANG_EXCESS
from interfere.sim.uncertainty import CONFIDENCE, UncertainMean
from interfere.study.comparison import Line, TraceGroup
from interfere.study.questions import StudyInputs
from interfere.study.replay_report import CHANGE, change_text
from interfere.study.whatif_findings import LATER_SHARE, PAYS, DevicesSaved, JobGroup

if TYPE_CHECKING:
    from interfere.study.whatif_question import WhatIfAnswer

NO_WAIT_S = 60.0  # below it, nobody says that a job waits
TELLING_SHARE = 0.2  # of the jobs that end later: a group with so many of them may be named
SCENARIOS = {
    "alone": "run alone",
    "median": "share as the median measured pair",
    "worst": "share as the worst measured pair",
}


def coverage_text(inputs: StudyInputs) -> str:
    """Return a sentence on the share of the trace that the slowdowns cover. A reader needs it before any gain."""
    coverage = inputs.coverage
    source = "The model predicts slowdowns of" if inputs.is_predicted else "Measured slowdowns cover"
    text = f"{source} {coverage.job_share:.1%} of the jobs and {coverage.gpu_h_share:.1%} of the GPU hours"
    if coverage.has_gangs:
        share = coverage.known_gang_gpu_h / coverage.known_gpu_h
        text += (
            f"; {share:.1%} of these hours are of jobs on several GPUs, which no table of GPUs measured in pairs: "
            "they share only where a line says so"
        )
    if inputs.is_predicted:
        text = f"{text}; nothing of it is measured: every figure below is as good as these predictions"
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in inputs.left_out)
    return f"{text}; jobs left out of all this: {left_out}" if left_out else text


def main_effects(answer: "WhatIfAnswer") -> list[Line]:
    """Return the effects of greedy placement in stable worlds, under each queue at the trace's own load.

    Where all worlds are overloaded, return the effects at the highest load of the study.
    """
    plain = [line for line in answer.effects if answer.is_plain(line) and line.scheduler.sharing is Sharing.GREEDY]
    own = [line for line in plain if line.task.load is None and line.group is TraceGroup.STABLE]
    if own:
        return own
    loads = [line.task.load for line in plain if line.task.load is not None]
    return [line for line in plain if loads and line.task.load == max(loads)]


def verdict(answer: "WhatIfAnswer") -> tuple[list[str], Tone]:
    """Return the answer in a few sentences, yes or no first, and its tone: good, bad or unsure."""
    effects = main_effects(answer)
    if not effects or effects[0].change is None or effects[0].reference is None:
        return ["No replay was finished that compares sharing with none."], Tone.UNSURE
    first, recorded, change = effects[0], effects[0].change, main_change(answer, effects[0])
    ends = change.interval
    if all(line.score.shared == 0 for line in effects):
        text = f"No: {_situation(first)}; no job would share: devices are free whenever one arrives."
        if ends.is_known and change.mean <= PAYS:
            text = f"{text} Over {_months(change)} it would change the mean completion time by {change_text(change)}."
        return list(filter(None, (text, _saved_text(answer), _pays_text(answer), gang_text(answer)))), Tone.UNSURE
    changed = f"sharing two jobs a GPU would change the mean completion time by {change_text(change)}"
    if answer.over_loads:
        changed = f"{changed} over {_months(change)}, by {CHANGE.number(recorded.mean)} % in the recorded days,"
    others = [f"{line.against} {change_text(main_change(answer, line))}" for line in effects[1:] if line.change]
    under = "; ".join([f"{changed} under {first.against}", *others])
    if not ends.is_known:
        word, tone, reason = "Cannot tell", Tone.UNSURE, f" No interval: {ends.missing}."
    elif ends.high < 0 and change.mean <= PAYS:
        word, tone, reason = "Yes", Tone.GOOD, ""
    elif ends.low > PAYS:
        word, tone, reason = "No", Tone.BAD if ends.low > 0 else Tone.UNSURE, ""
    else:
        word, tone, reason = "Cannot tell", Tone.UNSURE, " The interval holds both no change and a gain worth having."
    sentences = (
        f"{word}: {_situation(first)}; {under}.{reason}",
        _saved_text(answer),
        later_text(answer.later),
        _pays_text(answer),
        gang_text(answer),
    )
    return list(filter(None, sentences)), tone


def main_change(answer: "WhatIfAnswer", line: Line) -> UncertainMean:
    """Return the change that sharing makes under the queue of a line: over months at loads like these weeks, or else at
    the load of the line."""
    own = line.change
    assert own is not None
    return answer.over_loads.get(line.against, own) if line.task.load is None else own


def _months(change: UncertainMean) -> str:
    """Return in words the months that the mean of a change is over."""
    return change.interval.population.removeprefix("mean over ").partition(" (")[0]


def _situation(line: Line) -> str:
    """Return in words how busy the devices are and how long jobs wait without sharing."""
    assert line.reference is not None
    score = line.reference
    at = "your GPUs are" if line.task.load is None else f"at a load of {line.task.load:g} GPUs are"
    waits = "hardly a job waits"
    if score.p90_waiting_s >= NO_WAIT_S:
        waits = f"one job in ten waits longer than {format_hours(score.p90_waiting_s / 3600)}"
    return f"{at} {score.utilisation:.0%} busy, {waits}"


def _pays_text(answer: "WhatIfAnswer") -> str:
    """Return from which load on sharing pays, and what it brings at the next load that was replayed."""
    lines = sorted(answer.main_lines, key=lambda line: line.load)
    if len(lines) < 2 or answer.pays_from <= lines[0].load:
        return ""
    if math.isnan(answer.pays_from):
        return f"It pays at no load up to {lines[-1].load:.2g}."
    shown = next(line for line in lines if line.load >= answer.pays_from)
    assert shown.change is not None
    return f"It pays from a load of about {answer.pays_from:.2g} on: {change_text(shown.change)} at {shown.load:.2g}."


def _saved_text(answer: "WhatIfAnswer") -> str:
    """Return how many devices could be given back at equal service."""
    if not answer.saved:
        return ""
    equal = "with the same mean completion time and the same waiting of nine jobs in ten"
    if len(answer.saved) > 1:
        parts = [_given_back(each) for each in answer.saved]
        return f"Of one type, all others kept, you could give back {' or '.join(parts)}, {equal}."
    (saved,) = answer.saved
    because = ": the largest job needs the others" if saved.largest_job else ""
    if saved.with_sharing <= saved.without_sharing:
        if not saved.without_sharing:
            return f"None of {saved.devices} GPUs could be given back {equal}{because}."
        return f"{saved.without_sharing} of {saved.devices} GPUs could be given back {equal}, and sharing adds none."
    alone = f"{saved.without_sharing or 'none'} without sharing"
    return f"Sharing, you could give back {saved.with_sharing} of {saved.devices} GPUs {equal}, {alone}{because}."


def _given_back(saved: DevicesSaved) -> str:
    """Return how many devices of a type could be given back, with sharing where that changes the number."""
    alone = str(saved.without_sharing or "none")
    if saved.with_sharing <= saved.without_sharing:
        return f"{alone} of {saved.devices} {saved.device_type}"
    return f"{saved.with_sharing} of {saved.devices} {saved.device_type} (without sharing {alone})"


def later_text(groups: "Sequence[JobGroup]") -> str:
    """Return which share of the jobs ends later, and the group that it hits most."""
    if not groups:
        return ""
    every = groups[0]
    text = f"{every.later_share:.1%} of the jobs would end over {LATER_SHARE:.0%} later"
    telling = [each for each in groups[1:] if each.later >= max(1.0, TELLING_SHARE * every.later)]
    hit = max(telling, key=lambda each: each.later_share, default=every)
    sooner = f"{every.sooner / every.jobs:.1%} as much sooner"
    if hit.later_share < 1.5 * every.later_share:
        # No group is hit much harder than the others: the run time that most of these jobs have.
        most = max((each for each in groups if each.kind == "run time"), key=lambda each: each.later)
        mostly = f" (most of them of run time {most.name})" if 2 * most.later > every.later else ""
        return f"{text}{mostly}, {sooner}."
    return f"{text} ({hit.later_share:.0%} of those of {hit.kind} {hit.name}), {sooner}."


def gang_text(answer: "WhatIfAnswer") -> str:
    """Return what jobs on several devices may lose beside others, so that it does no harm to let them share."""
    if len(answer.gangs) < 2:
        return ""
    limit, largest = answer.gang_break_even, max(line.task.gang_excess for line in answer.gangs)
    if math.isnan(limit):
        return "Jobs on several GPUs should not share: it does harm already if they lose what jobs on one GPU do."
    if math.isinf(limit):
        return (
            f"Jobs on several GPUs may share: it does no harm even if they lose {largest:g} × what jobs on one GPU do."
        )
    return f"Jobs on several GPUs may share as long as they lose less than {limit:.1f} × what jobs on one GPU do."


def population_text(answer: "WhatIfAnswer") -> str:
    """Return a sentence on the populations that the intervals and spreads describe."""
    effects = [line for line in main_effects(answer) if line.change is not None]
    if not effects:
        return ""
    changes = [main_change(answer, line) for line in effects]
    change = next((each for each in changes if each.interval.is_known), changes[0])
    reason = f", none here: {change.interval.missing}" if change.interval.missing else ""
    rows = " In tables and plots: of months of the load that is named there." if answer.over_loads else ""
    return (
        f"In brackets: {CONFIDENCE:.0%} interval of the {change.interval.population}{reason}; it says nothing about "
        f"other clusters.{rows} Spread: what {CONFIDENCE:.0%} of {change.spread.population} bring."
    )


def scenario_text(answer: "WhatIfAnswer") -> str:
    """Return a sentence on how much the workloads without truth could change the answer."""
    inputs = answer.inputs
    if not inputs.unknown or inputs.is_predicted:
        return ""
    queue = answer.study.schedulers[0].label
    parts = [
        f"{change_text(line.change)} if they {SCENARIOS[inputs.replays.scenarios[line.task.scenario].name]}"
        for line in answer.effects
        if line.against == queue
        and is_uncapped_greedy(line)
        and line.task.load is None
        and line.group is TraceGroup.STABLE
        and not answer.gangs_share(line)
        and line.change is not None
    ]
    share = sum(each.gpu_h for each in inputs.unknown) / max(inputs.coverage.gpu_h, 1e-12)
    head = f"Workloads without a measured pair have {share:.0%} of the GPU hours"
    return f"{head}; under {queue}: {', '.join(parts)}." if parts else f"{head}."


def is_uncapped_greedy(line: Line) -> bool:
    """Return whether an effect is of greedy placement without a cap."""
    return line.scheduler.sharing is Sharing.GREEDY and math.isinf(line.task.max_slowdown)


def warnings(answer: "WhatIfAnswer") -> list[str]:
    """Return the warnings that a reader needs before relying on the report."""
    oracle = [record.label for record in answer.study.schedulers if record.knows_durations]
    more_seats = ", more only where a line says so" if answer.study.seats else ""
    texts = [
        *answer.inputs.notes,
        "Durations are those of the trace, and the scheduler knows slowdowns as they are: a real one errs in both.",
        f"Two jobs share a device at most{more_seats}. Pairs whose memory does not fit are formed unless the table "
        "says so.",
    ]
    if oracle:
        known = f"{', '.join(oracle)}: the queue knows how long jobs will run, as users' limits at best tell."
        texts.insert(-1, known)
    if answer.inputs.coverage.has_gangs:
        texts.append(
            "Jobs on several GPUs share only in the lines that say so, and there lose "
            f"{GANG_EXCESS:g} of what they would on one GPU, as gangs on two CPU cores do: nobody measured it on GPUs."
        )
    if any(line.group is TraceGroup.OVERLOADED for line in answer.effects):
        texts.append("Worlds with an own load of 1 or more stand apart: gains there grow with the length of the trace.")
    texts.append(f"{answer.replays} of {answer.planned} replays, {answer.cpu_s:.0f} s of CPU.")
    return texts
