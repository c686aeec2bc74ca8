"""The section of one domain: quality, key figures, heat map, effects of jobs, intervals, outliers and memory."""

import math
from statistics import median

from interfere.data.html_page import svg_plots
from interfere.data.html_page.domain_summary import FAR_UNITS, DomainSummary, MemorySummary, job_effects, memory_summary
from interfere.data.html_page.formatting import (
    DASH,
    count_noun,
    format_bytes,
    format_number,
    format_percent,
    format_times,
)
from interfere.data.html_page.heat_map import MAX_PRINTED_NEIGHBOURS, heat_map, heat_map_legend
from interfere.data.html_page.html_builder import Html, html_table, tag
from interfere.data.quality import MIN_ICC
from interfere.records import PairStatus

MAX_OUTLIERS = 10
MAX_MISFITS = 12  # rows of the memory table that are shown unfolded


def domain_section(domain: DomainSummary, anchor: str) -> Html:
    """All that the page shows of one domain."""
    parts = [tag("h2", domain_title(domain)), quality_verdict(domain), key_figures(domain)]
    parts += [
        tag("h3", "Slowdown, victim × neighbour"),
        _heat_map_note(domain),
        heat_map_legend(domain),
        heat_map(domain),
    ]
    if domain.table.ok_pairs:
        parts += [*_effects(domain), *_intervals(domain), *_outliers(domain)]
    parts += _feasibility(domain)
    return tag("section", *parts, id=anchor)


def domain_title(domain: DomainSummary) -> str:
    """Device type and sharing mode, and the metric where it is not the default one."""
    metric = () if domain.metric == "step_time_mean" else (domain.metric,)
    role = (f"{domain.important} important",) if domain.important else ()
    return " · ".join((domain.device_type, domain.mode, *metric, *role))


def quality_verdict(domain: DomainSummary) -> Html:
    """One line that says whether the rows agree well enough to train a model on them."""
    icc = domain.quality.icc
    if not domain.table.ok_pairs:
        return tag("p", tag("b", "Nothing measured."), " No row of this domain has a slowdown.", class_="verdict bad")
    if math.isnan(icc):
        text = " Fewer than two rows were repeated, so it is not known how well repeats agree."
        return tag("p", tag("b", "Agreement unknown."), text, class_="verdict unsure")
    if icc < MIN_ICC:
        text = f" ICC {format_number(icc)} is below {MIN_ICC}: repeats disagree too much, training refuses it."
        return tag("p", tag("b", "Mostly noise."), text, class_="verdict bad")
    text = f" Repeats agree: ICC {format_number(icc)}, training requires {MIN_ICC}."
    return tag("p", tag("b", "Worth learning from."), text, class_="verdict good")


def key_figures(domain: DomainSummary) -> Html:
    """The most important figures, as tiles."""
    quality, with_interval, ok = domain.quality, len(domain.pairs_with_interval), len(domain.table.ok_pairs)
    counts = dict(quality.rows_by_status)
    without_slowdown = [f"{count} {name}" for name, count in counts.items() if name != "ok" and count]
    without_slowdown += [f"{domain.missing} not measured"] if domain.missing else []
    jobs = len(set(domain.victims) | set(domain.neighbours))
    tiles = (
        (
            format_times(quality.slowdown_median),
            "median slowdown",
            f"p90 {format_times(quality.slowdown_p90)}, worst {format_times(quality.slowdown_max)}",
        ),
        (format_percent(quality.over_two_frac), "of rows past 2 ×", "2 × is a fair share of two busy jobs"),
        (
            format_number(quality.icc),
            "ICC of one block",
            f"from {count_noun(quality.icc_rows, 'row')} with two blocks or more",
        ),
        (format_number(quality.additive_r2), "additive R²", "of log slowdown ~ victim + neighbour"),
        (
            f"{counts['ok']:,}",
            f"rows of {count_noun(jobs, 'job')}",
            ", ".join(without_slowdown) or "every pair measured",
        ),
        (
            format_percent(with_interval / ok if ok else math.nan),
            "of rows with an interval",
            _median_interval_width(domain),
        ),
    )
    return tag(
        "div",
        *(tag("div", tag("b", value), tag("span", label), tag("small", detail)) for value, label, detail in tiles),
        class_="tiles",
    )


