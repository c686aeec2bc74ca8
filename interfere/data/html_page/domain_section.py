"""The sections of one domain: figures first, then the map, who suffers and hurts, spread, outliers, memory."""

import math
from collections.abc import Sequence
from statistics import median

from interfere.data.html_page import svg_plots as plots
from interfere.data.html_page.domain_summary import FAR, Domain, effects, memory
from interfere.data.html_page.formatting import DASH, figure, gib, plural, share, times
from interfere.data.html_page.heat_map import PRINTED, heat_map, legend
from interfere.data.html_page.html_builder import Html, tag
from interfere.data.quality import MIN_ICC
from interfere.records import PairStatus

MAX_OUTLIERS = 10
MAX_MISFITS = 12  # rows of the memory table before the rest is folded away


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, numbers: frozenset[int], caption: str) -> Html:
    """A plain table; columns in `numbers` are aligned right, the first column heads its row."""

    def cell(k: int, text: str) -> Html:
        class_ = "number" if k in numbers else None
        return tag("th", text, scope="row", class_=class_) if k == 0 else tag("td", text, class_=class_)

    head = tag(
        "tr", *(tag("th", h, scope="col", class_="number" if k in numbers else None) for k, h in enumerate(heads))
    )
    body = (tag("tr", *(cell(k, text) for k, text in enumerate(row))) for row in rows)
    grid = tag(
        "table", tag("caption", caption, class_="hidden"), tag("thead", head), tag("tbody", *body), class_="plain"
    )
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)


def section(domain: Domain, anchor: str) -> Html:
    """Everything about one domain."""
    parts = [tag("h2", title(domain)), verdict(domain), tiles(domain)]
    parts += [tag("h3", "Slowdown, victim × neighbour"), _map_note(domain), legend(domain), heat_map(domain)]
    if domain.table.ok_pairs:
        parts += [*_effects(domain), *_intervals(domain), *_outliers(domain)]
    parts += _feasibility(domain)
    return tag("section", *parts, id=anchor)


def title(domain: Domain) -> str:
    """Device type and mode; the metric where it is not the usual one."""
    return " · ".join((domain.device_type, domain.mode, *(m for m in (domain.metric,) if m != "step_time_mean")))


def verdict(domain: Domain) -> Html:
    """May a model learn from this? In one line."""
    icc = domain.figures.icc
    if not domain.table.ok_pairs:
        return tag("p", tag("b", "Nothing measured."), " No row of this domain has a slowdown.", class_="verdict bad")
    if math.isnan(icc):
        text = " Fewer than two rows were repeated: nothing says how well a repeat would agree."
        return tag("p", tag("b", "Agreement unknown."), text, class_="verdict unsure")
    if icc < MIN_ICC:
        text = f" ICC {figure(icc)} is below {MIN_ICC}: repeats disagree too much, training refuses it."
        return tag("p", tag("b", "Mostly noise."), text, class_="verdict bad")
    text = f" Repeats agree: ICC {figure(icc)}, training asks for {MIN_ICC}."
    return tag("p", tag("b", "Worth learning from."), text, class_="verdict good")


def tiles(domain: Domain) -> Html:
    """The figures to read first."""
    f, with_interval, ok = domain.figures, len(domain.intervals), len(domain.table.ok_pairs)
    counts = dict(f.rows_by_status)
    rest = [f"{count} {name}" for name, count in counts.items() if name != "ok" and count]
    rest += [f"{domain.missing} not measured"] if domain.missing else []
    jobs = len(set(domain.victims) | set(domain.neighbours))
    shown = (
        (times(f.slowdown_median), "median slowdown", f"p90 {times(f.slowdown_p90)}, worst {times(f.slowdown_max)}"),
        (share(f.over_two_frac), "of rows past 2 ×", "2 × is a fair share of two busy jobs"),
        (figure(f.icc), "ICC of one block", f"from {plural(f.icc_rows, 'row')} with two blocks or more"),
        (figure(f.additive_r2), "additive R²", "of log slowdown ~ victim + neighbour"),
        (f"{counts['ok']:,}", f"rows of {plural(jobs, 'job')}", ", ".join(rest) or "every pair measured"),
        (share(with_interval / ok if ok else math.nan), "of rows with an interval", _width(domain)),
    )
    return tag("div", *(tag("div", tag("b", n), tag("span", w), tag("small", d)) for n, w, d in shown), class_="tiles")


