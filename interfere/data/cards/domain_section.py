"""The section of a table's page on one domain: its quality, map, effects, intervals, outliers and feasibility.

Laws: names are shown as text, whatever they hold; missing slowdowns are never imputed.
"""

import math
from statistics import median

from interfere.data.cards.domain_summary import (
    FAR_UNITS,
    DomainSummary,
    MemorySummary,
    PairMemory,
    job_effects,
    memory_summary,
)
from interfere.data.quality import MIN_ICC
from interfere.records import PairMeasurement, PairStatus
from interfere.reports import document as doc
from interfere.reports.document import Column, Estimate, Part, Section, Sentence, Tile, Tiles, Tone, table_of
from interfere.reports.numbers import (
    BYTES,
    COUNT,
    DASH,
    TIMES,
    NumberFormat,
    count_noun,
    fixed,
    format_bytes,
    format_percent,
    format_times,
    percent,
)

MAX_OUTLIERS = 10
MAX_SHOWN = 12  # rows of long tables that are shown unfolded
NOISE_UNITS = fixed(1, sign=True)
PLAIN_NUMBER = fixed(2)


def domain_section(domain: DomainSummary, anchor: str) -> Section:
    """Return the section of a table's page on a domain."""
    note = Sentence(
        "Rows: the victim, most slowed first. Columns: the job beside it, most harmful first. Values: time beside the "
        "neighbour ÷ time alone.",
        tone=Tone.NOTE,
    )
    measured = (_effects(domain), _intervals(domain), _outliers(domain)) if domain.table.ok_pairs else ()
    parts = (_verdict(domain), _key_figures(domain), note, slowdown_map(domain), *measured, _feasibility(domain))
    return Section(domain.title, parts, anchor=anchor)


def _verdict(domain: DomainSummary) -> Sentence:
    """Return a sentence on whether repeated measurements agree well enough to train a model on the domain."""
    icc = domain.quality.icc
    if not domain.table.ok_pairs:
        return Sentence("No row of this domain has a slowdown.", lead="Nothing measured.", tone=Tone.BAD)
    if math.isnan(icc):
        text = "Fewer than two rows were repeated, so it is not known how well repeats agree."
        return Sentence(text, lead="Agreement unknown.", tone=Tone.UNSURE)
    if icc < MIN_ICC:
        text = f"ICC {icc:.2f} is below {MIN_ICC}: repeats disagree too much, training refuses it."
        return Sentence(text, lead="Mostly noise.", tone=Tone.BAD)
    text = f"Repeats agree: ICC {icc:.2f}, training requires {MIN_ICC}."
    return Sentence(text, lead="Worth learning from.", tone=Tone.GOOD)


def _key_figures(domain: DomainSummary) -> Tiles:
    quality, with_interval, ok = domain.quality, len(domain.pairs_with_interval), len(domain.table.ok_pairs)
    counts = dict(quality.rows_by_status)
    absent = [f"{count} {name}" for name, count in counts.items() if name != "ok" and count]
    absent += [f"{domain.missing} not measured"] if domain.missing else []
    half_widths = [math.log(pair.upper / pair.lower) / 2 for pair in domain.pairs_with_interval]
    width = f"median half-width ±{format_percent(median(half_widths), 1)}" if half_widths else ""
    spread = f"p90 {format_times(quality.slowdown_p90)}, worst {format_times(quality.slowdown_max)}"
    repeated = f"from {count_noun(quality.icc_rows, 'row')} with two blocks or more"
    rows = f"rows of {count_noun(len(domain.names), 'job')}"
    fair_share, explained = "2 × is a fair share of two busy jobs", "of log slowdown ~ victim + neighbour"
    share_with_interval = with_interval / ok if ok else math.nan
    tiles: tuple[tuple[float, NumberFormat, str, str], ...] = (
        (quality.slowdown_median, TIMES, "median slowdown", spread),
        (quality.over_two_frac, percent(), "of rows above 2 ×", fair_share),
        (quality.icc, PLAIN_NUMBER, "ICC of one block", repeated),
        (quality.additive_r2, PLAIN_NUMBER, "additive R²", explained),
        (counts["ok"], COUNT, rows, ", ".join(absent) or "every pair measured"),
        (share_with_interval, percent(), "of rows with an interval", width or "no row states its uncertainty"),
    )
    return Tiles(
        tuple(Tile(value=value, form=form, label=label, detail=detail) for value, form, label, detail in tiles)
    )


