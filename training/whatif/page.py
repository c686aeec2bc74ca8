"""A what-if answer as one HTML page to pass on: no network, no script, light and dark, narrow and wide.

Laws: how much of the trace is covered comes before any gain; names are shown as text; equal answers give equal bytes.
"""

from pathlib import Path

from interfere.data.html_page import html_document
from interfere.data.html_page.formatting import DASH, format_percent
from interfere.data.html_page.html_builder import Html, html_table, tag
from interfere.file_writing import write_atomically
from interfere.training.whatif import wording
from interfere.training.whatif.answer import WhatIfAnswer
from interfere.training.whatif.effects import Effect
from interfere.training.whatif.load_plot import STYLE, is_shown, load_panels
from interfere.training.whatif.text import cap_effects, effect_label, seats_effects, seats_label

MAX_UNKNOWN = 10  # workloads without truth that are listed
SURE_SHARE = 0.5  # of GPU hours: below, the coverage is shown as a doubt
LOAD_LEGEND = (
    "Change of the mean completion time of all jobs by greedy placement, two jobs a GPU, against the same queue "
    "without sharing. Below 0: jobs end sooner. Lines are the intervals of the mean, cut at the edge of the plot."
)
CAP_LEGEND = (
    "A cap is the largest predicted slowdown that a job may suffer by sharing. Past 1.5 ×: pairs that truly slowed a "
    "side by more. Shared: of busy device time, with two jobs."
)


def write_whatif_page(path: Path, answer: WhatIfAnswer) -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = whatif_page(answer)
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def whatif_page(answer: WhatIfAnswer) -> str:
    """The HTML of the page."""
    text, tone = wording.verdict(answer)
    title = f"What sharing GPUs would do to {answer.trace}"
    is_sure = answer.coverage.gpu_h_share >= SURE_SHARE and not answer.is_predicted and not answer.left_out
    coverage_tone = "good" if is_sure else "unsure"
    interrupted = f"Interrupted: {answer.replays} of {answer.planned} replays were done."
    header = [
        tag("h1", title),
        tag("p", tag("b", "Known. "), f"{wording.coverage_text(answer)}.", class_=f"verdict {coverage_tone}"),
        *([tag("p", tag("b", interrupted), class_="verdict bad")] if answer.interrupted else []),
        tag("p", tag("b", "Answer. "), text, class_=f"verdict {tone}"),
        _tiles(answer),
        tag("p", wording.population_text(answer), class_="dim"),
    ]
    sections = [_by_load(answer), _by_queue(answer), *_by_seats(answer), _placement(answer), _missing(answer)]
    caution = tag(
        "section",
        tag("h2", "Know before you rely on it"),
        tag("ul", *(tag("li", note) for note in wording.notes(answer))),
    )
    return html_document(title, tag("header", *header), *sections, caution, extra_style=STYLE)


def _tiles(answer: WhatIfAnswer) -> Html:
    coverage = answer.coverage
    main = wording.main_effects(answer)[:1]
    change = main[0].change if main else None
    waiting = main[0] if main else None
    tiles = (
        (format_percent(coverage.gpu_h_share), "of the GPU hours covered", f"{coverage.gpu_h:,.0f} GPU hours"),
        (format_percent(coverage.job_share), "of the jobs covered", f"{coverage.jobs:,} jobs"),
        (f"{answer.load:.2f}", "offered load", "1 = all devices busy all the time"),
        (
            wording.percent(change.mean) if change is not None else DASH,
            f"mean completion time, {main[0].queue}" if main else "mean completion time",
            wording.interval(change) or "no interval",
        ),
        (
            f"{waiting.mean_completion_s / 3600:,.1f} h" if waiting else DASH,
            "mean completion time with sharing",
            f"{waiting.reference_completion_s / 3600:,.1f} h without" if waiting else DASH,
        ),
    )
    rows = (tag("div", tag("b", value), tag("span", label), tag("small", detail)) for value, label, detail in tiles)
    return tag("div", *rows, class_="tiles")


def _by_load(answer: WhatIfAnswer) -> Html:
    shown = [effect for effect in answer.effects if is_shown(effect)]
    if not shown:
        return tag("section")
    legend = [
        tag("span", tag("i", class_="key filled"), "arrivals stretched to this load"),
        tag("span", tag("i", class_="key diamond"), "the trace's own load"),
    ]
    if answer.coverage.has_gangs:
        legend.append(tag("span", tag("i", class_="key hollow"), "jobs on several GPUs share too, by an assumption"))
    loads = sorted({effect.target_load for effect in shown if effect.target_load is not None})
    kinds = dict.fromkeys((effect.queue, effect.gangs_share) for effect in shown)
    rows = []
    for queue, gangs in kinds:
        by_load = {e.target_load: e for e in shown if (e.queue, e.gangs_share) == (queue, gangs)}
        cells = [wording.change_text(by_load[load].change) if load in by_load else DASH for load in [None, *loads]]
        rows.append((f"{queue}, gangs (assumed)" if gangs else queue, *cells))
    head = ("queue", f"own ({answer.load:.2f})", *(f"{load:g}" for load in loads))
    return tag(
        "section",
        tag("h2", "What sharing would bring, by load"),
        tag("p", LOAD_LEGEND),
        load_panels(answer.effects, answer.question.queue_names),
        tag("p", *legend, class_="legend"),
        html_table(head, rows, numbers=frozenset(range(1, len(head))), caption="change by queue and load"),
    )