def _width(domain: Domain) -> str:
    halves = [math.log(p.upper / p.lower) / 2 for p in domain.intervals]
    return f"median half-width ±{share(median(halves), 1)}" if halves else "no row says how sure it is"


def _map_note(domain: Domain) -> Html:
    text = "Rows: the victim, most slowed first. Columns: the job beside it, most harmful first. Read × times alone; "
    rest = "values stand in the cells." if len(domain.neighbours) <= PRINTED else "hover a cell for its value."
    return tag("p", text + rest, class_="dim")


def _effects(domain: Domain) -> list[Html]:
    rows = list(effects(domain))
    axis = plots.strip_axis([value for _, *both in rows for value in both])
    mark = tag("span", "●", class_="suffers"), tag("span", "◆", class_="causes")
    heads = (
        tag("th", "job", scope="col"),
        tag("th", mark[0], " suffers", scope="col", class_="number"),
        tag("th", mark[1], " causes", scope="col", class_="number"),
        tag("th", plots.strip_head(axis), scope="col"),
    )
    body = (
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", times(suffers), class_="number"),
            tag("td", times(causes), class_="number"),
            tag("td", plots.strip(suffers, causes, axis)),
        )
        for name, suffers, causes in rows
    )
    caption = tag("caption", "What each job suffers and causes", class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="plain effects")
    explained = (
        "The additive fit gives each job two numbers: what it suffers beside an average neighbour, and what it causes "
        "to an average victim."
    )
    if not math.isnan(domain.fit.r2):
        explained += (
            f" They explain {share(domain.fit.r2)} of the variance of log slowdown; the rest is how particular pairs "
            "get along."
        )
    if domain.fit.groups > 1:
        explained += f" The jobs fall into {domain.fit.groups} groups never measured together: compare within a group."
    wrap = tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="effects")
    return [tag("h3", "Who suffers, who hurts"), tag("p", explained, class_="dim"), wrap]


def _intervals(domain: Domain) -> list[Html]:
    ok, without = len(domain.table.ok_pairs), len(domain.table.ok_pairs) - len(domain.intervals)
    text = (
        f"None of the {plural(ok, 'row')} has an interval: nothing says how far a repeat would land."
        if without == ok
        else f"Dot: the slowdown; whisker: its 95 % interval. {_share_without(without, ok)}"
    )
    if cut := plots.cut_off(domain.table.ok_pairs):
        text += f" {plural(cut, 'interval')} longer than the drawing: hover for the ends."
    drawn = tag(
        "div",
        plots.intervals(domain.table.ok_pairs),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="intervals",
    )
    return [tag("h3", "Spread and intervals"), tag("p", text, class_="dim"), drawn]


def _share_without(without: int, ok: int) -> str:
    return f"{share(without / ok, 1)} of {plural(ok, 'row')} have none." if without else "Every row has one."


def _outliers(domain: Domain) -> list[Html]:
    shown = domain.outliers[:MAX_OUTLIERS]
    if not shown or math.isnan(shown[0].units):
        text = "The additive fit leaves nothing, or there are too few rows to tell noise from structure."
        return [tag("h3", "Farthest from the additive fit"), tag("p", text, class_="dim")]
    far = sum(abs(o.units) > FAR for o in domain.outliers)
    if domain.noise_from_replicates:
        unit = f"the spread of repeats of one row (±{share(domain.noise_sd, 1)} a value, less for rows with more)"
    else:
        unit = f"the spread of the rows about the fit (±{share(domain.noise_sd, 1)}): no row was repeated"
    text = (
        f"{plural(far, 'row')} of {len(domain.outliers):,} lie more than {FAR:g} noise units away. One unit is {unit}. "
        "Far rows are what an additive model gets wrong: true interaction, or a bad measurement."
    )
    rows = [
        (
            o.pair.victim,
            o.pair.neighbour,
            times(o.pair.slowdown),
            times(o.expected),
            f"{o.units:+.1f}".replace("-", "−"),
            plural(len(o.pair.passes), "value") if o.pair.passes else DASH,
        )
        for o in shown
    ]
    heads = ("victim", "neighbour", "measured", "additive fit", "noise units", "from")
    grid = table(heads, rows, numbers=frozenset({2, 3, 4}), caption="Rows farthest from the additive fit")
    return [tag("h3", "Farthest from the additive fit"), tag("p", text, class_="dim"), grid]


