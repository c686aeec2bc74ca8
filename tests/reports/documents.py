"""Documents with every kind of part, for the laws of the renderers."""

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from interfere.reports.document import (
    Absence,
    Axis,
    Box,
    Cell,
    Code,
    Colour,
    Column,
    Document,
    Estimate,
    Figure,
    Folded,
    HeatCell,
    HeatMap,
    Items,
    Lane,
    Lanes,
    LinePlot,
    Link,
    Mark,
    Panel,
    PlotRow,
    Point,
    RowPlot,
    Section,
    Sentence,
    Series,
    Table,
    Terms,
    Tile,
    Tiles,
    Tone,
    Toned,
    Verbatim,
)
from interfere.reports.numbers import BYTES, COUNT, DURATION, PLAIN, TIMES, NumberFormat, fixed, hours, percent

HOSTILE = "<script>alert('x')</script>\"&amp;|"
FORMATS: tuple[NumberFormat, ...] = (
    COUNT,
    PLAIN,
    TIMES,
    DURATION,
    BYTES,
    percent(1, sign=True),
    hours(),
    fixed(2, "GiB"),
)

numbers = st.floats(0.001, 1e6, allow_nan=False)
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=50)
estimates = st.builds(lambda v, a, b: Estimate(v, v * a, v * b), numbers, st.floats(0.5, 1), st.floats(1, 2))


def tables(max_columns: int = 12) -> st.SearchStrategy[Table]:
    """Tables whose first column are names; the others hold numbers, intervals or texts."""
    columns = st.lists(st.tuples(st.sampled_from((None, *FORMATS)), names), max_size=max_columns)
    return columns.flatmap(
        lambda found: st.lists(
            st.tuples(names, *(names if form is None else numbers | estimates for form, _ in found)), max_size=6
        ).map(lambda rows: _table([("name", None), *((heading, form) for form, heading in found)], rows))
    )


def _table(columns: Sequence[tuple[str, NumberFormat | None]], rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(title="a table", columns=tuple(Column(*column) for column in columns), rows=tuple(rows))


LOADS = (0.5, 0.75, 0.95)
FIGURES: tuple[Figure, ...] = (
    LinePlot(
        title="change by load",
        x=Axis(title="offered load", form=PLAIN, low=0.4, high=1.0, lines=((0.6, "own"),)),
        y=Axis(title="change (%)", form=percent(0, sign=True)),
        series=(Series(name="measured"), Series(name="assumed", mark=Mark.DIAMOND, is_assumed=True)),
        panels=tuple(
            Panel(
                title=f"queue {HOSTILE}", points=(tuple(Point(x, -x, -2 * x, 0.1) for x in LOADS), (Point(0.7, 0.2),))
            )
            for _ in range(2)
        ),
    ),
    LinePlot(
        title="jobs over",
        x=Axis(title="time (h, log scale)", form=hours(1), is_log=True),
        y=Axis(title="share of jobs (%)", form=percent(), low=0.0, high=1.0),
        series=tuple(Series(name=str(mark), mark=mark) for mark in (Mark.LINE, Mark.STEP, Mark.AREA)),
        panels=(Panel(points=(tuple(Point(36.0 * 10**k, k / 5) for k in range(6)),) * 3),),
    ),
    LinePlot(
        title="predicted and measured",
        x=Axis(title="measured (×)", form=TIMES, is_log=True),
        y=Axis(title="predicted (×)", form=TIMES, is_log=True),
        series=(Series(name="pairs"),),
        panels=(Panel(points=(tuple(Point(1 + k / 9, 1.1 + k / 9) for k in range(9)),)),),
        is_square=True,
    ),
    RowPlot(
        title="mean by policy",
        axis=Axis(title="mean completion time (h)", form=hours(), lines=((7200.0, "now"),)),
        series=(
            Series(name="shared", mark=Mark.BAR),
            Series(name="alone", mark=Mark.BAR, colour=Colour.GREY),
            Series(name="ticks", mark=Mark.TICK, colour=Colour.INK),
        ),
        rows=tuple(
            PlotRow(label=f"{HOSTILE}{k}", values=((Estimate(3600.0 * k, 3000.0, 4000.0),), (), (Estimate(1.0),)))
            for k in range(3)
        ),
    ),
    HeatMap(
        title="slowdowns",
        row_axis="victim",
        column_axis="beside",
        unit="times alone",
        rows=("a", HOSTILE),
        columns=("a", "b"),
        cells={
            ("a", "a"): HeatCell(1.23, "a beside itself"),
            ("a", "b"): HeatCell(math.nan, "no memory", Absence.INFEASIBLE),
            (HOSTILE, "a"): HeatCell(math.nan, HOSTILE, Absence.MISSING),
            (HOSTILE, "b"): HeatCell(0.87, "faster"),
        },
    ),
    Lanes(
        title="the pairing",
        axis=Axis(title="slowdown (×)", form=TIMES, low=0.0, lines=((1.0, "alone"),)),
        series=(Series(name="a little"), Series(name="much", colour=Colour.RED)),
        lanes=(
            Lane(
                label="gpu 0",
                boxes=(Box(start=0, end=1.2, series=0, text=HOSTILE), Box(start=0, end=1.5, series=1, text="gemm")),
            ),
            Lane(label="gpu 1", boxes=()),
        ),
    ),
)
EVERYTHING = Document(
    f"Everything {HOSTILE}",
    (
        Sentence(HOSTILE, tone=Tone.LEAD),
        Sentence(("Run ", Code("interfere `serve`"), " first."), lead="Known.", tone=Tone.GOOD),
        Tiles((Tile(value=0.931, form=percent(1), label="of the hours", detail=HOSTILE), Tile(value="–", label="gap"))),
        Section(
            "Tables",
            (
                Table(
                    title=HOSTILE,
                    columns=(
                        Column("victim"),
                        Column("slowdown", TIMES),
                        Column("lost", DURATION, is_detail=True),
                        Column("verdict"),
                    ),
                    rows=(
                        (Link(HOSTILE, "figures"), Estimate(1.5, 1.4, 1.6), math.nan, Toned("separate", Tone.BAD)),
                        ("b", 2.0, 3.0, None),
                        ("c", 2.5, 4.0, HOSTILE),
                    ),
                    fold=2,
                ),
                Section("Inside", (Items((HOSTILE, "second"), ordered=True), Items(("one",)))),
            ),
        ),
        Section("Figures", FIGURES, anchor="figures", is_detail=True),
        Folded("more", (Verbatim(text=f"</pre>{HOSTILE}"), Terms(((HOSTILE, ""), ("day", "2026"))))),
    ),
)