def slowdown_map(domain: DomainSummary) -> doc.HeatMap:
    """Return the heat map of every victim beside every neighbour. Missing values are never imputed."""
    cells = {}
    for victim in domain.victims:
        for neighbour in domain.neighbours:
            pair = domain.cells.get((victim, neighbour))
            if pair is None:
                label = f"{victim} beside {neighbour}: not measured"
                cells[victim, neighbour] = doc.HeatCell(math.nan, label, doc.Absence.MISSING)
            else:
                absence = None if pair.status is PairStatus.OK else doc.Absence(pair.status.value)
                cells[victim, neighbour] = doc.HeatCell(pair.slowdown, describe_pair(pair), absence)
    return doc.HeatMap(
        title=f"Slowdown of each victim beside each neighbour, {domain.device_type}",
        row_axis="victim",
        column_axis="beside",
        unit="times alone",
        rows=domain.victims,
        columns=domain.neighbours,
        cells=cells,
    )


def describe_pair(pair: PairMeasurement) -> str:
    """Return a measured pair in words, as the page shows them when the pointer is over the pair's cell."""
    jobs = f"{pair.victim} beside {pair.neighbour}: "
    if pair.status is not PairStatus.OK:
        return f"{jobs}{pair.status.value} ({pair.reason})"
    interval = TIMES.ends(pair.lower, pair.upper)
    blocks = f", {_values(pair)}" if pair.passes else ""
    reason = f" ({pair.reason})" if pair.reason else ""
    return f"{jobs}{format_times(pair.slowdown)}{f' {interval}' if interval else ''}{blocks}{reason}"


def _values(pair: PairMeasurement) -> str:
    return count_noun(len(pair.passes), "value") if pair.passes else ""


def _effects(domain: DomainSummary) -> Section:
    effects = list(job_effects(domain))
    text = (
        "The additive fit gives each job two numbers: what it suffers beside an average neighbour, and what it causes "
        "to an average victim."
    )
    if not math.isnan(domain.fit.r2):
        text += (
            f" They explain {format_percent(domain.fit.r2)} of the variance of log slowdown; the rest is interaction "
            "of particular pairs."
        )
    if domain.fit.group_count > 1:
        text += f" The jobs fall into {domain.fit.group_count} groups never measured together: compare within a group."
    series = (
        doc.Series(name="suffers"),
        doc.Series(name="causes", mark=doc.Mark.DIAMOND, colour=doc.Colour.ORANGE),
    )
    rows = tuple(
        doc.PlotRow(label=name, values=tuple((Estimate(each),) if math.isfinite(each) else () for each in both))
        for name, *both in effects
    )
    axis = doc.Axis(title="slowdown (time beside the other ÷ time alone)", form=TIMES, is_log=True, lines=((1.0, ""),))
    columns = (Column("job"), Column("suffers", TIMES), Column("causes", TIMES))
    table = doc.Table(title="Effects of jobs", columns=columns, rows=tuple(effects))
    plot = doc.RowPlot(title="What each job suffers and causes", axis=axis, series=series, rows=rows)
    return Section("Slowdown suffered and caused by each job", (Sentence(text, tone=Tone.NOTE), plot, table))