def _by_queue(answer: WhatIfAnswer) -> Html:
    effects = cap_effects(answer)
    head = ("queue", "load", "placement", "change of mean", "spread", "mean", "99 %", "shared", "past 1.5 ×")
    rows = [
        (
            effect.queue,
            f"{effect.load:.2f}",
            effect_label(effect),
            wording.change_text(effect.change),
            _spread(effect),
            f"{effect.mean_completion_s / 3600:,.2f} h",
            f"{effect.p99_completion_s / 3600:,.1f} h",
            format_percent(effect.shared),
            format_percent(effect.past_cap),
        )
        for effect in effects
    ]
    return tag(
        "section",
        tag("h2", "By queue and cap"),
        tag("p", CAP_LEGEND),
        html_table(head, rows, numbers=frozenset({1, *range(3, len(head))}), caption="change by queue and cap"),
    )


def _by_seats(answer: WhatIfAnswer) -> list[Html]:
    """The section about more than two seats; none where nobody asked."""
    head = ("queue", "load", "jobs a device", "change of mean", "against two", "mean", "99 %", "shared")
    rows = [
        (
            effect.queue,
            f"{effect.load:.2f}",
            seats_label(effect),
            wording.change_text(effect.change),
            wording.change_text(effect.change_to_pairs) or DASH,
            f"{effect.mean_completion_s / 3600:,.2f} h",
            f"{effect.p99_completion_s / 3600:,.1f} h",
            format_percent(effect.shared),
        )
        for effect in seats_effects(answer)
    ]
    if not rows:
        return []
    table = html_table(head, rows, numbers=frozenset({1, *range(3, len(head))}), caption="change by jobs a device")
    return [tag("section", tag("h2", "More than two jobs a device"), tag("p", wording.GROUPS), table)]


def _spread(effect: Effect) -> str:
    if effect.change is None or not effect.change.spread.is_known:
        return DASH
    return f"{100 * effect.change.spread.low:+.0f} to {100 * effect.change.spread.high:+.0f}"


def _placement(answer: WhatIfAnswer) -> Html:
    head = ("queue", "load", "greedy", "matching", "difference", "CPU, greedy", "CPU, matching")
    rows = [
        (
            each.queue,
            f"{each.load:.2f}",
            f"{each.greedy_s / 3600:,.2f} h",
            f"{each.matching_s / 3600:,.2f} h",
            wording.percent(each.difference),
            f"{each.greedy_cpu_s:.1f} s",
            f"{each.matching_cpu_s:.1f} s",
        )
        for each in answer.comparisons
    ]
    table = [html_table(head, rows, numbers=frozenset(range(1, 7)), caption="greedy beside matching")] if rows else []
    text = tag("p", wording.placement_text(answer.comparisons))
    return tag("section", tag("h2", "Greedy placement or matching"), text, *table)


def _missing(answer: WhatIfAnswer) -> Html:
    share = format_percent(answer.missing.unmeasured_share)
    text = (
        f"Of the hours in which jobs would meet if everybody shared with whoever is there, {share} are of pairs that "
    )
    parts = [tag("p", f"{text}nobody measured. {wording.scenario_text(answer)}")]
    if answer.unknown:
        shown = answer.unknown[:MAX_UNKNOWN]
        rows = [(each.workload or "(no workload named)", f"{each.jobs:,}", f"{each.gpu_h:,.0f}") for each in shown]
        head = ("workload without a measured pair", "jobs", "GPU hours")
        parts.append(html_table(head, rows, numbers=frozenset({1, 2}), caption="workloads without truth"))
        if len(answer.unknown) > MAX_UNKNOWN:
            parts.append(tag("p", f"and {len(answer.unknown) - MAX_UNKNOWN} more", class_="dim"))
    if answer.missing.pairs:
        parts += [tag("h3", "Measure these pairs first"), _pairs(answer)]
    return tag("section", tag("h2", "What is not known, and what to measure"), *parts)


def _pairs(answer: WhatIfAnswer) -> Html:
    rows = [
        (
            wording.pair_name(pair.names),
            f"{pair.gpu_h:,.0f}",
            f"± {pair.error_now:.2f}",
            format_percent(pair.narrows, 1),
        )
        for pair in answer.missing.pairs
    ]
    head = ("pair", "GPU hours in which they would meet", "speeds known to", "lowers the error of all by")
    table = html_table(head, rows, numbers=frozenset({1, 2, 3}), caption="pairs to measure first")
    text = "In the order of what they tell about this trace, each as if those before it had been measured: "
    command = tag("code", "interfere profile command --spec jobs.toml")
    return tag("div", table, tag("p", text, command, " measures your own programs.", class_="dim"))
