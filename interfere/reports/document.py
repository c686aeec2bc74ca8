"""What a report consists of, as data: a document has sections, and sections have parts.

Laws: numbers stay numbers until they are rendered; a text is text, whatever it holds: no renderer reads markup in it; a
figure shows nothing that a table or a sentence beside it does not say, or gives every value as its title.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from interfere.reports.numbers import NumberFormat

NAN = math.nan


class Code(str):
    """A piece of a text that a computer reads, such as a command or the name of a field."""

    __slots__ = ()


Words = str | tuple[str, ...]  # a text, or its pieces, some of them `Code`


def with_code(text: str) -> Words:
    """Return a text in which `backticks` mark code as words with code pieces. Not for names that users gave."""
    return tuple(Code(piece) if k % 2 else piece for k, piece in enumerate(text.split("`")))


def words_text(words: Words) -> str:
    """Return words as plain text, for a place where code cannot be set apart."""
    return words if isinstance(words, str) else "".join(words)


class Tone(StrEnum):
    """The meaning of a sentence or a cell to its reader."""

    PLAIN = "plain"
    LEAD = "lead"  # the first sentence below a title
    NOTE = "dim"  # may be passed over
    GOOD = "good"  # verdicts, set apart from the text around them
    BAD = "bad"
    UNSURE = "unsure"


VERDICTS = (Tone.GOOD, Tone.BAD, Tone.UNSURE)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or a paragraph; `lead` are its first words, set in bold."""

    text: Words
    tone: Tone = field(default=Tone.PLAIN, kw_only=True)
    lead: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Items:
    """A list, numbered where the order counts."""

    items: tuple[Words, ...]
    ordered: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Terms:
    """A list of terms with a text about each; an empty text is shown as a dash."""

    entries: tuple[tuple[str, Words], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """A text of another program or file, as it is."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A key figure: a number or a short text, its meaning, and a detail."""

    value: "float | str"
    form: NumberFormat | None = None  # of a number
    label: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The value as text, with its unit."""
        if isinstance(self.value, str):
            return self.value
        return self.form.text(self.value) if self.form else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Tiles:
    """The key figures of a document."""

    tiles: tuple[Tile, ...]


class Estimate(NamedTuple):
    """A number with its interval; `label` is shown where a reader points at the number in a figure."""

    value: float
    low: float = NAN
    high: float = NAN
    label: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


class Range(NamedTuple):
    """An interval without a central value."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Toned:
    """A cell whose text is a verdict."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that links to the section with this anchor, or to another page."""

    text: str
    anchor: str = ""
    page: str = field(default="", kw_only=True)  # path and query; empty: this page

    @property
    def href(self) -> str:
        """The link as HTML writes it."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


Cell = (
    str | float | None | Estimate | Range | Toned | Link
)  # a tuple of pieces of text is no cell: an Estimate is a tuple


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, the format of its numbers, and the cell that a record has in it.

    With a number format the cells are numbers, aligned right.
    """

    heading: str
    form: NumberFormat | None = None
    of: str | Callable[[Any], Cell] | None = field(default=None, kw_only=True)  # attribute of a record, or a function
    is_detail: bool = field(default=False, kw_only=True)  # left out where there is little room: in a terminal
    is_brief: bool = field(default=False, kw_only=True)  # there without the intervals of its numbers

    @property
    def title(self) -> str:
        """The heading with the unit of the whole column."""
        unit = self.form.unit if self.form else ""
        return f"{self.heading} ({unit})" if unit else self.heading


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; the first column names the row. Rows from `fold` on are folded, or counted where nothing folds."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    fold: int | None = None

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), (
            f"{self.title}: cells are not as many as columns"
        )


def table_of(title: str, columns: Sequence[Column], records: Iterable[Any], *, fold: int | None = None) -> Table:
    """Return a table with one row a record; every column says by `of` which cell a record has in it."""
    cells = [attrgetter(column.of) if isinstance(column.of, str) else column.of for column in columns]
    assert all(cells), f"{title}: a column does not say which cell a record has in it"
    rows = tuple(tuple(cell(record) for cell in cells if cell) for record in records)
    return Table(title=title, columns=tuple(columns), rows=rows, fold=fold)


def text_table(title: str, headings: tuple[str, ...], rows: Iterable[tuple[str | Link, ...]]) -> Table:
    """Return a table of texts and links."""
    return Table(title=title, columns=tuple(map(Column, headings)), rows=tuple(rows))