def _median_interval_width(domain: DomainSummary) -> str:
    half_widths = [math.log(pair.upper / pair.lower) / 2 for pair in domain.pairs_with_interval]
    if not half_widths:
        return "no row states its uncertainty"
    return f"median half-width ±{format_percent(median(half_widths), 1)}"


def _heat_map_note(domain: DomainSummary) -> Html:
    printed = len(domain.neighbours) <= MAX_PRINTED_NEIGHBOURS
    text = (
        "Rows: the victim, most slowed first. Columns: the job beside it, most harmful first. Values: time beside the "
        "neighbour ÷ time alone; "
    )
    return tag("p", text + ("printed in the cells." if printed else "hover over a cell for its value."), class_="dim")


def _effects(domain: DomainSummary) -> list[Html]:
    rows = list(job_effects(domain))
    axis = svg_plots.strip_axis([value for _, *both in rows for value in both])
    headings = (
        tag("th", "job", scope="col"),
        tag("th", tag("span", "●", class_="suffers"), " suffers", scope="col", class_="number"),
        tag("th", tag("span", "◆", class_="causes"), " causes", scope="col", class_="number"),
        tag("th", svg_plots.strip_head(axis), scope="col"),
    )
    body = (
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", format_times(suffered), class_="number"),
            tag("td", format_times(caused), class_="number"),
            tag("td", svg_plots.strip(suffered, caused, axis)),
        )
        for name, suffered, caused in rows
    )
    caption = tag("caption", "What each job suffers and causes", class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", *headings)), tag("tbody", *body), class_="plain effects")
    explanation = (
        "The additive fit gives each job two numbers: what it suffers beside an average neighbour, and what it causes "
        "to an average victim."
    )
    if not math.isnan(domain.fit.r2):
        explanation += (
            f" They explain {format_percent(domain.fit.r2)} of the variance of log slowdown; the rest is interaction "
            "of particular pairs."
        )
    if domain.fit.group_count > 1:
        explanation += (
            f" The jobs fall into {domain.fit.group_count} groups never measured together: compare within a group."
        )
    wrapper = tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="effects")
    return [tag("h3", "Slowdown suffered and caused by each job"), tag("p", explanation, class_="dim"), wrapper]


def _intervals(domain: DomainSummary) -> list[Html]:
    ok = len(domain.table.ok_pairs)
    without = ok - len(domain.pairs_with_interval)
    if without == ok:
        text = f"None of the {count_noun(ok, 'row')} has an interval: it is not known how far repeats would differ."
    else:
        text = f"Dot: the slowdown; whisker: its 95 % interval. {_share_without_interval(without, ok)}"
    if cut_off := svg_plots.count_cut_off_intervals(domain.table.ok_pairs):
        text += f" {count_noun(cut_off, 'interval')} longer than the drawing: hover over it for its ends."
    plot = tag(
        "div",
        svg_plots.interval_plot(domain.table.ok_pairs),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="intervals",
    )
    return [tag("h3", "Spread and intervals"), tag("p", text, class_="dim"), plot]


def _share_without_interval(without: int, ok: int) -> str:
    if not without:
        return "Every row has one."
    return f"{format_percent(without / ok, 1)} of {count_noun(ok, 'row')} have none."


def _outliers(domain: DomainSummary) -> list[Html]:
    heading = tag("h3", "Farthest from the additive fit")
    shown = domain.outliers[:MAX_OUTLIERS]
    if not shown or math.isnan(shown[0].units):
        text = "The additive fit is exact, or there are too few rows to tell noise from structure."
        return [heading, tag("p", text, class_="dim")]
    far = sum(abs(outlier.units) > FAR_UNITS for outlier in domain.outliers)
    spread = f"±{format_percent(domain.noise_sd, 1)}"
    if domain.noise_from_replicates:
        unit = f"the spread of repeats of one row ({spread} a value, less for rows with more)"
    else:
        unit = f"the spread of the rows about the fit ({spread}): no row was repeated"
    text = (
        f"{count_noun(far, 'row')} of {len(domain.outliers):,} lie more than {FAR_UNITS:g} noise units away. One unit "
        f"is {unit}. Far rows are what an additive model gets wrong: true interaction, or a bad measurement."
    )
    rows = [
        (
            outlier.pair.victim,
            outlier.pair.neighbour,
            format_times(outlier.pair.slowdown),
            format_times(outlier.expected),
            f"{outlier.units:+.1f}".replace("-", "−"),
            count_noun(len(outlier.pair.passes), "value") if outlier.pair.passes else DASH,
        )
        for outlier in shown
    ]
    headings = ("victim", "neighbour", "measured", "additive fit", "noise units", "from")
    grid = html_table(headings, rows, numbers=frozenset({2, 3, 4}), caption="Rows farthest from the additive fit")
    return [heading, tag("p", text, class_="dim"), grid]