def _feasibility(domain: Domain) -> list[Html]:
    known, counts = memory(domain), dict(domain.figures.rows_by_status)
    infeasible, capacity = counts[PairStatus.INFEASIBLE.value], known.capacity_bytes
    all_rows = plural(len(domain.table.pairs), "row")
    lines = [f"{infeasible:,} of {all_rows} could not share the device." if infeasible else "Every pair could share."]
    if not known.sums:
        lines.append("No peak memory is known, so sums cannot be compared with a capacity.")
        return [tag("h3", "Feasibility"), tag("p", " ".join(lines), class_="dim")]
    if known.static_jobs:
        lines.append(f"A static trace gave {plural(known.static_jobs, 'peak')}: without context and workspaces.")
    if math.isnan(capacity):
        lines.append(f"The capacity of {domain.device_type} is not known.")
        drawn = [plots.memory_sums(known)] if infeasible else []
        return [tag("h3", "Feasibility"), tag("p", " ".join(lines), class_="dim"), *drawn]
    lines.append(
        f"By the sum of the peaks of {plural(len(known.sums), 'unordered pair')} against {gib(capacity)}: "
        f"{known.count(fits=True, feasible=True)} fit and could share, {known.count(fits=False, feasible=False)} do "
        f"not fit and could not; {known.count(fits=True, feasible=False)} fit yet could not, "
        f"{known.count(fits=False, feasible=True)} do not fit yet could."
    )
    parts = [tag("h3", "Feasibility"), tag("p", " ".join(lines), class_="dim"), plots.memory_sums(known)]
    odd = [s for s in known.sums if (s.bytes <= capacity) is (s.status is PairStatus.INFEASIBLE)]
    if odd:
        rows = [
            (s.one, s.other, gib(s.bytes), "fits" if s.bytes <= capacity else "too much", s.status.value) for s in odd
        ]
        heads = ("job", "with", "peaks together", "by memory", "as measured")
        first = table(
            heads, rows[:MAX_MISFITS], numbers=frozenset({2}), caption="Pairs where memory and measurement differ"
        )
        parts.append(first)
        if len(rows) > MAX_MISFITS:
            rest = table(heads, rows[MAX_MISFITS:], numbers=frozenset({2}), caption="More such pairs")
            parts.append(tag("details", tag("summary", f"{len(rows) - MAX_MISFITS} more"), rest))
    return parts


def overview(all_: tuple[Domain, ...], anchors: tuple[str, ...]) -> Html:
    """One line a domain, linked to its section."""
    heads = (
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
    head = tag("tr", *(tag("th", h, scope="col", class_="number" if k else None) for k, h in enumerate(heads)))
    rows = []
    for domain, anchor in zip(all_, anchors, strict=True):
        f, counts = domain.figures, dict(domain.figures.rows_by_status)
        values = (
            *(f"{n:,}" for n in (len(set(domain.victims) | set(domain.neighbours)), *counts.values(), domain.missing)),
            *map(times, (f.slowdown_median, f.slowdown_p90, f.slowdown_max)),
            figure(f.icc),
            figure(f.additive_r2),
        )
        link = tag("th", tag("a", title(domain), href=f"#{anchor}"), scope="row")
        rows.append(tag("tr", link, *(tag("td", value, class_="number") for value in values)))
    caption = tag("caption", "Domains", class_="hidden")
    grid = tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="plain")
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="domains")