def cell_text(cell: Cell, column: Column) -> str:
    """Return the text of a cell: empty for None, a dash for NaN, which is an unknown number."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, Toned | Link):
        return cell.text
    assert column.form is not None, f"column {column.heading} has numbers and no format"
    if isinstance(cell, Estimate):
        return f"{column.form.number(cell.value)} {column.form.ends(cell.low, cell.high)}".rstrip()
    return column.form.ends(cell.low, cell.high) if isinstance(cell, Range) else column.form.number(cell)


class Colour(StrEnum):
    """Colours of series: each has a light and a dark value in the style sheet."""

    BLUE = "blue"
    ORANGE = "orange"
    GREEN = "green"
    RED = "red"
    GREY = "grey"
    INK = "ink"


class Mark(StrEnum):
    """The shape in which a series is drawn."""

    DOT = "dot"
    DIAMOND = "diamond"
    TICK = "tick"
    BAR = "bar"
    LINE = "line"
    STEP = "step"  # a value holds until the next one
    AREA = "area"  # as a step, filled down to 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A group of marks in a figure that share a name, a mark and a colour."""

    name: str
    mark: Mark = Mark.DOT
    colour: Colour = Colour.BLUE
    is_assumed: bool = False  # predicted or assumed: hollow or dashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale with its title; it holds all values and the reference lines, and 0 where it is linear."""

    title: str
    form: NumberFormat
    is_log: bool = False
    low: float = NAN  # an end; NaN: from the values
    high: float = NAN
    lines: tuple[tuple[float, str], ...] = ()  # (value, label) of reference lines


class Point(NamedTuple):
    """A point of a plot, with the interval of its y."""

    x: float
    y: float
    low: float = NAN
    high: float = NAN
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of several drawings on the same axes, with the points of each series."""

    title: str = ""
    points: tuple[tuple[Point, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlot:
    """Points, lines or areas over an axis, with intervals."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    panels: tuple[Panel, ...]
    is_square: bool = False  # equal units on both axes, with the line of equal values


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRow:
    """A named row of a plot: the values of each series."""

    label: str
    values: tuple[tuple[Estimate, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlot:
    """Bars or points with intervals, one row for each name."""

    title: str
    axis: Axis
    series: tuple[Series, ...]
    rows: tuple[PlotRow, ...]


class Absence(StrEnum):
    """The reason why a cell of a heat map has no value."""

    UNSTABLE = "unstable"
    INFEASIBLE = "infeasible"
    MISSING = "missing"


class HeatCell(NamedTuple):
    """A cell of a heat map: a ratio or the reason why it is missing, and a label for a reader who points at it."""

    value: float
    label: str
    absence: Absence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Ratios of rows to columns, coloured in steps centred on 1; every row meets every column."""

    title: str
    row_axis: str
    column_axis: str
    unit: str  # what a ratio says: times alone
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A stretch of time on a lane, such as a job on a device or a kernel of a stream."""

    start: float
    end: float
    series: int  # its place among the series of the figure
    text: str = ""  # shown inside or behind the box
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A named row of boxes. Boxes that overlap are drawn below each other."""

    label: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """A figure of boxes on lanes along one axis, such as jobs on devices or kernels over time."""

    title: str
    axis: Axis
    series: tuple[Series, ...]
    lanes: tuple[Lane, ...]


Figure = LinePlot | RowPlot | HeatMap | Lanes


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts that a page shows when the reader opens them. A terminal leaves these parts out."""

    summary: str
    parts: "tuple[Part, ...]"


@dataclass(frozen=True, slots=True)
class Section:
    """A title and parts, some of which may be sections. A terminal leaves out a section with `is_detail`."""

    title: str
    parts: "tuple[Part, ...]"
    anchor: str = field(default="", kw_only=True)
    is_detail: bool = field(default=False, kw_only=True)


Part = Sentence | Items | Terms | Verbatim | Tiles | Table | LinePlot | RowPlot | HeatMap | Lanes | Folded | Section


@dataclass(frozen=True, slots=True)
class Document:
    """A report: its title and its parts."""

    title: Words
    parts: tuple[Part, ...]

    @property
    def title_text(self) -> str:
        """The title as plain text."""
        return words_text(self.title)