def _feasibility(domain: DomainSummary) -> list[Html]:
    memory, counts = memory_summary(domain), dict(domain.quality.rows_by_status)
    infeasible, capacity_bytes = counts[PairStatus.INFEASIBLE.value], memory.capacity_bytes
    all_rows = count_noun(len(domain.table.pairs), "row")
    heading = tag("h3", "Feasibility")
    lines = [f"{infeasible:,} of {all_rows} could not share the device." if infeasible else "Every pair could share."]
    if not memory.sums:
        lines.append("No peak memory is known, so sums cannot be compared with a capacity.")
        return [heading, tag("p", " ".join(lines), class_="dim")]
    if memory.static_jobs:
        lines.append(
            f"A static trace gave {count_noun(memory.static_jobs, 'peak')}: without CUDA context and workspaces."
        )
    if math.isnan(capacity_bytes):
        lines.append(f"The capacity of {domain.device_type} is not known.")
        plots = [svg_plots.memory_plot(memory)] if infeasible else []
        return [heading, tag("p", " ".join(lines), class_="dim"), *plots]
    lines.append(
        f"By the sum of the peaks of {count_noun(len(memory.sums), 'unordered pair')} against "
        f"{format_bytes(capacity_bytes)}: "
        f"{memory.count(fits=True, feasible=True)} fit and could share, "
        f"{memory.count(fits=False, feasible=False)} do not fit and could not; "
        f"{memory.count(fits=True, feasible=False)} fit yet could not, "
        f"{memory.count(fits=False, feasible=True)} do not fit yet could."
    )
    return [heading, tag("p", " ".join(lines), class_="dim"), svg_plots.memory_plot(memory), *_misfits(memory)]


def _misfits(memory: MemorySummary) -> list[Html]:
    """The pairs whose memory and measurement disagree; all but the first are folded."""
    capacity_bytes = memory.capacity_bytes
    rows = [
        (
            pair.first,
            pair.second,
            format_bytes(pair.bytes),
            "fits" if pair.bytes <= capacity_bytes else "too much",
            pair.status.value,
        )
        for pair in memory.sums
        if (pair.bytes <= capacity_bytes) is (pair.status is PairStatus.INFEASIBLE)
    ]
    if not rows:
        return []
    headings, numbers = ("job", "with", "peaks together", "by memory", "as measured"), frozenset({2})
    caption = "Pairs where memory and measurement differ"
    parts = [html_table(headings, rows[:MAX_MISFITS], numbers=numbers, caption=caption)]
    if len(rows) > MAX_MISFITS:
        folded = html_table(headings, rows[MAX_MISFITS:], numbers=numbers, caption="More such pairs")
        parts.append(tag("details", tag("summary", f"{len(rows) - MAX_MISFITS} more"), folded))
    return parts


def domain_overview(domains: tuple[DomainSummary, ...], anchors: tuple[str, ...]) -> Html:
    """A table with one line per domain, linked to its section."""
    headings = (
        "domain",
        "jobs",
        "ok",
        "unstable",
        "infeasible",
        "not measured",
        "median",
        "p90",
        "worst",
        "ICC",
        "additive R²",
    )
    head = tag("tr", *(tag("th", h, scope="col", class_="number" if k else None) for k, h in enumerate(headings)))
    rows = []
    for domain, anchor in zip(domains, anchors, strict=True):
        quality, counts = domain.quality, dict(domain.quality.rows_by_status)
        jobs = len(set(domain.victims) | set(domain.neighbours))
        values = (
            *(f"{count:,}" for count in (jobs, *counts.values(), domain.missing)),
            *map(format_times, (quality.slowdown_median, quality.slowdown_p90, quality.slowdown_max)),
            format_number(quality.icc),
            format_number(quality.additive_r2),
        )
        link = tag("th", tag("a", domain_title(domain), href=f"#{anchor}"), scope="row")
        rows.append(tag("tr", link, *(tag("td", value, class_="number") for value in values)))
    caption = tag("caption", "Domains", class_="hidden")
    grid = tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="plain")
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="domains")
