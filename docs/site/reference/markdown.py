"""Writes Markdown tables from texts that hold anything."""

from collections.abc import Iterable, Sequence


def plain(text: str) -> str:
    """Return a text as Markdown shows it literally, on one line; pairs of backticks still mark code."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [_escaped(piece) for piece in pieces[::2]]
    return "`".join(pieces)


def code(text: str) -> str:
    """Return a text set as code."""
    return f"`{text}`"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown; bars inside cells are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _escaped(text: str) -> str:
    for character in "\\*<[":
        text = text.replace(character, f"\\{character}" if character != "<" else "&lt;")
    return text