def _intervals(domain: DomainSummary) -> Section:
    """Return a plot of all rows, sorted by slowdown, with the intervals that are known."""
    pairs = sorted(domain.table.ok_pairs, key=lambda p: (p.slowdown, p.victim, p.neighbour))
    without = len(pairs) - len(domain.pairs_with_interval)
    if without == len(pairs):
        text = (
            f"None of the {count_noun(without, 'row')} has an interval: it is not known how far repeats would differ."
        )
    else:
        share = f"{format_percent(without / len(pairs), 1)} of {count_noun(len(pairs), 'row')} have none."
        text = f"Dot: the slowdown; whisker: its 95 % interval. {share if without else 'Every row has one.'}"
    points = tuple(
        doc.Point((k + 0.5) / len(pairs), pair.slowdown, pair.lower, pair.upper, describe_pair(pair))
        for k, pair in enumerate(pairs)
    )
    plot = doc.LinePlot(
        title="Slowdowns of all rows",
        x=doc.Axis(title="share of rows at or below (%)", form=percent(), low=0.0, high=1.0),
        y=doc.Axis(title="slowdown (×)", form=TIMES, is_log=True, lines=((1.0, ""),)),
        series=(doc.Series(name="row", colour=doc.Colour.ORANGE),),
        panels=(doc.Panel(points=(points,)),),
    )
    return Section("Spread and intervals", (Sentence(text, tone=Tone.NOTE), plot))


def _outliers(domain: DomainSummary) -> Section:
    title, shown = "Farthest from the additive fit", domain.outliers[:MAX_OUTLIERS]
    if not shown or math.isnan(shown[0].units):
        text = "The additive fit is exact, or there are too few rows to tell noise from structure."
        return Section(title, (Sentence(text, tone=Tone.NOTE),))
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
    table = table_of(
        "Rows farthest from the additive fit",
        (
            Column("victim", of="pair.victim"),
            Column("neighbour", of="pair.neighbour"),
            Column("measured", TIMES, of="pair.slowdown"),
            Column("additive fit", TIMES, of="expected"),
            Column("noise units", NOISE_UNITS, of="units"),
            Column("from", of=lambda outlier: _values(outlier.pair) or DASH),
        ),
        shown,
    )
    return Section(title, (Sentence(text, tone=Tone.NOTE), table))


def _feasibility(domain: DomainSummary) -> Section:
    memory, counts = memory_summary(domain), dict(domain.quality.rows_by_status)
    infeasible, capacity_bytes = counts[PairStatus.INFEASIBLE.value], memory.capacity_bytes
    rows = count_noun(len(domain.table.pairs), "row")
    lines = [f"{infeasible:,} of {rows} could not share the device." if infeasible else "Every pair could share."]
    parts: list[Part] = []
    if not memory.sums:
        lines.append("No peak memory is known, so sums cannot be compared with a capacity.")
    elif memory.static_jobs:
        lines.append(
            f"A static trace gave {count_noun(memory.static_jobs, 'peak')}: without CUDA context and workspaces."
        )
    if memory.sums and math.isnan(capacity_bytes):
        lines.append(f"The capacity of {domain.device_type} is not known.")
    elif memory.sums:
        lines.append(
            f"By the sum of the peaks of {count_noun(len(memory.sums), 'unordered pair')} against "
            f"{format_bytes(capacity_bytes)}: "
            f"{memory.count(fits=True, feasible=True)} fit and could share, "
            f"{memory.count(fits=False, feasible=False)} do not fit and could not; "
            f"{memory.count(fits=True, feasible=False)} fit yet could not, "
            f"{memory.count(fits=False, feasible=True)} do not fit yet could."
        )
        parts += _misfits(memory)
    return Section("Feasibility", (Sentence(" ".join(lines), tone=Tone.NOTE), *parts))


def _misfits(memory: MemorySummary) -> list[doc.Table]:
    """Return a table of the pairs for which the sum of memory and the measurement disagree on whether the pair fits."""

    def fits(pair: PairMemory) -> bool:
        return pair.bytes <= memory.capacity_bytes

    columns = (
        Column("job", of="first"),
        Column("with", of="second"),
        Column("peaks together", BYTES, of="bytes"),
        Column("by memory", of=lambda pair: "fits" if fits(pair) else "too much"),
        Column("as measured", of="status.value"),
    )
    differing = [pair for pair in memory.sums if fits(pair) is (pair.status is PairStatus.INFEASIBLE)]
    table = table_of("Pairs where memory and measurement differ", columns, differing, fold=MAX_SHOWN)
    return [table] if differing else []
